// Device-side words for compute capability 9.0a: asynchronous warpgroup products, bulk copies and
// the barriers that they complete on. Device code only.
#ifndef SEQ2SEQ_BACKEND_KERNELS_HOPPER_CUH_
#define SEQ2SEQ_BACKEND_KERNELS_HOPPER_CUH_

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "backend/kernels/device_math.cuh"

namespace seq2seq::kernels {

__device__ __forceinline__ uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// Barriers in shared memory (PTX mbarrier). A phase ends after `arrivals` arrivals and when all
// bytes expected have come; waits name the phase's parity, 0 first.
__device__ __forceinline__ void InitBarrier(uint64_t* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SharedAddress(barrier)),
               "r"(arrivals));
}
// Makes the barriers' initial state visible to the copy engine.
__device__ __forceinline__ void FenceBarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void ArriveExpecting(uint64_t* barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SharedAddress(barrier)),
      "r"(bytes)
      : "memory");
}
__device__ __forceinline__ void Arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SharedAddress(barrier)) : "memory");
}
__device__ __forceinline__ void WaitForPhase(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{ .reg .pred done; wait_%=: "
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; "
      "@done bra done_%=; bra wait_%=; done_%=: }" ::"r"(SharedAddress(barrier)),
      "r"(parity)
      : "memory");
}

// 16 bytes of shared memory that the copy engine has brought.
__device__ __forceinline__ uint4 LoadShared(uint32_t address) {
  uint4 bits;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
               : "r"(address)
               : "memory");
  return bits;
}

// Copies `bytes` contiguous bytes, a multiple of 16, to shared memory; `barrier` expects them.
__device__ __forceinline__ void CopyBulk(void* shared, const void* global, uint32_t bytes,
                                         uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(SharedAddress(shared)),
      "l"(global), "r"(bytes), "r"(SharedAddress(barrier))
      : "memory");
}

// Copies the box at (column, row) of a matrix to shared memory; `barrier` expects its bytes.
__device__ __forceinline__ void CopyBox(void* shared, const CUtensorMap& map, int column, int row,
                                        uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(SharedAddress(shared)),
      "l"(&map), "r"(column), "r"(row), "r"(SharedAddress(barrier))
      : "memory");
}
// A tile in shared memory with rows of 64 two-byte elements, as copied with a swizzle of 128 bytes:
// the matrix descriptor of PTX wgmma (groups of 8 rows are 1,024 bytes apart). The tile starts at a
// multiple of 1,024 bytes; each step of 16 elements along the rows adds 2 to the descriptor.
__device__ __forceinline__ uint64_t SwizzledTile(const void* shared) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kGroupStride = uint64_t{1024 >> 4} << 32;
  constexpr uint64_t kUnusedStride = uint64_t{1} << 16;
  return kSwizzle128 | kGroupStride | kUnusedStride | (SharedAddress(shared) & 0x3ffff) >> 4;
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

// d = a b, or d += a b, by a warpgroup: 64 x 16 by 16 x 64, 32 sums a thread. Warp w has rows 16 w
// to 16 w + 15; of each 8 columns a lane has (lane / 4, 2 (lane % 4)) and the next, and the two 8
// rows below. a and b are SwizzledTile()s whose rows run along the inputs.
template <typename T>
__device__ __forceinline__ void MultiplyAsync(float (&d)[32], uint64_t a, uint64_t b,
                                              bool accumulate);
// d += a b: a as in PTX mma.m16n8k16, b's rows run along the columns.
template <typename T>
__device__ __forceinline__ void MultiplyRowsAsync(float (&d)[32], const uint32_t (&a)[4],
                                                  uint64_t b);

#define SEQ2SEQ_FOUR(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SEQ2SEQ_SIXTEEN(i) \
  SEQ2SEQ_FOUR(i), SEQ2SEQ_FOUR(i + 4), SEQ2SEQ_FOUR(i + 8), SEQ2SEQ_FOUR(i + 12)
#define SEQ2SEQ_FIRST_32                                                             \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, " \
  "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SEQ2SEQ_MULTIPLY_ASYNC(T, name)                                                            \
  template <>                                                                                      \
  __device__ __forceinline__ void MultiplyAsync<T>(float (&d)[32], uint64_t a, uint64_t b,         \
                                                   bool accumulate) {                              \
    asm volatile(                                                                                  \
        "{ .reg .pred p; setp.ne.b32 p, %34, 0; "                                                  \
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." name "." name " {" SEQ2SEQ_FIRST_32          \
        "}, %32, %33, p, 1, 1, 0, 0; }"                                                            \
        : SEQ2SEQ_SIXTEEN(0), SEQ2SEQ_SIXTEEN(16)                                                  \
        : "l"(a), "l"(b), "r"(int{accumulate}));                                                   \
  }                                                                                                \
  template <>                                                                                      \
  __device__ __forceinline__ void MultiplyRowsAsync<T>(float (&d)[32], const uint32_t (&a)[4],     \
                                                       uint64_t b) {                               \
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." name "." name " {" SEQ2SEQ_FIRST_32 \
                 "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"                                       \
                 : SEQ2SEQ_SIXTEEN(0), SEQ2SEQ_SIXTEEN(16)                                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                            \
  }
SEQ2SEQ_MULTIPLY_ASYNC(__nv_bfloat16, "bf16")
SEQ2SEQ_MULTIPLY_ASYNC(__half, "f16")
#undef SEQ2SEQ_MULTIPLY_ASYNC
#undef SEQ2SEQ_FIRST_32
#undef SEQ2SEQ_SIXTEEN
#undef SEQ2SEQ_FOUR

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

// Two values in one register; float16 saturates.
template <typename T>
__device__ __forceinline__ uint32_t PackPair(float low, float high);
template <>
__device__ __forceinline__ uint32_t PackPair<__nv_bfloat16>(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
template <>
__device__ __forceinline__ uint32_t PackPair<__half>(float low, float high) {
  const __half2 pair(FromFloat<__half>(low), FromFloat<__half>(high));
  return *reinterpret_cast<const uint32_t*>(&pair);
}

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_HOPPER_CUH_
