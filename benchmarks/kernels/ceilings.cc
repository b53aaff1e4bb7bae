#include "benchmarks/kernels/ceilings.h"

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "backend/kernels/element_type.h"
#include "benchmarks/kernels/kernel_bench.h"
#include "benchmarks/kernels/token_product.h"

namespace seq2seq {
namespace {

constexpr size_t kCopyBytes = size_t{2} << 30;
constexpr int32_t kProductSize = 8192;

double CopiedBytesPerSecond() {
  const DeviceArray from = RandomNumbers(kCopyBytes);
  const DeviceArray to = RandomNumbers(kCopyBytes);
  const double time = LeastMicroseconds([&](cudaStream_t stream) {
    return cudaMemcpyAsync(to.get(), from.get(), kCopyBytes, cudaMemcpyDeviceToDevice, stream);
  });
  return 2.0 * kCopyBytes / (1e-6 * time);
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
  const double time =
      LeastMicroseconds([&](cudaStream_t stream) { return product.Run(args, stream); });
  return 2.0 * kProductSize * kProductSize * kProductSize / (1e-6 * time);
}

}  // namespace

Ceilings MeasureCeilings() { return {CopiedBytesPerSecond(), MultipliedOperationsPerSecond()}; }

}  // namespace seq2seq
