#include "backend/testing/room_environment.h"

#include <stdexcept>
#include <utility>

#include "backend/testing/fake_checkpoint.h"

namespace seq2seq {
namespace {

RoomEnvironment* current = nullptr;

// A factory that each model owns, in front of the one that the test owns.
class SharedFactory final : public EngineFactory {
 public:
  explicit SharedFactory(std::shared_ptr<EngineFactory> factory) : factory_(std::move(factory)) {}

  Result<std::unique_ptr<Engine>> Create(const EngineOptions& options,
                                         Notifier* notifier) override {
    return factory_->Create(options, notifier);
  }

 private:
  const std::shared_ptr<EngineFactory> factory_;
};

}  // namespace

RoomEnvironment::RoomEnvironment(const FakeEngineOptions& engines)
    : engines_(std::make_shared<FakeEngineFactory>(engines)),
      checkpoint_(std::make_shared<FakeCheckpoint>()) {
  current = this;
}

RoomEnvironment::~RoomEnvironment() { current = nullptr; }

Result<std::shared_ptr<const Checkpoint>> RoomEnvironment::Load(
    const std::filesystem::path& directory) {
  if (throw_) throw std::runtime_error("a library threw");
  if (checkpoint_error_) return std::unexpected(*checkpoint_error_);
  loaded_.push_back(directory);
  return checkpoint_;
}

BackendEnvironment RoomEnvironment::Make() {
  return BackendEnvironment{
      .clock = clock_,
      .load_checkpoint = [this](const std::filesystem::path& directory) { return Load(directory); },
      .make_engine_factory = [engines = engines_](std::shared_ptr<const Checkpoint>)
          -> std::unique_ptr<EngineFactory> { return std::make_unique<SharedFactory>(engines); },
      .has_cuda_engine = has_cuda_engine_};
}

BackendEnvironment MakeBackendEnvironment() { return current->Make(); }

}  // namespace seq2seq
