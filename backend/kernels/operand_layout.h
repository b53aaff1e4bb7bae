// Where the numbers of a projection's operands are: weights and inputs alike are cut into chunks of
// 32 inputs, and 8 outputs or rows of a chunk are contiguous.
#ifndef SEQ2SEQ_BACKEND_KERNELS_OPERAND_LAYOUT_H_
#define SEQ2SEQ_BACKEND_KERNELS_OPERAND_LAYOUT_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "backend/kernels/element_type.h"

namespace seq2seq::kernels {

// Of 8 numbers of a half type, an output's or row's chunk has four vectors. They change places
// with each other from one pair of rows to the next, which is the 64-byte swizzle of Hopper's
// matrix units: these read shared memory that was copied as it is.
__host__ __device__ constexpr int32_t VectorPlace(int32_t row, int32_t vector) {
  return vector ^ static_cast<int32_t>(static_cast<uint32_t>(row) / 2 % 4);
}

// The place of input k (of 32) in a chunk of an output or row.
template <size_t kElementBytes>
__host__ __device__ constexpr int32_t PlaceInChunk(int32_t row, uint32_t k) {
  return static_cast<int32_t>(
      kElementBytes == 2 ? VectorPlace(row, static_cast<int32_t>(k / 8)) * 8 + k % 8 : k);
}

// The place of input k of a row in an array [inputs / 32][row_capacity][32]. The capacity is a
// multiple of 8. Unsigned, as a negative number's division is more than a shift.
template <size_t kElementBytes>
__host__ __device__ constexpr int64_t BlockedPlace(int32_t row, uint32_t k, int32_t row_capacity) {
  const auto chunk = static_cast<int32_t>(k / 32);
  return (int64_t{chunk} * row_capacity + row) * 32 + PlaceInChunk<kElementBytes>(row, k % 32);
}
constexpr int64_t BlockedPlace(ElementType type, int32_t row, int32_t k, int32_t row_capacity) {
  return type == ElementType::kFloat32 ? BlockedPlace<4>(row, k, row_capacity)
                                       : BlockedPlace<2>(row, k, row_capacity);
}

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_OPERAND_LAYOUT_H_
