// CUDA's errors as the backend's.
#ifndef SEQ2SEQ_BACKEND_CUDA_CUDA_STATUS_H_
#define SEQ2SEQ_BACKEND_CUDA_CUDA_STATUS_H_

#include <cuda_runtime.h>

#include <string>
#include <string_view>

#include "backend/core/status.h"

namespace seq2seq {

// For a call that found no memory: kInvalidArgument, as what the options ask for does not fit.
// `what` needs it.
inline Status OutOfMemory(std::string_view what) {
  return InvalidArgument("out of memory: " + std::string(what));
}

// OK, or naming what failed: OutOfMemory(), or kInternal with CUDA's reason.
inline Status CudaStatus(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return OkStatus();
  if (error == cudaErrorMemoryAllocation) return OutOfMemory(what);
  return Internal(std::string("CUDA: ") + std::string(what) +
                  " failed: " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error));
}

}  // namespace seq2seq

// Leaves the calling function with an Error if `expr` (a cudaError_t) is one.
#define SEQ2SEQ_RETURN_IF_CUDA_ERROR(expr) \
  SEQ2SEQ_RETURN_IF_ERROR(::seq2seq::CudaStatus((expr), #expr))

#endif  // SEQ2SEQ_BACKEND_CUDA_CUDA_STATUS_H_
