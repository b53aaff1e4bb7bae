#include "backend/cuda/cuda_engine_factory.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "backend/core/format.h"
#include "backend/cuda/cuda_engine.h"
#include "backend/cuda/cuda_status.h"
#include "backend/cuda/device_check.h"
#include "backend/cuda/device_weights.h"

namespace seq2seq {
namespace {

// What the engines of one dtype on one device have in common.
struct SharedModel {
  std::weak_ptr<const DeviceWeights> weights;
  int64_t kv_bytes = 0;  // for the KV memory of all of them
};

// An engine's part.
struct ModelPart {
  std::shared_ptr<const DeviceWeights> weights;
  int64_t kv_bytes = 0;
};

Status UseDevice(int32_t device_id) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    return Unsupported(
        Format("this machine has no usable NVIDIA GPU ({})",
               error == cudaSuccess ? "none is visible" : cudaGetErrorString(error)));
  }
  if (device_id >= count) {
    return InvalidArgument(
        Format("GPU {} was asked for; this process sees GPUs 0 to {}", device_id, count - 1));
  }
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaSetDevice(device_id));
  return CheckDeviceKernels();
}

// Of `loaded`, says whose memory there is not enough of.
Result<std::shared_ptr<const DeviceWeights>> NameOptions(
    Result<std::shared_ptr<const DeviceWeights>> loaded, int32_t device_id) {
  if (!loaded && loaded.error().code == ErrorCode::kInvalidArgument) {
    loaded.error().message = Format(
        "the model's weights do not fit into the free memory of GPU {} ({}); 'weights_dtype' sets "
        "their size, and 'kv_cache_bytes' of the models loaded before what those leave free",
        device_id, loaded.error().message);
  }
  return loaded;
}

class CudaEngineFactory final : public EngineFactory {
 public:
  explicit CudaEngineFactory(std::shared_ptr<const Checkpoint> checkpoint)
      : checkpoint_(std::move(checkpoint)) {}

  Result<std::unique_ptr<Engine>> Create(const EngineOptions& options,
                                         Notifier* notifier) override {
    SEQ2SEQ_RETURN_IF_ERROR(UseDevice(options.device_id));
    const DType dtype = options.weights_dtype.value_or(checkpoint_->lm_head().dtype);
    SEQ2SEQ_ASSIGN_OR_RETURN(ModelPart part, Share(options, dtype));
    return CudaEngine::Create(std::move(part.weights),
                              {.device_id = options.device_id,
                               .max_active_sequences = options.max_active_sequences,
                               .max_source_tokens = options.max_source_tokens,
                               .max_decoder_tokens = options.max_decoder_tokens,
                               .kv_cache_bytes = options.kv_cache_bytes,
                               .kv_cache_limit = part.kv_bytes},
                              notifier);
  }

 private:
  // The lock is held while weights are loaded: instances of a model that load at once wait for the
  // first and share its weights. The free memory is looked at once, before any of them takes some.
  Result<ModelPart> Share(const EngineOptions& options, DType dtype) {
    std::lock_guard lock(mutex_);
    SharedModel& model = models_[{options.device_id, dtype}];
    ModelPart part;
    part.weights = model.weights.lock();
    if (part.weights == nullptr) {
      SEQ2SEQ_ASSIGN_OR_RETURN(
          part.weights, NameOptions(DeviceWeights::Load(*checkpoint_, dtype), options.device_id));
      size_t free_bytes = 0;
      size_t total_bytes = 0;
      SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaMemGetInfo(&free_bytes, &total_bytes));
      model.kv_bytes = static_cast<int64_t>(static_cast<double>(free_bytes) * kKvMemoryShare);
      model.weights = part.weights;
    }
    part.kv_bytes = model.kv_bytes / std::max(1, options.instances_on_device);
    return part;
  }

  const std::shared_ptr<const Checkpoint> checkpoint_;
  std::mutex mutex_;
  std::map<std::pair<int32_t, DType>, SharedModel> models_;
};

}  // namespace

const bool kHasCudaEngine = true;

std::unique_ptr<EngineFactory> MakeCudaEngineFactory(std::shared_ptr<const Checkpoint> checkpoint) {
  return std::make_unique<CudaEngineFactory>(std::move(checkpoint));
}

}  // namespace seq2seq
