#include "backend/cuda/device_holder.h"

#include <utility>

namespace seq2seq {
namespace {

constexpr int kThreads = 1024;
constexpr uint64_t kMostNanoseconds = 20'000'000'000;

__device__ uint64_t Nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

__global__ void __launch_bounds__(kThreads) HoldKernel(const volatile HeldDevice* word) {
  const uint64_t begin = Nanoseconds();
  while (*word == HeldDevice::kHeld && Nanoseconds() - begin < kMostNanoseconds) __nanosleep(1000);
  if (*word == HeldDevice::kLost) __trap();
}

cudaError_t Launch(int blocks, const volatile HeldDevice* word, cudaStream_t stream) {
  HoldKernel<<<blocks, kThreads, 0, stream>>>(word);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchDeviceHolder(const volatile HeldDevice* word, cudaStream_t stream) {
  int device = 0;
  int processors = 0;
  int threads = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  for (const auto& [value, attribute] :
       {std::pair{&processors, cudaDevAttrMultiProcessorCount},
        std::pair{&threads, cudaDevAttrMaxThreadsPerMultiProcessor}}) {
    const cudaError_t error = cudaDeviceGetAttribute(value, attribute, device);
    if (error != cudaSuccess) return error;
  }
  return Launch(processors * (threads / kThreads), word, stream);
}

cudaError_t LaunchStreamHolder(const volatile HeldDevice* word, cudaStream_t stream) {
  return Launch(1, word, stream);
}

}  // namespace seq2seq
