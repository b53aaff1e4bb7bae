#include "backend/cpu/cpu_engine_factory.h"

#include <map>
#include <mutex>
#include <utility>

#include "backend/cpu/cpu_engine.h"
#include "backend/cpu/weights.h"

namespace seq2seq {
namespace {

class CpuEngineFactory final : public EngineFactory {
 public:
  explicit CpuEngineFactory(std::shared_ptr<const Checkpoint> checkpoint)
      : checkpoint_(std::move(checkpoint)) {}

  Result<std::unique_ptr<Engine>> Create(const EngineOptions& options,
                                         Notifier* notifier) override {
    SEQ2SEQ_ASSIGN_OR_RETURN(std::shared_ptr<const cpu::Weights> weights,
                             SharedWeights(options.weights_dtype));
    return cpu::CpuEngine::Create(std::move(weights),
                                  {.max_slots = options.max_active_sequences,
                                   .max_source_tokens = options.max_source_tokens,
                                   .max_decoder_tokens = options.max_decoder_tokens,
                                   .threads = options.cpu_threads,
                                   .kv_cache_bytes = options.kv_cache_bytes,
                                   .eos_token_ids = checkpoint_->generation().eos_token_ids},
                                  notifier);
  }

 private:
  // The lock is held while weights are made: instances of a model that load at once wait for the
  // first and share its weights.
  Result<std::shared_ptr<const cpu::Weights>> SharedWeights(std::optional<DType> dtype) {
    std::lock_guard lock(mutex_);
    std::weak_ptr<const cpu::Weights>& shared = weights_[dtype];
    if (std::shared_ptr<const cpu::Weights> alive = shared.lock()) return alive;
    SEQ2SEQ_ASSIGN_OR_RETURN(std::shared_ptr<const cpu::Weights> made,
                             cpu::Weights::Make(*checkpoint_, dtype));
    shared = made;
    return made;
  }

  const std::shared_ptr<const Checkpoint> checkpoint_;
  std::mutex mutex_;
  std::map<std::optional<DType>, std::weak_ptr<const cpu::Weights>> weights_;
};

}  // namespace

std::unique_ptr<EngineFactory> MakeCpuEngineFactory(std::shared_ptr<const Checkpoint> checkpoint) {
  return std::make_unique<CpuEngineFactory>(std::move(checkpoint));
}

}  // namespace seq2seq
