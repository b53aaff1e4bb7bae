// Thread-block clusters: stores to the shared memory of another block, and how it learns of them.
// Device code only.
//
// Barriers of the whole cluster with release and acquire cost a fence of all memory each, which
// waits for other blocks' reads of weights too. So blocks meet once, without a fence, and what they
// store afterwards is counted by a barrier in the shared memory of the block that it is for.
#ifndef SEQ2SEQ_BACKEND_KERNELS_CLUSTER_CUH_
#define SEQ2SEQ_BACKEND_KERNELS_CLUSTER_CUH_

#include <cstdint>

#include "backend/kernels/device_math.cuh"

namespace seq2seq::kernels {

// Before a thread stores to another block it must know that the block runs: all threads of the
// cluster call MeetCluster() early, and AwaitCluster() before the first store. No order of memory
// but that of Arrivals::Expect().
__device__ __forceinline__ void MeetCluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
#endif
}
// The same with an order: other blocks' stores come after all that this thread has read and written
// of its shared memory.
__device__ __forceinline__ void MeetClusterInOrder() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}
__device__ __forceinline__ void AwaitCluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait;" ::: "memory");
#endif
}

// Lies in shared memory and counts the bytes that arrive in its block.
class Arrivals {
 public:
  // One thread, before its MeetCluster().
  __device__ __forceinline__ void Expect(uint32_t bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(SharedAddress(&barrier_))
                 : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SharedAddress(&barrier_)),
        "r"(bytes)
        : "memory");
#endif
  }

  // Any thread, after AwaitCluster(): until all of it has arrived.
  __device__ __forceinline__ void Wait() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    uint32_t done = 0;
    while (done == 0) {
      asm volatile(
          "{\n"
          ".reg .pred p;\n"
          "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\n"
          "selp.u32 %0, 1, 0, p;\n"
          "}\n"
          : "=r"(done)
          : "r"(SharedAddress(&barrier_))
          : "memory");
    }
#endif
  }

 private:
  uint64_t barrier_;
};

// Stores to variables of another block. `rank`: the block's in the cluster.
class RemoteStore {
 public:
  __device__ __forceinline__ RemoteStore(const Arrivals* arrivals, int rank)
      : arrivals_(Map(arrivals, rank)), rank_(rank) {}

  __device__ __forceinline__ void Store(const float* place, float value) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(
                     Map(place, rank_)),
                 "f"(value), "r"(arrivals_)
                 : "memory");
#endif
  }
  __device__ __forceinline__ void Store(const float4* place, const float4& value) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1,%2,%3,%4}, "
        "[%5];" ::"r"(Map(place, rank_)),
        "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(arrivals_)
        : "memory");
#endif
  }

 private:
  __device__ __forceinline__ static uint32_t Map(const void* variable, int rank) {
    uint32_t address = SharedAddress(variable);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(address) : "r"(rank));
#endif
    return address;
  }

  uint32_t arrivals_;
  int rank_;
};

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_CLUSTER_CUH_
