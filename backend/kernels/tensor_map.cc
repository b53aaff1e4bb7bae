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

cudaError_t MapMatrix(const MappedMatrix& matrix, int32_t box_rows, CUtensorMap* map) {
  static const EncodeTiled encode = FindEncodeTiled();
  if (encode == nullptr) return cudaErrorNotSupported;
  const auto columns = static_cast<cuuint64_t>(matrix.columns);
  const cuuint64_t sizes[] = {columns, static_cast<cuuint64_t>(matrix.rows)};
  const cuuint64_t strides[] = {columns * 2};
  const cuuint32_t box[] = {kBoxColumns, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[] = {1, 1};
  const CUresult result =
      encode(map,
             matrix.type == ElementType::kFloat16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                  : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
             2, const_cast<void*>(matrix.data), sizes, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
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
