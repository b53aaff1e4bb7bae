#include "benchmarks/kernels/ceilings.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "backend/kernels/element_type.h"
#include "benchmarks/kernels/kernel_bench.h"
#include "benchmarks/kernels/token_product.h"

namespace seq2seq {
namespace {

using kernels::LaunchContext;

constexpr size_t kCopyBytes = size_t{2} << 30;
constexpr int kCopies = 10;
constexpr int32_t kProductSize = 8192;

// Not in a graph, where the copy engine does it at two thirds of the speed.
double CopiedBytesPerSecond() {
  const DeviceArray from = RandomNumbers(kCopyBytes);
  const DeviceArray to = RandomNumbers(kCopyBytes);
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  CheckCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  CheckCuda(cudaEventCreate(&begin), "event");
  CheckCuda(cudaEventCreate(&end), "event");
  float least = std::numeric_limits<float>::infinity();
  for (int i = 0; i < kCopies; ++i) {
    CheckCuda(cudaEventRecord(begin, stream), "record");
    CheckCuda(cudaMemcpyAsync(to.get(), from.get(), kCopyBytes, cudaMemcpyDeviceToDevice, stream),
              "copy");
    CheckCuda(cudaEventRecord(end, stream), "record");
    CheckCuda(cudaEventSynchronize(end), "copy");
    float milliseconds = 0.0F;
    CheckCuda(cudaEventElapsedTime(&milliseconds, begin, end), "elapsed");
    least = std::min(least, milliseconds);
  }
  CheckCuda(cudaEventDestroy(begin), "event");
  CheckCuda(cudaEventDestroy(end), "event");
  CheckCuda(cudaStreamDestroy(stream), "stream");
  return 2.0 * kCopyBytes / (1e-3 * least);
}

double MultipliedOperationsPerSecond() {
  constexpr size_t kBytes = size_t{2} * kProductSize * kProductSize;
  const DeviceArray weight = RandomNumbers(kBytes);
  const DeviceArray input = RandomNumbers(kBytes);
  const DeviceArray output = RandomNumbers(kBytes);
  TokenMatmulArgs args;
  args.weight = weight.get();
  args.input = input.get();
  args.output = output.get();
  args.outputs = kProductSize;
  args.inputs = kProductSize;
  args.tokens = kProductSize;
  TokenProduct product(kernels::ElementType::kBfloat16);
  product.Tune(args);
  const double time = LeastMicroseconds(
      1, [&](int32_t, const LaunchContext& context) { return product.Run(args, context.stream); });
  return 2.0 * kProductSize * kProductSize * kProductSize / (1e-6 * time);
}

}  // namespace

Ceilings MeasureCeilings() { return {CopiedBytesPerSecond(), MultipliedOperationsPerSecond()}; }

}  // namespace seq2seq
