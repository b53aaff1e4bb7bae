// Device memory with an owner.
#ifndef SEQ2SEQ_BACKEND_CUDA_DEVICE_BUFFER_H_
#define SEQ2SEQ_BACKEND_CUDA_DEVICE_BUFFER_H_

#include <cuda_runtime.h>

#include <cstddef>

#include "backend/core/status.h"
#include "backend/cuda/cuda_memory.h"
#include "backend/cuda/cuda_status.h"

namespace seq2seq {

// Memory on the device that was current when it was made.
class DeviceBuffer : public CudaMemory<cudaFree> {
 public:
  [[nodiscard]] static Result<DeviceBuffer> Allocate(size_t bytes) {
    DeviceBuffer buffer;
    SEQ2SEQ_RETURN_IF_ERROR(
        buffer.Fill(bytes, [](void** data, size_t size) { return cudaMalloc(data, size); }));
    return buffer;
  }

  // Allocates, and queues the filling with zeros on `stream`.
  [[nodiscard]] static Result<DeviceBuffer> AllocateZeroed(size_t bytes, cudaStream_t stream) {
    SEQ2SEQ_ASSIGN_OR_RETURN(DeviceBuffer buffer, Allocate(bytes));
    SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(buffer.as(), 0, bytes, stream));
    return buffer;
  }
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CUDA_DEVICE_BUFFER_H_
