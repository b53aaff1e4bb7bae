// Page-locked host memory with an owner.
#ifndef SEQ2SEQ_BACKEND_CUDA_PINNED_BUFFER_H_
#define SEQ2SEQ_BACKEND_CUDA_PINNED_BUFFER_H_

#include <cuda_runtime.h>

#include <cstddef>

#include "backend/core/status.h"
#include "backend/cuda/cuda_memory.h"

namespace seq2seq {

// Host memory that the device copies from and to without staging, and that kernels may address
// themselves.
class PinnedBuffer : public CudaMemory<cudaFreeHost> {
 public:
  [[nodiscard]] static Result<PinnedBuffer> Allocate(size_t bytes) {
    PinnedBuffer buffer;
    SEQ2SEQ_RETURN_IF_ERROR(buffer.Fill(bytes, [](void** data, size_t size) {
      return cudaHostAlloc(data, size, cudaHostAllocMapped);
    }));
    return buffer;
  }
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CUDA_PINNED_BUFFER_H_
