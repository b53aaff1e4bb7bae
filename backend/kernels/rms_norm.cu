#include <cuda_runtime.h>

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "backend/kernels/device_math.cuh"
#include "backend/kernels/element_type.h"
#include "backend/kernels/rms_norm.h"
#include "backend/kernels/with_element_type.cuh"

namespace seq2seq::kernels {
namespace {

constexpr int kWarpSize = 32;
constexpr int kMaxThreads = 512;
constexpr int kMaxWarps = kMaxThreads / kWarpSize;
// Elements a thread handles at once: 16 bytes of float. With 32 a warp's reads would be 32 bytes
// apart, each of them half of its lines.
constexpr int kVectorWidth = 4;
constexpr size_t kAccessBytes = 16;
// Accesses whose sums stay in registers between the two passes; wider rows are read again. A thread
// has all of them in flight at once, and a block as few threads as that allows: one barrier of few
// warps, and rows enough on a multiprocessor to keep its memory busy.
constexpr int kCachedAccesses = 4;

template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth < kAccessBytes ? sizeof(T) * kWidth : kAccessBytes) Pack {
  T values[kWidth];
};

template <typename T, int kWidth>
__device__ Pack<T, kWidth> Load(const T* base, int index) {
  return reinterpret_cast<const Pack<T, kWidth>*>(base)[index];
}

template <typename T, int kWidth>
__device__ void Store(T* base, int index, const Pack<T, kWidth>& pack) {
  reinterpret_cast<Pack<T, kWidth>*>(base)[index] = pack;
}

// The sum of `value` over the block, in every thread. Called once a kernel.
__device__ float BlockSum(float value) {
  __shared__ float warp_sums[kMaxWarps];
  value = WarpSum(value);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  if (threadIdx.x % kWarpSize == 0) {
    warp_sums[warp] = value;
  }
  __syncthreads();
  float total = 0.0f;
  for (int i = 0; i < static_cast<int>(blockDim.x) / kWarpSize; ++i) {
    total += warp_sums[i];
  }
  return total;
}

// One block a row. `accesses` is width / kWidth. kAdds: there is a delta. Otherwise nothing is
// stored before the barrier, and no read waits behind a store.
template <typename Weight, typename Activation, int kWidth, bool kAdds>
__global__ void __launch_bounds__(kMaxThreads)
    RmsNormKernel(float* residual, const Activation* delta, const Weight* weight,
                  Activation* output, int accesses, float epsilon) {
  const size_t row = static_cast<size_t>(blockIdx.x) * accesses * kWidth;
  float* row_residual = residual + row;
  const int stride = static_cast<int>(blockDim.x);
  const int first = static_cast<int>(threadIdx.x);
  Pack<float, kWidth> cached[kCachedAccesses];
  Pack<Weight, kWidth> factors[kCachedAccesses];  // early: not a round trip after the barrier

#pragma unroll
  for (int step = 0; step < kCachedAccesses; ++step) {
    const int index = first + step * stride;
    if (index >= accesses) continue;
    cached[step] = Load<float, kWidth>(row_residual, index);
    factors[step] = Load<Weight, kWidth>(weight, index);
  }
  float squares = 0.0f;
  const auto add = [&](int index, Pack<float, kWidth> sum) {
    if constexpr (kAdds) {
      const auto added = Load<Activation, kWidth>(delta + row, index);
      for (int i = 0; i < kWidth; ++i) sum.values[i] += ToFloat(added.values[i]);
      Store(row_residual, index, sum);
    }
    for (int i = 0; i < kWidth; ++i) squares += sum.values[i] * sum.values[i];
    return sum;
  };
#pragma unroll
  for (int step = 0; step < kCachedAccesses; ++step) {
    const int index = first + step * stride;
    if (index < accesses) cached[step] = add(index, cached[step]);
  }
  for (int index = first + kCachedAccesses * stride; index < accesses; index += stride) {
    add(index, Load<float, kWidth>(row_residual, index));
  }

  const float mean = BlockSum(squares) / static_cast<float>(accesses * kWidth);
  const float scale = 1.0f / sqrtf(mean + epsilon);

  const auto normalize = [&](int index, const Pack<float, kWidth>& sum,
                             const Pack<Weight, kWidth>& factor) {
    Pack<Activation, kWidth> result;
    for (int i = 0; i < kWidth; ++i) {
      result.values[i] = FromFloat<Activation>(sum.values[i] * scale * ToFloat(factor.values[i]));
    }
    Store(output + row, index, result);
  };
#pragma unroll
  for (int step = 0; step < kCachedAccesses; ++step) {
    const int index = first + step * stride;
    if (index < accesses) normalize(index, cached[step], factors[step]);
  }
  // A thread reads again only what it wrote itself.
  for (int index = first + kCachedAccesses * stride; index < accesses; index += stride) {
    normalize(index, Load<float, kWidth>(row_residual, index), Load<Weight, kWidth>(weight, index));
  }
}

template <typename Weight, typename Activation, int kWidth>
cudaError_t LaunchKernel(const RmsNormParams& params, cudaStream_t stream) {
  const int accesses = params.width / kWidth;
  constexpr int kWarpAccesses = kCachedAccesses * kWarpSize;
  const int warps = (accesses + kWarpAccesses - 1) / kWarpAccesses;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(params.rows));
  config.blockDim =
      dim3(static_cast<unsigned>((warps < kMaxWarps ? warps : kMaxWarps) * kWarpSize));
  config.stream = stream;
  const auto kernel = params.delta != nullptr ? RmsNormKernel<Weight, Activation, kWidth, true>
                                              : RmsNormKernel<Weight, Activation, kWidth, false>;
  return cudaLaunchKernelEx(&config, kernel, params.residual,
                            static_cast<const Activation*>(params.delta),
                            static_cast<const Weight*>(params.weight),
                            static_cast<Activation*>(params.output), accesses, params.epsilon);
}

bool IsAligned(const void* pointer, size_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

template <typename Weight, typename Activation>
cudaError_t Launch(const RmsNormParams& params, cudaStream_t stream) {
  if (!IsAligned(params.residual, sizeof(float)) || !IsAligned(params.weight, sizeof(Weight)) ||
      !IsAligned(params.delta, sizeof(Activation)) ||
      !IsAligned(params.output, sizeof(Activation))) {
    return cudaErrorInvalidValue;
  }
  if (params.rows == 0) {
    return cudaSuccess;
  }
  const bool vectors =
      params.width % kVectorWidth == 0 && IsAligned(params.residual, kAccessBytes) &&
      IsAligned(params.weight, kAccessBytes) && IsAligned(params.delta, kAccessBytes) &&
      IsAligned(params.output, kAccessBytes);
  return vectors ? LaunchKernel<Weight, Activation, kVectorWidth>(params, stream)
                 : LaunchKernel<Weight, Activation, 1>(params, stream);
}

template <typename Weight>
cudaError_t LaunchForActivation(const RmsNormParams& params, cudaStream_t stream) {
  return WithElementType(params.activation_type, [&](auto activation) {
    return Launch<Weight, decltype(activation)>(params, stream);
  });
}

}  // namespace

cudaError_t RmsNorm(const RmsNormParams& params, cudaStream_t stream) {
  if (params.residual == nullptr || params.weight == nullptr || params.output == nullptr ||
      params.rows < 0 || params.width <= 0 || !std::isfinite(params.epsilon) ||
      params.epsilon < 0.0f) {
    return cudaErrorInvalidValue;
  }
  return WithElementType(params.weight_type, [&](auto weight) {
    return LaunchForActivation<decltype(weight)>(params, stream);
  });
}

}  // namespace seq2seq::kernels
