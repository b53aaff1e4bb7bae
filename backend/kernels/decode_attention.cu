#include "backend/kernels/decode_attention.h"

#include "backend/kernels/cluster.cuh"
#include "backend/kernels/decode_attention_kernels.h"
#include "backend/kernels/decode_attention_parts.cuh"
#include "backend/kernels/device_math.cuh"
#include "backend/kernels/operand_layout.h"
#include "backend/kernels/with_element_type.cuh"

namespace seq2seq::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kMaxHeadDim = 256;
constexpr int kMaxSplits = 8;

using BlockPartial = Partials<kWarps, kMaxHeadDim>;

// What the blocks of a cluster, each with a part of the keys, send to the first.
struct ClusterPartials {
  Arrivals arrivals;
  float max[kMaxSplits];
  float sum[kMaxSplits];
  float values[kMaxSplits][kMaxHeadDim];
};

template <typename T>
__device__ void StoreOutput(const DecodeAttentionArgs& args, int dim, float value, float sum) {
  const int k = blockIdx.x * args.layout.head_dim + dim;
  const int row = static_cast<int>(blockIdx.y);
  static_cast<T*>(args.output)[BlockedPlace<sizeof(T)>(row, k, args.row_capacity)] =
      FromFloat<T>(sum > 0.0F ? DivideFor<T>(value, sum) : 0.0F);
}

// The first block of the cluster merges.
template <typename T>
__device__ void FinishSplit(const DecodeAttentionArgs& args, const BlockPartial& block,
                            const ClusterPartials& partials) {
  const int rank = blockIdx.z;
  const RemoteStore first_block(&partials.arrivals, 0);
  for (int dim = threadIdx.x; dim < args.layout.head_dim; dim += kThreads) {
    const Partial<1> merged = block.Merged(dim);
    first_block.Store(&partials.values[rank][dim], merged.values[0]);
    if (dim > 0) continue;
    first_block.Store(&partials.max[rank], merged.max);
    first_block.Store(&partials.sum[rank], merged.sum);
  }
  if (rank > 0) return;
  partials.arrivals.Wait();
  for (int dim = threadIdx.x; dim < args.layout.head_dim; dim += kThreads) {
    Partial<1> merged;
    for (int other = 0; other < args.splits; ++other) {
      const float value[1] = {partials.values[other][dim]};
      merged.Merge(partials.max[other], partials.sum[other], value);
    }
    StoreOutput<T>(args, dim, merged.values[0], merged.sum);
  }
}

// Keys for each of `splits` blocks, a power of two: whole strides.
template <int kStride>
__device__ __forceinline__ int Share(int length, int splits) {
  const uint32_t strides = (static_cast<uint32_t>(length) + kStride - 1) / kStride;
  return static_cast<int>((strides + splits - 1) >> (31 - __clz(splits))) * kStride;
}

template <typename T, int kLanes, bool kExact>
__global__ void __launch_bounds__(kThreads)
    DecodeAttentionKernel(const __grid_constant__ DecodeAttentionArgs args) {
  constexpr int kValues = kVector<T>;
  using Reader = KeyReader<T, kLanes, kThreads, kExact>;
  constexpr int kStride = Reader::kGroups * Reader::kUnroll;
  __shared__ BlockPartial block;
  __shared__ ClusterPartials partials;
  const int head = blockIdx.x;
  const int row = blockIdx.y;
  AllowNextKernel();
  if (args.splits > 1) {
    if (threadIdx.x == 0) {
      partials.arrivals.Expect((args.layout.head_dim + 2) * sizeof(float) * args.splits);
    }
    MeetCluster();
  }
  // Row infos are complete before the first kernel of a pass starts.
  const RowInfo info = args.row_infos[row];
  int length = args.cross ? info.source_length : info.position + 1;
  if ((info.flags & RowInfo::kActive) == 0) length = 0;
  const int share = Share<kStride>(length, args.splits);
  const int begin = static_cast<int>(blockIdx.z) * share;
  const int end = min(length, begin + share);
  const int group = threadIdx.x / kLanes;
  Reader reader(args, info, head);
  // Of the keys, this pass writes those of the row's own position alone.
  reader.Load(begin + group, args.cross ? end : min(end, info.position));
  const bool has_own = !args.cross && info.position >= begin && info.position < end;
  const T* own = has_own ? reader.Find(info.position) : nullptr;
  TouchParameters(args);
  if (args.splits > 1) AwaitCluster();
  WaitForEarlierKernels();
  float query[kValues] = {};
  if (reader.has_dims()) {
    const int64_t begin_of_head = (int64_t{row} * args.layout.heads + head) * args.layout.head_dim;
    LoadQuery(args.query + begin_of_head + reader.dim(), query);
  }
  if (has_own) reader.Reload(begin + group, info.position, own);
#pragma unroll
  for (int i = 0; i < kValues; ++i) query[i] *= args.scale;
  Partial<kValues> partial;
  for (int first = begin; first < end; first += kStride) {
    if (first != begin) reader.Load(first + group, end);
    float bias[Reader::kUnroll];
    reader.LoadBias(first + group, bias);
    reader.Add(first + group, end, query, bias, &partial);
  }
  SumGroups<kLanes>(&partial);
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  if (lane < kLanes && reader.has_dims()) {
#pragma unroll
    for (int i = 0; i < kValues; ++i) block.values[warp][reader.dim() + i] = partial.values[i];
    if (lane == 0) {
      block.max[warp] = partial.max;
      block.sum[warp] = partial.sum;
    }
  }
  __syncthreads();
  if (args.splits > 1) return FinishSplit<T>(args, block, partials);
  for (int dim = threadIdx.x; dim < args.layout.head_dim; dim += kThreads) {
    const Partial<1> merged = block.Merged(dim);
    StoreOutput<T>(args, dim, merged.values[0], merged.sum);
  }
}

template <typename T>
cudaError_t LaunchTyped(const DecodeAttentionArgs& args, const LaunchContext& context) {
  LaunchShape shape;
  shape.grid = dim3(args.layout.heads, args.rows, args.splits);
  shape.block = dim3(kThreads);
  shape.cluster_z = args.splits;
  const int lanes = (args.layout.head_dim + kVector<T> - 1) / kVector<T>;
  if (args.layout.head_dim == 8 * kVector<T>) {  // T5's 64 in half formats
    return Launch(DecodeAttentionKernel<T, 8, true>, shape, context, args);
  }
  if (lanes <= 4) return Launch(DecodeAttentionKernel<T, 4, false>, shape, context, args);
  if (lanes <= 8) return Launch(DecodeAttentionKernel<T, 8, false>, shape, context, args);
  if (lanes <= 16) return Launch(DecodeAttentionKernel<T, 16, false>, shape, context, args);
  return Launch(DecodeAttentionKernel<T, 32, false>, shape, context, args);
}

}  // namespace

cudaError_t LaunchDecodeAttention(ElementType type, const DecodeAttentionArgs& args,
                                  const LaunchContext& context) {
  const int head_dim = args.layout.head_dim;
  const int limit = type == ElementType::kFloat32 ? 128 : kMaxHeadDim;
  if (head_dim * ElementBytes(type) % 16 != 0 || head_dim > limit || args.splits < 1 ||
      args.splits > kMaxSplits || (args.splits & (args.splits - 1)) != 0) {
    return cudaErrorInvalidValue;
  }
  if (args.rows * args.layout.heads >= kManyHeads && CanStreamDecodeAttention(type, args)) {
    return LaunchStreamedDecodeAttention(type, args, context);
  }
  return WithElementType(
      type, [&](auto element) { return LaunchTyped<decltype(element)>(args, context); });
}

}  // namespace seq2seq::kernels
