// Times one kernel at a time and says what the device's limits would allow.
#ifndef SEQ2SEQ_BENCHMARKS_KERNELS_KERNEL_BENCH_H_
#define SEQ2SEQ_BENCHMARKS_KERNELS_KERNEL_BENCH_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/kernels/launch.h"

namespace seq2seq {

// The part of a T5's shape that its kernels see.
struct KernelShape {
  std::string name;
  int32_t layers = 0;
  int32_t width = 0;
  int32_t heads = 0;
  int32_t head_dim = 0;
  int32_t ffn = 0;
  bool gated = true;
  int32_t vocabulary = 32128;

  int32_t inner() const { return heads * head_dim; }
};

// What a launch is a part of.
inline constexpr const char* kDecodeStep = "decode step";
inline constexpr const char* kEncode = "encode";

// What one launch does at least: bytes that come from memory or go there once, operations of its
// products.
struct KernelWork {
  double bytes = 0.0;
  double operations = 0.0;
};

struct KernelTime {
  std::string shape;
  std::string pass;  // kDecodeStep or kEncode
  std::string kernel;
  int32_t rows = 0;  // of a decode step, or tokens of an encode
  // In one pass; 0 if another kernel of the list takes its place there.
  int32_t launches = 0;
  double microseconds = 0.0;
  KernelWork work;
};

// Ends the program with a message.
void CheckCuda(cudaError_t error, const char* what);

struct DeviceFree {
  void operator()(void* memory) const { static_cast<void>(cudaFree(memory)); }
};
using DeviceArray = std::unique_ptr<void, DeviceFree>;

template <typename T>
T* As(const DeviceArray& array) {
  return static_cast<T*>(array.get());
}

// Device memory full of 16-bit numbers of magnitude 1, alike in float16 and bfloat16.
DeviceArray RandomNumbers(size_t bytes);

template <typename T>
DeviceArray ToDevice(const std::vector<T>& values) {
  void* memory = nullptr;
  CheckCuda(cudaMalloc(&memory, values.size() * sizeof(T)), "cudaMalloc");
  CheckCuda(cudaMemcpy(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
            "cudaMemcpy");
  return DeviceArray(memory);
}

// So many launches of a chain have operands of their own that none is still in the second-level
// cache when its turn comes again; `bytes`: of one launch.
int32_t Turns(double bytes);

// Room for one operand of all launches of a chain, which has at most `largest` bytes a launch.
size_t TurnSpace(size_t largest);

// launch(i, context) queues the i-th of a chain of launches, each with operands of its own.
using Launcher = std::function<cudaError_t(int32_t, const kernels::LaunchContext&)>;

// Median time of a launch in a chain of `count`, captured in a graph: as dependents of each other
// if `dependent`, as a decode step has them.
double MedianMicroseconds(int32_t count, bool dependent, const Launcher& launch);

// The least time of what `queue` queues, for what bounds others. Not in a graph, where the copy
// engine does a copy at two thirds of the speed.
double LeastMicroseconds(const std::function<cudaError_t(cudaStream_t)>& queue);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BENCHMARKS_KERNELS_KERNEL_BENCH_H_
