#include "backend/testing/fake_engine_factory.h"

#include <utility>

namespace seq2seq {
namespace {

// What the owner of the engine holds: gone with it, while the fake behind stays to be looked at.
class OwnedFake final : public Engine {
 public:
  explicit OwnedFake(std::shared_ptr<FakeEngine> fake) : fake_(std::move(fake)) {}
  ~OwnedFake() override { fake_->Retire(); }

  const EngineInfo& info() const override { return fake_->info(); }
  Status Health() const override { return fake_->Health(); }
  Status StartEncode(std::span<const EncodeItem> batch) override {
    return fake_->StartEncode(batch);
  }
  void PollEncoded(std::vector<EncodeDone>* done) override { fake_->PollEncoded(done); }
  Status Launch(const StepPlan& plan) override { return fake_->Launch(plan); }
  bool PollStep(StepResult* result) override { return fake_->PollStep(result); }

 private:
  std::shared_ptr<FakeEngine> fake_;
};

}  // namespace

Result<std::unique_ptr<Engine>> FakeEngineFactory::Create(const EngineOptions& options,
                                                          Notifier* notifier) {
  std::lock_guard lock(mutex_);
  requested_.push_back(options);
  if (fail_create_) return std::unexpected(*fail_create_);
  FakeEngineOptions own = options_;
  own.info.max_slots = options.max_active_sequences;
  if (options.kv_cache_bytes) {
    own.info.total_blocks = static_cast<int32_t>(*options.kv_cache_bytes / kBytesPerBlock);
  }
  engines_.push_back(std::make_shared<FakeEngine>(own, notifier));
  return std::make_unique<OwnedFake>(engines_.back());
}

void FakeEngineFactory::FailCreate(std::optional<Error> error) {
  std::lock_guard lock(mutex_);
  fail_create_ = std::move(error);
}

std::vector<FakeEngine*> FakeEngineFactory::engines() const {
  std::lock_guard lock(mutex_);
  std::vector<FakeEngine*> engines;
  for (const auto& engine : engines_) engines.push_back(engine.get());
  return engines;
}

std::vector<EngineOptions> FakeEngineFactory::requested() const {
  std::lock_guard lock(mutex_);
  return requested_;
}

std::vector<std::string> FakeEngineFactory::violations() const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> all;
  for (const auto& engine : engines_) {
    for (std::string& violation : engine->violations()) all.push_back(std::move(violation));
  }
  return all;
}

}  // namespace seq2seq
