// Copies between host memory and any device's.
#ifndef SEQ2SEQ_BACKEND_CUDA_CUDA_MEMORY_COPIER_H_
#define SEQ2SEQ_BACKEND_CUDA_CUDA_MEMORY_COPIER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "backend/core/memory_copier.h"
#include "backend/core/status.h"
#include "backend/cuda/cuda_stream.h"
#include "backend/cuda/pinned_buffer.h"

namespace seq2seq {

// Copies go through a pinned buffer and a stream of its own, one call at a time; callers wait for
// each other. Safe from any thread.
class CudaMemoryCopier final : public MemoryCopier {
 public:
  // On the current device.
  [[nodiscard]] static Result<std::unique_ptr<CudaMemoryCopier>> Create();

  [[nodiscard]] Status ToHost(void* destination, const void* source, size_t bytes,
                              int64_t device_id) override;
  [[nodiscard]] Status ToDevice(void* destination, const void* source, size_t bytes,
                                int64_t device_id) override;

 private:
  CudaMemoryCopier() = default;

  int device_ = 0;
  std::mutex mutex_;
  CudaStream stream_;
  PinnedBuffer staging_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CUDA_CUDA_MEMORY_COPIER_H_
