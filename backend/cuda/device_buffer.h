// Device memory with an owner.
#ifndef SEQ2SEQ_BACKEND_CUDA_DEVICE_BUFFER_H_
#define SEQ2SEQ_BACKEND_CUDA_DEVICE_BUFFER_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

#include "backend/core/status.h"
#include "backend/cuda/cuda_status.h"

namespace seq2seq {

// Memory on the device that was current when it was made. Movable; empty when default-constructed.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  // An error here has no taker: the device is lost, or it was reported where it arose.
  ~DeviceBuffer() { static_cast<void>(cudaFree(data_)); }

  [[nodiscard]] static Result<DeviceBuffer> Allocate(size_t bytes) {
    DeviceBuffer buffer;
    SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaMalloc(&buffer.data_, bytes == 0 ? 1 : bytes));
    buffer.bytes_ = bytes;
    return buffer;
  }

  // Allocates, and queues the filling with zeros on `stream`.
  [[nodiscard]] static Result<DeviceBuffer> AllocateZeroed(size_t bytes, cudaStream_t stream) {
    SEQ2SEQ_ASSIGN_OR_RETURN(DeviceBuffer buffer, Allocate(bytes));
    SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(buffer.data_, 0, bytes, stream));
    return buffer;
  }

  template <typename T = void>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CUDA_DEVICE_BUFFER_H_
