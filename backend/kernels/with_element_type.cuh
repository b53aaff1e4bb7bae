// From an ElementType to the type that it names, for launchers of kernel templates.
#ifndef SEQ2SEQ_BACKEND_KERNELS_WITH_ELEMENT_TYPE_CUH_
#define SEQ2SEQ_BACKEND_KERNELS_WITH_ELEMENT_TYPE_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "backend/kernels/element_type.h"

namespace seq2seq::kernels {

// Calls run(T{}) with the type that `type` names. cudaErrorInvalidValue if it is no enumerator.
template <typename Run>
cudaError_t WithElementType(ElementType type, Run run) {
  switch (type) {
    case ElementType::kFloat32:
      return run(float{});
    case ElementType::kFloat16:
      return run(__half{});
    case ElementType::kBfloat16:
      return run(__nv_bfloat16{});
  }
  return cudaErrorInvalidValue;
}

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_WITH_ELEMENT_TYPE_CUH_
