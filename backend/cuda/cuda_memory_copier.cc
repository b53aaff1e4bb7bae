#include "backend/cuda/cuda_memory_copier.h"

#include <algorithm>
#include <cstring>

#include "backend/core/format.h"
#include "backend/cuda/cuda_status.h"

namespace seq2seq {
namespace {

constexpr size_t kStagingBytes = size_t{1} << 20;

Status CheckDevice(int64_t device_id) {
  int count = 0;
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaGetDeviceCount(&count));
  if (device_id >= 0 && device_id < count) return OkStatus();
  return InvalidArgument(
      Format("memory of device {}; this process has devices 0 to {}", device_id, count - 1));
}

}  // namespace

Result<std::unique_ptr<CudaMemoryCopier>> CudaMemoryCopier::Create() {
  std::unique_ptr<CudaMemoryCopier> copier(new CudaMemoryCopier());
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaGetDevice(&copier->device_));
  SEQ2SEQ_ASSIGN_OR_RETURN(copier->stream_, CudaStream::Create(StreamPriority::kHigh));
  SEQ2SEQ_ASSIGN_OR_RETURN(copier->staging_, PinnedBuffer::Allocate(kStagingBytes));
  return copier;
}

Status CudaMemoryCopier::ToHost(void* destination, const void* source, size_t bytes,
                                int64_t device_id) {
  std::lock_guard lock(mutex_);
  SEQ2SEQ_RETURN_IF_ERROR(CheckDevice(device_id));
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaSetDevice(device_));
  for (size_t done = 0; done < bytes; done += kStagingBytes) {
    const size_t piece = std::min(kStagingBytes, bytes - done);
    SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(staging_.as(),
                                                 static_cast<const std::byte*>(source) + done,
                                                 piece, cudaMemcpyDeviceToHost, stream_.get()));
    SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream_.get()));
    std::memcpy(static_cast<std::byte*>(destination) + done, staging_.as(), piece);
  }
  return OkStatus();
}

Status CudaMemoryCopier::ToDevice(void* destination, const void* source, size_t bytes,
                                  int64_t device_id) {
  std::lock_guard lock(mutex_);
  SEQ2SEQ_RETURN_IF_ERROR(CheckDevice(device_id));
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaSetDevice(device_));
  for (size_t done = 0; done < bytes; done += kStagingBytes) {
    const size_t piece = std::min(kStagingBytes, bytes - done);
    std::memcpy(staging_.as(), static_cast<const std::byte*>(source) + done, piece);
    SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(static_cast<std::byte*>(destination) + done,
                                                 staging_.as(), piece, cudaMemcpyHostToDevice,
                                                 stream_.get()));
    SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream_.get()));
  }
  return OkStatus();
}

}  // namespace seq2seq
