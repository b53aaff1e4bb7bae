// A CUDA stream with an owner.
#ifndef SEQ2SEQ_BACKEND_CUDA_CUDA_STREAM_H_
#define SEQ2SEQ_BACKEND_CUDA_CUDA_STREAM_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "backend/core/status.h"
#include "backend/cuda/cuda_status.h"

namespace seq2seq {

enum class StreamPriority : uint8_t { kHigh, kLow };

// Never synchronizes with the default stream. Movable; empty when default-constructed.
class CudaStream {
 public:
  CudaStream() = default;
  CudaStream(CudaStream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  CudaStream& operator=(CudaStream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~CudaStream() {
    if (stream_ != nullptr) static_cast<void>(cudaStreamDestroy(stream_));
  }

  [[nodiscard]] static Result<CudaStream> Create(StreamPriority priority) {
    int least = 0;
    int greatest = 0;
    SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CudaStream stream;
    SEQ2SEQ_RETURN_IF_CUDA_ERROR(
        cudaStreamCreateWithPriority(&stream.stream_, cudaStreamNonBlocking,
                                     priority == StreamPriority::kHigh ? greatest : least));
    return stream;
  }

  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CUDA_CUDA_STREAM_H_
