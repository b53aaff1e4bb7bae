// What the tests of the CUDA engine share.
#ifndef SEQ2SEQ_BACKEND_CUDA_CUDA_ENGINE_TEST_UTIL_H_
#define SEQ2SEQ_BACKEND_CUDA_CUDA_ENGINE_TEST_UTIL_H_

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "backend/core/dtype.h"
#include "backend/core/notifier.h"
#include "backend/cuda/cuda_engine.h"
#include "backend/cuda/device_weights.h"
#include "backend/engine/engine.h"
#include "backend/model/checkpoint.h"
#include "backend/testing/engine_driver.h"
#include "backend/testing/memory_checkpoint.h"
#include "backend/testing/tiny_checkpoint.h"

namespace seq2seq {

// A result's value; an error ends the test.
template <typename T>
T ValueOf(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

inline std::shared_ptr<const DeviceWeights> LoadWeights(const Checkpoint& checkpoint, DType dtype) {
  if (cudaSetDevice(0) != cudaSuccess) throw std::runtime_error("no CUDA device");
  return ValueOf(DeviceWeights::Load(checkpoint, dtype));
}

// A tiny checkpoint in a folder of this name; tests of one program may run side by side.
inline std::shared_ptr<const Checkpoint> WriteAndLoad(const std::string& name,
                                                      const TinyCheckpointOptions& options) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / name;
  const Status written = WriteTinyCheckpoint(folder, options);
  if (!written) throw std::runtime_error(written.error().message);
  return ValueOf(Checkpoint::Load(folder));
}

// A tiny checkpoint with heads that tensor cores can do.
inline TinyCheckpointOptions TinyHalfShape(int32_t d_kv) {
  return {.vocab_size = 211, .d_model = 64, .d_kv = d_kv, .num_heads = 3, .d_ff = 104};
}

// What a test wants to be particular of a MemoryCheckpoint.
struct WideShape {
  int32_t d_model = 256;
  int32_t num_heads = 4;
  int32_t d_ff = 512;
  int32_t num_layers = 1;
  int32_t num_decoder_layers = 8;
};

// For MemoryCheckpoint: bfloat16 and heads of 64, which the kernels for compute capability 9.0
// take.
inline TinyCheckpointOptions WideOptions(const WideShape& shape) {
  return {.vocab_size = 512,
          .d_model = shape.d_model,
          .d_kv = 64,
          .num_heads = shape.num_heads,
          .d_ff = shape.d_ff,
          .num_layers = shape.num_layers,
          .num_decoder_layers = shape.num_decoder_layers,
          .dtype = DType::kBFloat16};
}

inline std::shared_ptr<const DeviceWeights> LoadWideWeights(const WideShape& shape) {
  return LoadWeights(MemoryCheckpoint(WideOptions(shape)), DType::kBFloat16);
}

// For tiny checkpoints.
inline CudaEngineOptions TinyEngineOptions() {
  CudaEngineOptions options;
  options.max_active_sequences = 6;
  options.max_source_tokens = 200;
  options.max_decoder_tokens = 100;
  return options;
}

// An engine on device 0 and who plays its scheduler.
class DrivenEngine {
 public:
  DrivenEngine(std::shared_ptr<const DeviceWeights> weights, const CudaEngineOptions& options)
      : engine_(ValueOf(CudaEngine::Create(std::move(weights), options, &notifier_))),
        driver_(engine_.get(), &notifier_) {}

  Engine& engine() { return *engine_; }
  Notifier& notifier() { return notifier_; }
  EngineDriver& driver() { return driver_; }

  // Decodes the requests together, from a fresh start.
  std::vector<DriverSequence> Generate(const std::vector<DriverRequest>& requests) {
    driver_.Reset();
    std::vector<DriverSequence> sequences = ValueOf(driver_.Generate(requests));
    for (const DriverSequence& sequence : sequences) {
      if (!sequence.status) throw std::runtime_error(sequence.status.error().message);
    }
    driver_.Reset();
    return sequences;
  }

 private:
  Notifier notifier_;
  std::unique_ptr<Engine> engine_;
  EngineDriver driver_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CUDA_CUDA_ENGINE_TEST_UTIL_H_
