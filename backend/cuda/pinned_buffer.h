// Page-locked host memory with an owner.
#ifndef SEQ2SEQ_BACKEND_CUDA_PINNED_BUFFER_H_
#define SEQ2SEQ_BACKEND_CUDA_PINNED_BUFFER_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

#include "backend/core/status.h"
#include "backend/cuda/cuda_status.h"

namespace seq2seq {

// Host memory that the device copies from and to without staging, and that kernels may address
// themselves. Movable; empty when default-constructed.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(PinnedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~PinnedBuffer() { static_cast<void>(cudaFreeHost(data_)); }

  [[nodiscard]] static Result<PinnedBuffer> Allocate(size_t bytes) {
    PinnedBuffer buffer;
    SEQ2SEQ_RETURN_IF_CUDA_ERROR(
        cudaHostAlloc(&buffer.data_, bytes == 0 ? 1 : bytes, cudaHostAllocMapped));
    buffer.bytes_ = bytes;
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

#endif  // SEQ2SEQ_BACKEND_CUDA_PINNED_BUFFER_H_
