#include "backend/engine/built_in_engines.h"

#include <utility>

#include "backend/cpu/cpu_engine_factory.h"
#include "backend/cuda/cuda_engine_factory.h"

namespace seq2seq {
namespace {

class BuiltInEngines final : public EngineFactory {
 public:
  explicit BuiltInEngines(const std::shared_ptr<const Checkpoint>& checkpoint)
      : cpu_(MakeCpuEngineFactory(checkpoint)), cuda_(MakeCudaEngineFactory(checkpoint)) {}

  Result<std::unique_ptr<Engine>> Create(const EngineOptions& options,
                                         Notifier* notifier) override {
    if (options.kind == EngineKind::kCpu) return cpu_->Create(options, notifier);
    if (cuda_ == nullptr) return Unsupported("this library was built without CUDA");
    return cuda_->Create(options, notifier);
  }

 private:
  const std::unique_ptr<EngineFactory> cpu_;
  const std::unique_ptr<EngineFactory> cuda_;  // null in a build without CUDA
};

}  // namespace

bool HasCudaEngine() { return kHasCudaEngine; }

std::unique_ptr<EngineFactory> MakeBuiltInEngines(std::shared_ptr<const Checkpoint> checkpoint) {
  return std::make_unique<BuiltInEngines>(checkpoint);
}

}  // namespace seq2seq
