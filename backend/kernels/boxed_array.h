// Descriptions of device arrays for the copy engine of compute capability 9.0 and later.
#ifndef SEQ2SEQ_BACKEND_KERNELS_BOXED_ARRAY_H_
#define SEQ2SEQ_BACKEND_KERNELS_BOXED_ARRAY_H_

#include <cuda.h>
#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace seq2seq::kernels {

// An array of 16-bit numbers and the box of it that one copy takes. The first dimension is
// contiguous and its box 32 numbers; strides are those of the others, in bytes. What a box has
// beyond the array is filled with zeros. In shared memory a box lies in the 64-byte swizzle.
template <size_t kRank>
struct BoxedArray {
  const void* data;
  std::array<uint64_t, kRank> sizes;
  std::array<uint64_t, kRank - 1> strides;
  std::array<uint32_t, kRank> box;
};

// cudaErrorNotSupported if the driver knows no tensor maps.
template <size_t kRank>
cudaError_t EncodeTensorMap(const BoxedArray<kRank>& array, CUtensorMap* map) {
  void* symbol = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &symbol,
                                                             12000, cudaEnableDefault, &found);
  if (error != cudaSuccess) return error;
  if (found != cudaDriverEntryPointSuccess) return cudaErrorNotSupported;
  std::array<uint32_t, kRank> steps;
  steps.fill(1);
  const auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(symbol);
  const CUresult result =
      encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT16, kRank, const_cast<void*>(array.data),
             array.sizes.data(), array.strides.data(), array.box.data(), steps.data(),
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_BOXED_ARRAY_H_
