// Descriptions of device arrays for the copy engine of compute capability 9.0 and later.
#ifndef SEQ2SEQ_BACKEND_KERNELS_TENSOR_MAP_H_
#define SEQ2SEQ_BACKEND_KERNELS_TENSOR_MAP_H_

#include <cuda.h>
#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace seq2seq::kernels {

// An array of 16-bit elements, and the box of it that one copy takes. The first dimension is
// contiguous; strides are those of the others, in bytes, multiples of 16 as the address is. What a
// box has beyond the array is filled with zeros.
struct BoxedArray {
  static constexpr size_t kMaxRank = 4;

  const void* data = nullptr;
  uint32_t rank = 0;
  std::array<uint64_t, kMaxRank> sizes = {};
  std::array<uint64_t, kMaxRank - 1> strides = {};
  std::array<uint32_t, kMaxRank> box = {};  // at most 256 each
  // Of a box in shared memory, whose first dimension is that wide then. Operands that lie in
  // operand_layout.h's swizzle already need none.
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
};

// A host call of about a microsecond, without allocation. cudaErrorNotSupported if the driver knows
// no tensor maps. Threads: any.
cudaError_t EncodeTensorMap(const BoxedArray& array, CUtensorMap* map);

// True if the current device runs kernels that are built for compute capability 9.0a.
cudaError_t IsHopper(bool* hopper);

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_TENSOR_MAP_H_
