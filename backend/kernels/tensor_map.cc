#include "backend/kernels/tensor_map.h"

namespace seq2seq::kernels {
namespace {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

// The driver's function, so that nothing links to the driver; null if it has none.
EncodeTiled FindEncodeTiled() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                             12000, cudaEnableDefault, &result);
  if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<EncodeTiled>(function);
}

}  // namespace

cudaError_t EncodeTensorMap(const BoxedArray& array, CUtensorMap* map) {
  static const EncodeTiled encode = FindEncodeTiled();
  if (encode == nullptr) return cudaErrorNotSupported;
  constexpr std::array<uint32_t, BoxedArray::kMaxRank> kSteps = {1, 1, 1, 1};
  const CUresult result =
      encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT16, array.rank, const_cast<void*>(array.data),
             array.sizes.data(), array.strides.data(), array.box.data(), kSteps.data(),
             CU_TENSOR_MAP_INTERLEAVE_NONE, array.swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t IsHopper(bool* hopper) {
  int device = 0;
  int major = 0;
  int minor = 0;
  for (const cudaError_t error :
       {cudaGetDevice(&device),
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device)}) {
    if (error != cudaSuccess) return error;
  }
  *hopper = major == 9 && minor == 0;
  return cudaSuccess;
}

}  // namespace seq2seq::kernels
