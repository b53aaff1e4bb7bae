// What projections need of Hopper beside hopper.cuh: products of operands in the 64-byte swizzle
// and copies of boxes of more dimensions. Device code only.
#ifndef SEQ2SEQ_BACKEND_KERNELS_WGMMA_CUH_
#define SEQ2SEQ_BACKEND_KERNELS_WGMMA_CUH_

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "backend/kernels/hopper.cuh"

namespace seq2seq::kernels {

// Makes initialized barriers and ordinary writes visible to the copy engine and to wgmma.
__device__ __forceinline__ void FenceAsyncProxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void PrefetchTensorMap(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
// Start copies of a box; `barrier` hears of its bytes.
__device__ __forceinline__ void CopyBox(void* shared, const CUtensorMap& map, uint64_t* barrier,
                                        int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%3, %4, %5}], [%2];" ::"r"(SharedAddress(shared)),
      "l"(&map), "r"(SharedAddress(barrier)), "r"(x), "r"(y), "r"(z)
      : "memory");
}
__device__ __forceinline__ void CopyBox(void* shared, const CUtensorMap& map, uint64_t* barrier,
                                        int x, int y, int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%3, %4, %5, %6}], [%2];" ::"r"(SharedAddress(shared)),
      "l"(&map), "r"(SharedAddress(barrier)), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}

// A matrix operand in shared memory: rows of 32 half-type inputs (64 bytes), groups of 8 rows one
// after the other, in the 64-byte swizzle in which a tensor copy leaves them.
__device__ __forceinline__ uint64_t MatrixOperand(uint32_t address) {
  constexpr uint64_t kSwizzle64 = uint64_t{2} << 62;
  constexpr uint64_t kGroupStride = uint64_t{512 / 16} << 32;
  constexpr uint64_t kLeadingUnused = uint64_t{1} << 16;
  return kSwizzle64 | kGroupStride | kLeadingUnused | ((address & 0x3ffffU) >> 4);
}

// Operand lists of 32 accumulators, from d[first].
#define SEQ2SEQ_D4(d, i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define SEQ2SEQ_D16(d, i) \
  SEQ2SEQ_D4(d, i), SEQ2SEQ_D4(d, (i) + 4), SEQ2SEQ_D4(d, (i) + 8), SEQ2SEQ_D4(d, (i) + 12)
#define SEQ2SEQ_WGMMA_64(type)                                                               \
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                   \
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "    \
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, " \
               "%31}, %32, %33, 1, 1, 1, 0, 0;"                                              \
               : SEQ2SEQ_D16(d, 0), SEQ2SEQ_D16(d, 16)                                       \
               : "l"(a), "l"(b))
#define SEQ2SEQ_WGMMA_128(type)                                                                \
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type                    \
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "      \
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, "   \
               "%31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "   \
               "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, "   \
               "%61, %62, %63}, %64, %65, 1, 1, 1, 0, 0;"                                      \
               : SEQ2SEQ_D16(d, 0), SEQ2SEQ_D16(d, 16), SEQ2SEQ_D16(d, 32), SEQ2SEQ_D16(d, 48) \
               : "l"(a), "l"(b))

// d += a b for 64 outputs, 16 inputs and 64 or 128 rows. A lane's d[4 i + k] is what
// mma.m16n8k16 gives it for its warp's 16 outputs and rows 8 i to 8 i + 7.
template <typename T>
__device__ __forceinline__ void MultiplyWarpgroup(float (&d)[32], uint64_t a, uint64_t b) {
  if constexpr (std::is_same_v<T, __half>) {
    SEQ2SEQ_WGMMA_64("f16");
  } else {
    SEQ2SEQ_WGMMA_64("bf16");
  }
}
template <typename T>
__device__ __forceinline__ void MultiplyWarpgroup(float (&d)[64], uint64_t a, uint64_t b) {
  if constexpr (std::is_same_v<T, __half>) {
    SEQ2SEQ_WGMMA_128("f16");
  } else {
    SEQ2SEQ_WGMMA_128("bf16");
  }
}
#undef SEQ2SEQ_WGMMA_64
#undef SEQ2SEQ_WGMMA_128
#undef SEQ2SEQ_D16
#undef SEQ2SEQ_D4

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_WGMMA_CUH_
