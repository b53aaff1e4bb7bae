// Casts between number formats.
#ifndef SEQ2SEQ_BACKEND_KERNELS_CONVERT_H_
#define SEQ2SEQ_BACKEND_KERNELS_CONVERT_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "backend/kernels/element_type.h"
#include "backend/kernels/launch.h"

namespace seq2seq::kernels {

struct ConvertArgs {
  const void* source = nullptr;
  ElementType source_type = ElementType::kFloat32;
  void* destination = nullptr;
  ElementType destination_type = ElementType::kFloat32;
  int64_t count = 0;
};

// Rounds to nearest; float16 saturates.
cudaError_t LaunchConvert(const ConvertArgs& args, const LaunchContext& context);

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_CONVERT_H_
