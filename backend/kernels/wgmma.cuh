// Products of warpgroups (PTX wgmma), compute capability 9.0a alone. Device code only.
#ifndef SEQ2SEQ_BACKEND_KERNELS_WGMMA_CUH_
#define SEQ2SEQ_BACKEND_KERNELS_WGMMA_CUH_

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "backend/kernels/device_math.cuh"

namespace seq2seq::kernels {

// Matrix operands in shared memory, as PTX describes them. Each step of 16 elements along their
// rows adds 2.

// Rows of 64 two-byte elements, as copied with a swizzle of 128 bytes: groups of 8 rows are 1,024
// bytes apart. Starts at a multiple of 1,024 bytes.
__device__ __forceinline__ uint64_t SwizzledTile(const void* shared) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kGroupStride = uint64_t{1024 >> 4} << 32;
  constexpr uint64_t kUnusedStride = uint64_t{1} << 16;
  return kSwizzle128 | kGroupStride | kUnusedStride | (SharedAddress(shared) & 0x3ffffU) >> 4;
}
// Rows of 32 two-byte elements, groups of 8 rows one after the other, in the 64-byte swizzle of
// operand_layout.h. Starts at a multiple of 512 bytes.
__device__ __forceinline__ uint64_t MatrixOperand(uint32_t address) {
  constexpr uint64_t kSwizzle64 = uint64_t{2} << 62;
  constexpr uint64_t kGroupStride = uint64_t{512 >> 4} << 32;
  constexpr uint64_t kUnusedStride = uint64_t{1} << 16;
  return kSwizzle64 | kGroupStride | kUnusedStride | (address & 0x3ffffU) >> 4;
}

__device__ __forceinline__ void BeginProducts() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
// Keeps the compiler from moving what it does to registers of products over this point.
template <int kCount>
__device__ __forceinline__ void PinRegisters(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
__device__ __forceinline__ void CommitProducts() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void WaitForProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Operand lists of the products below.
#define SEQ2SEQ_D4(i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define SEQ2SEQ_D16(i) SEQ2SEQ_D4(i), SEQ2SEQ_D4((i) + 4), SEQ2SEQ_D4((i) + 8), SEQ2SEQ_D4((i) + 12)
#define SEQ2SEQ_D32(i) SEQ2SEQ_D16(i), SEQ2SEQ_D16((i) + 16)
#define SEQ2SEQ_FIRST_32                                                             \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, " \
  "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SEQ2SEQ_NEXT_32                                                                        \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, " \
  "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SEQ2SEQ_PRODUCT(columns, type) \
  "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." type "." type " {"
#define SEQ2SEQ_MULTIPLY_64(type)                                                    \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; " SEQ2SEQ_PRODUCT("64", type) \
                   SEQ2SEQ_FIRST_32 "}, %32, %33, p, 1, 1, 0, 0; }"                  \
               : SEQ2SEQ_D32(0)                                                      \
               : "l"(a), "l"(b), "r"(int{accumulate}))
#define SEQ2SEQ_MULTIPLY_128(type)                                                         \
  asm volatile(SEQ2SEQ_PRODUCT("128", type) SEQ2SEQ_FIRST_32 ", " SEQ2SEQ_NEXT_32          \
                                                             "}, %64, %65, 1, 1, 1, 0, 0;" \
               : SEQ2SEQ_D32(0), SEQ2SEQ_D32(32)                                           \
               : "l"(a), "l"(b))
#define SEQ2SEQ_MULTIPLY_REGISTERS(type)                    \
  asm volatile(SEQ2SEQ_PRODUCT("64", type) SEQ2SEQ_FIRST_32 \
               "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"  \
               : SEQ2SEQ_D32(0)                             \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

// Start d += a b (or d = a b) for a warpgroup: 64 x 16 by 16 x 64 or 128. Warp w has rows 16 w to
// 16 w + 15 of d; of columns 8 i to 8 i + 7 a lane has in d[4 i] and the next three what
// mma.m16n8k16 gives it. Rows of both operands run along the 16 that are summed over.
template <typename T>
__device__ __forceinline__ void MultiplyAsync(float (&d)[32], uint64_t a, uint64_t b,
                                              bool accumulate = true) {
  if constexpr (std::is_same_v<T, __half>) {
    SEQ2SEQ_MULTIPLY_64("f16");
  } else {
    SEQ2SEQ_MULTIPLY_64("bf16");
  }
}
template <typename T>
__device__ __forceinline__ void MultiplyAsync(float (&d)[64], uint64_t a, uint64_t b) {
  if constexpr (std::is_same_v<T, __half>) {
    SEQ2SEQ_MULTIPLY_128("f16");
  } else {
    SEQ2SEQ_MULTIPLY_128("bf16");
  }
}
// The same for a in registers, as in PTX mma.m16n8k16, and a b whose rows run along the columns.
template <typename T>
__device__ __forceinline__ void MultiplyRowsAsync(float (&d)[32], const uint32_t (&a)[4],
                                                  uint64_t b) {
  if constexpr (std::is_same_v<T, __half>) {
    SEQ2SEQ_MULTIPLY_REGISTERS("f16");
  } else {
    SEQ2SEQ_MULTIPLY_REGISTERS("bf16");
  }
}
#undef SEQ2SEQ_MULTIPLY_REGISTERS
#undef SEQ2SEQ_MULTIPLY_128
#undef SEQ2SEQ_MULTIPLY_64
#undef SEQ2SEQ_PRODUCT
#undef SEQ2SEQ_NEXT_32
#undef SEQ2SEQ_FIRST_32
#undef SEQ2SEQ_D32
#undef SEQ2SEQ_D16
#undef SEQ2SEQ_D4

// Lanes 4 i to 4 i + 3 have pairs of neighbouring columns of four groups of 8 columns; afterwards
// lane 4 i + t has the 8 columns of group t.
__device__ __forceinline__ uint4 GatherColumns(uint32_t p0, uint32_t p1, uint32_t p2, uint32_t p3) {
  const bool odd = threadIdx.x % 2 != 0;
  const bool high = threadIdx.x % 4 >= 2;
  const auto swap = [](bool upper, int distance, uint32_t& low, uint32_t& high_value) {
    const uint32_t got = __shfl_xor_sync(kFullWarp, upper ? low : high_value, distance);
    (upper ? low : high_value) = got;
  };
  swap(odd, 1, p0, p1);
  swap(odd, 1, p2, p3);
  swap(high, 2, p0, p2);
  swap(high, 2, p1, p3);
  return {p0, p1, p2, p3};
}

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_WGMMA_CUH_
