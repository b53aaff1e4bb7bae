// The copy engine of compute capability 9.0, and the barriers that its copies complete on. Device
// code only.
#ifndef SEQ2SEQ_BACKEND_KERNELS_HOPPER_CUH_
#define SEQ2SEQ_BACKEND_KERNELS_HOPPER_CUH_

#include <cuda.h>

#include <cstdint>

#include "backend/kernels/device_math.cuh"

namespace seq2seq::kernels {

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
// Makes initialized barriers and ordinary writes visible to the copy engine and to wgmma.
__device__ __forceinline__ void FenceAsyncProxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
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

__device__ __forceinline__ void PrefetchTensorMap(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
// Copy a box of an array, which begins at these places of its dimensions, to shared memory;
// `barrier` expects its bytes.
__device__ __forceinline__ void CopyBox(void* shared, const CUtensorMap& map, uint64_t* barrier,
                                        int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%3, %4}], [%2];" ::"r"(SharedAddress(shared)),
      "l"(&map), "r"(SharedAddress(barrier)), "r"(x), "r"(y)
      : "memory");
}
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

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_HOPPER_CUH_
