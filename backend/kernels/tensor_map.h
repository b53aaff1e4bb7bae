// Descriptions of matrices for the bulk copy engine (compute capability 9.0 and later).
#ifndef SEQ2SEQ_BACKEND_KERNELS_TENSOR_MAP_H_
#define SEQ2SEQ_BACKEND_KERNELS_TENSOR_MAP_H_

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "backend/kernels/element_type.h"

namespace seq2seq::kernels {

// Columns of a box: 128 bytes, the width of the swizzle that the copies apply.
constexpr int32_t kBoxColumns = 64;

// A row-major matrix of 16-bit elements, 16-byte aligned, `columns` a multiple of 8.
struct MappedMatrix {
  ElementType type = ElementType::kBfloat16;
  const void* data = nullptr;
  int32_t rows = 0;
  int32_t columns = 0;
};

// Describes `matrix` for copies of boxes of `box_rows` (at most 256) x kBoxColumns; what lies
// beyond its edges is copied as zeros. A host call of about a microsecond, without allocation.
// Threads: any.
cudaError_t MapMatrix(const MappedMatrix& matrix, int32_t box_rows, CUtensorMap* map);

// True if the current device runs kernels that are built for compute capability 9.0a.
cudaError_t IsHopper(bool* hopper);

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_TENSOR_MAP_H_
