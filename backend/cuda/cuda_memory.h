// The ownership that device memory and page-locked host memory have in common.
#ifndef SEQ2SEQ_BACKEND_CUDA_CUDA_MEMORY_H_
#define SEQ2SEQ_BACKEND_CUDA_CUDA_MEMORY_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

#include "backend/core/format.h"
#include "backend/core/status.h"
#include "backend/cuda/cuda_status.h"

namespace seq2seq {

// Bytes that `kFree` (cudaError_t(void*)) gives back. Movable; empty when default-constructed.
template <auto kFree>
class CudaMemory {
 public:
  CudaMemory() = default;
  CudaMemory(CudaMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  CudaMemory& operator=(CudaMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  // An error here has no taker: the device is lost, or it was reported where it arose.
  ~CudaMemory() { static_cast<void>(kFree(data_)); }

  template <typename T = void>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 protected:
  // allocate(&data, bytes) returns cudaError_t.
  template <typename Allocate>
  [[nodiscard]] Status Fill(size_t bytes, const Allocate& allocate) {
    const cudaError_t error = allocate(&data_, bytes == 0 ? 1 : bytes);
    if (error != cudaSuccess) static_cast<void>(cudaGetLastError());  // it is reported here
    SEQ2SEQ_RETURN_IF_ERROR(CudaStatus(error, Format("{} bytes more", bytes)));
    bytes_ = bytes;
    return OkStatus();
  }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CUDA_CUDA_MEMORY_H_
