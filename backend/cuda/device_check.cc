#include "backend/cuda/device_check.h"

#include <cuda_runtime.h>

#include <string>

#include "backend/core/format.h"
#include "backend/cuda/cuda_status.h"
#include "backend/kernels/kernel_image.h"

namespace seq2seq {

Error ForeignDevice(int major, int minor, std::span<const int> built) {
  std::string list;
  for (const int capability : built) {
    list += Format("{}{}.{}", list.empty() ? "" : ", ", capability / 100, capability / 10 % 10);
  }
  return {ErrorCode::kUnsupported,
          Format("the GPU has compute capability {}.{}; this build has kernels for {} alone", major,
                 minor, list)};
}

Status CheckDeviceKernels() {
  const cudaError_t error = kernels::CheckKernelImage();
  if (error != cudaErrorNoKernelImageForDevice && error != cudaErrorInvalidDeviceFunction) {
    return CudaStatus(error, "looking for this build's kernels");
  }
  int device = 0;
  int major = 0;
  int minor = 0;
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaGetDevice(&device));
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return std::unexpected(ForeignDevice(major, minor, kernels::KernelArchitectures()));
}

}  // namespace seq2seq
