#include "backend/kernels/convert.h"

#include "backend/kernels/device_math.cuh"

namespace seq2seq::kernels {
namespace {

__device__ float Read(const void* source, ElementType type, int64_t index) {
  switch (type) {
    case ElementType::kFloat32:
      return static_cast<const float*>(source)[index];
    case ElementType::kFloat16:
      return ToFloat(static_cast<const __half*>(source)[index]);
    case ElementType::kBfloat16:
      return ToFloat(static_cast<const __nv_bfloat16*>(source)[index]);
  }
  return 0.0F;
}

__device__ void Write(void* destination, ElementType type, int64_t index, float value) {
  switch (type) {
    case ElementType::kFloat32:
      static_cast<float*>(destination)[index] = value;
      break;
    case ElementType::kFloat16:
      static_cast<__half*>(destination)[index] = FromFloat<__half>(value);
      break;
    case ElementType::kBfloat16:
      static_cast<__nv_bfloat16*>(destination)[index] = FromFloat<__nv_bfloat16>(value);
      break;
  }
}

__global__ void ConvertKernel(ConvertArgs args) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < args.count;
       i += int64_t{gridDim.x} * blockDim.x) {
    Write(args.destination, args.destination_type, i, Read(args.source, args.source_type, i));
  }
}

}  // namespace

cudaError_t LaunchConvert(const ConvertArgs& args, const LaunchContext& context) {
  if (args.count == 0) return cudaSuccess;
  return Launch(ConvertKernel, {dim3(1024), dim3(256)}, context, args);
}

}  // namespace seq2seq::kernels
