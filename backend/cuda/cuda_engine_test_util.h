// What the tests of the CUDA engine share.
#ifndef SEQ2SEQ_BACKEND_CUDA_CUDA_ENGINE_TEST_UTIL_H_
#define SEQ2SEQ_BACKEND_CUDA_CUDA_ENGINE_TEST_UTIL_H_

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "backend/core/dtype.h"
#include "backend/core/notifier.h"
#include "backend/cuda/cuda_engine.h"
#include "backend/cuda/device_weights.h"
#include "backend/engine/engine.h"
#include "backend/model/checkpoint.h"
#include "backend/testing/engine_driver.h"

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
