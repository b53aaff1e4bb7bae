#include "backend/kernels/layer_norm.h"

#include <algorithm>

#include "backend/kernels/device_math.cuh"
#include "backend/kernels/operand_layout.h"
#include "backend/kernels/with_element_type.cuh"

namespace seq2seq::kernels {
namespace {

constexpr int kMaxThreads = 256;
constexpr int kMaxWarps = kMaxThreads / 32;
constexpr int kWidth = 4;  // of a vector
// A thread's vectors that stay in registers; those of wider rows are read again.
template <bool kWarpARow>
constexpr int kKept = kWarpARow ? 8 : 4;
// From so many rows on, that fill the device, a warp has a row if its registers can hold it: no
// barriers, and several reads of each thread in flight.
constexpr int kManyRows = 1024;
constexpr int kWarpWidth = kKept<true> * 32 * kWidth;

__device__ __forceinline__ float Sum(const float4& x) { return (x.x + x.y) + (x.z + x.w); }
__device__ __forceinline__ float Deviation(const float4& x, float mean) {
  const float4 d = make_float4(x.x - mean, x.y - mean, x.z - mean, x.w - mean);
  return (d.x * d.x + d.y * d.y) + (d.z * d.z + d.w * d.w);
}

// A row's sum in every thread that has a part of it.
template <bool kWarpARow>
__device__ __forceinline__ float RowSum(float value, float (&warp_sums)[kMaxWarps]) {
  value = WarpSum(value);
  if constexpr (kWarpARow) return value;
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0.0F;
  for (int w = 0; w < static_cast<int>(blockDim.x) / 32; ++w) total += warp_sums[w];
  return total;
}

// A row before its norm.
class SourceRow {
 public:
  // Reads what earlier kernels wrote.
  __device__ __forceinline__ SourceRow(const LayerNormArgs& args, int row)
      : values_(reinterpret_cast<float4*>(args.values + int64_t{row} * args.width)),
        scale_(args.start.scale) {
    const PositionedRows& start = args.start;
    if (start.table == nullptr) return;
    const int position = start.positions[int64_t{row} * start.position_stride] + start.offset;
    position_ = reinterpret_cast<const float4*>(
        start.table + int64_t{min(position, start.table_rows - 1)} * args.width);
  }

  __device__ __forceinline__ float4 Read(int vector) const {
    float4 x = LoadFresh(values_ + vector);
    if (position_ == nullptr) return x;
    const float4 position = position_[vector];
    x.x = fmaf(x.x, scale_, position.x);
    x.y = fmaf(x.y, scale_, position.y);
    x.z = fmaf(x.z, scale_, position.z);
    x.w = fmaf(x.w, scale_, position.w);
    return x;
  }

  __device__ __forceinline__ bool started() const { return position_ != nullptr; }
  __device__ __forceinline__ void Write(int vector, const float4& x) const { values_[vector] = x; }

 private:
  float4* values_;
  const float4* position_ = nullptr;
  float scale_;
};

// The norm's weights of a vector.
struct Weights {
  __device__ __forceinline__ void Read(const LayerNormArgs& args, int vector) {
    if (args.weight != nullptr) weight = reinterpret_cast<const float4*>(args.weight)[vector];
    if (args.bias != nullptr) bias = reinterpret_cast<const float4*>(args.bias)[vector];
  }
  __device__ __forceinline__ float4 Norm(const float4& x, float mean, float scale) const {
    return make_float4(
        (x.x - mean) * scale * weight.x + bias.x, (x.y - mean) * scale * weight.y + bias.y,
        (x.z - mean) * scale * weight.z + bias.z, (x.w - mean) * scale * weight.w + bias.w);
  }

  float4 weight = {1.0F, 1.0F, 1.0F, 1.0F};
  float4 bias = {0.0F, 0.0F, 0.0F, 0.0F};
};

template <typename T>
struct alignas(kWidth * sizeof(T)) OutputVector {
  T values[kWidth];
};

template <typename T>
__device__ __forceinline__ void StoreOutput(const LayerNormArgs& args, int row, int vector,
                                            const float4& y) {
  const int k = vector * kWidth;
  const int64_t place = args.row_capacity > 0 ? BlockedPlace<sizeof(T)>(row, k, args.row_capacity)
                                              : int64_t{row} * args.width + k;
  *reinterpret_cast<OutputVector<T>*>(static_cast<T*>(args.output) + place) = {
      {FromFloat<T>(y.x), FromFloat<T>(y.y), FromFloat<T>(y.z), FromFloat<T>(y.w)}};
}

// A block has a row, or each of its warps has one. Blocks take weights before the wait.
template <typename T, bool kWarpARow>
__global__ void __launch_bounds__(kMaxThreads)
    LayerNormKernel(const __grid_constant__ LayerNormArgs args) {
  constexpr int kKept = kernels::kKept<kWarpARow>;
  __shared__ float sums[kMaxWarps];
  __shared__ float deviations[kMaxWarps];
  const auto thread = static_cast<int>(threadIdx.x);
  const int row = kWarpARow ? blockIdx.x * kMaxWarps + thread / 32 : blockIdx.x;
  const int first = kWarpARow ? thread % 32 : thread;
  const int stride = kWarpARow ? 32 : static_cast<int>(blockDim.x);
  const int vectors = args.width / kWidth;
  const auto place = [first, stride](int i) { return first + i * stride; };

  AllowNextKernel();
  Weights weights[kWarpARow ? 1 : kKept];
  if constexpr (!kWarpARow) {
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      if (place(i) < vectors) weights[i].Read(args, place(i));
    }
  }

  WaitForEarlierKernels();
  if (kWarpARow && row >= args.rows) return;
  const SourceRow source(args, row);
  float4 kept[kKept];
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    if (place(i) < vectors) kept[i] = source.Read(place(i));
  }
  float mean = 0.0F;
  float scale = 1.0F;
  if (args.weight != nullptr) {
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      if (place(i) < vectors) sum += Sum(kept[i]);
    }
    for (int v = place(kKept); v < vectors; v += stride) sum += Sum(source.Read(v));
    mean = RowSum<kWarpARow>(sum, sums) / static_cast<float>(args.width);
    float deviation = 0.0F;
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      if (place(i) < vectors) deviation += Deviation(kept[i], mean);
    }
    for (int v = place(kKept); v < vectors; v += stride) {
      deviation += Deviation(source.Read(v), mean);
    }
    const float total = RowSum<kWarpARow>(deviation, deviations);
    scale = rsqrtf(total / static_cast<float>(args.width) + args.epsilon);
  }

  const auto finish = [&](int vector, const float4& x, const Weights& own) {
    const float4 y = own.Norm(x, mean, scale);
    if (args.write_back) {
      source.Write(vector, y);
    } else if (source.started()) {
      source.Write(vector, x);
    }
    if (args.output != nullptr) StoreOutput<T>(args, row, vector, y);
  };
  const auto finish_late = [&](int vector, const float4& x) {
    Weights own;
    own.Read(args, vector);
    finish(vector, x, own);
  };
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    if (place(i) >= vectors) continue;
    if constexpr (kWarpARow) {
      finish_late(place(i), kept[i]);
    } else {
      finish(place(i), kept[i], weights[i]);
    }
  }
  // A vector is read before it is written, by the same thread.
  for (int v = place(kKept); v < vectors; v += stride) finish_late(v, source.Read(v));
}

template <typename T>
cudaError_t LaunchTyped(const LayerNormArgs& args, const LaunchContext& context) {
  if (args.rows >= kManyRows && args.width <= kWarpWidth) {
    const LaunchShape shape{dim3((args.rows + kMaxWarps - 1) / kMaxWarps), dim3(kMaxThreads)};
    return Launch(LayerNormKernel<T, true>, shape, context, args);
  }
  const int threads = std::min((args.width / kWidth + 31) / 32 * 32, kMaxThreads);
  return Launch(LayerNormKernel<T, false>, {dim3(args.rows), dim3(threads)}, context, args);
}

}  // namespace

cudaError_t LaunchLayerNorm(ElementType type, const LayerNormArgs& args,
                            const LaunchContext& context) {
  if (args.width % kWidth != 0 || args.row_capacity % 8 != 0) return cudaErrorInvalidValue;
  return WithElementType(
      type, [&](auto element) { return LaunchTyped<decltype(element)>(args, context); });
}

}  // namespace seq2seq::kernels
