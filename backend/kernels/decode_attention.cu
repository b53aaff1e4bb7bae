#include "backend/kernels/decode_attention.h"

#include <cooperative_groups.h>

#include "backend/kernels/device_math.cuh"

namespace seq2seq::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kUnroll = 4;
constexpr int kMaxHeadDim = 256;
constexpr int kMaxSplits = 8;
// Below every score, yet finite, so that differences stay numbers.
constexpr float kLowest = -1e30F;

// A softmax-weighted sum over some of the keys: maximum, sum of exponentials, and (per thread) a
// vector of the weighted values' dimensions.
template <int kValues>
struct Partial {
  float max = kLowest;
  float sum = 0.0F;
  float values[kValues] = {};

  __device__ __forceinline__ void Merge(float other_max, float other_sum,
                                        const float (&other)[kValues]) {
    const float merged = fmaxf(max, other_max);
    const float own_factor = __expf(max - merged);
    const float other_factor = __expf(other_max - merged);
    sum = sum * own_factor + other_sum * other_factor;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      values[i] = values[i] * own_factor + other[i] * other_factor;
    }
    max = merged;
  }
};

struct BlockPartial {
  float max[kWarps];
  float sum[kWarps];
  float values[kWarps][kMaxHeadDim];
  float block_max;
  float block_sum;
  float block_values[kMaxHeadDim];
};

// kLanes threads share a key: each holds kVector<T> of its dimensions.
template <typename T, int kLanes>
class Reader {
 public:
  static constexpr int kGroups = kThreads / kLanes;

  __device__ Reader(const DecodeAttentionArgs& args, const RowInfo& info, int head)
      : blocks_(args.blocks + int64_t{info.slot} * args.block_stride),
        layout_(args.layout),
        dim_(static_cast<int>(threadIdx.x) % kLanes * kVector<T>),
        base_(static_cast<const T*>(args.pool) + args.layer_offset +
              head * args.layout.HeadStride() + dim_) {}

  __device__ bool has_dims() const { return dim_ < layout_.head_dim; }
  __device__ int dim() const { return dim_; }

  // Keys first, first + kGroups, ... of this thread's group; zeros from `end` on.
  __device__ __forceinline__ void Load(int first, int end) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int token = first + u * kGroups;
      keys_[u] = uint4{};
      values_[u] = uint4{};
      if (token < end && has_dims()) LoadOne(u, token);
    }
  }

  // Reads `token` again if it is one of those.
  __device__ __forceinline__ void Reload(int first, int token) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (token == first + u * kGroups && has_dims()) LoadOne(u, token);
    }
  }

  // Adds what Load brought. bias: of the row's head, or null.
  __device__ __forceinline__ void Add(const DecodeAttentionArgs& args, int first, int end,
                                      int position, const float (&query)[kVector<T>],
                                      const float* bias, Partial<kVector<T>>* partial) const {
    float scores[kUnroll];
    float max = partial->max;
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      float key[kVector<T>];
      Unpack<T>(keys_[u], key);
      float score = 0.0F;
#pragma unroll
      for (int i = 0; i < kVector<T>; ++i) score += query[i] * key[i];
#pragma unroll
      for (int mask = kLanes / 2; mask > 0; mask /= 2) {
        score += __shfl_xor_sync(kFullWarp, score, mask);
      }
      const int token = first + u * kGroups;
      if (bias != nullptr && token < end) score += bias[min(position - token, args.max_distance)];
      scores[u] = token < end ? score : -INFINITY;
      max = fmaxf(max, scores[u]);
    }
    const float factor = __expf(partial->max - max);
    partial->max = max;
    partial->sum *= factor;
#pragma unroll
    for (int i = 0; i < kVector<T>; ++i) partial->values[i] *= factor;
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const float weight = __expf(scores[u] - max);
      partial->sum += weight;
      float value[kVector<T>];
      Unpack<T>(values_[u], value);
#pragma unroll
      for (int i = 0; i < kVector<T>; ++i) partial->values[i] += weight * value[i];
    }
  }

 private:
  __device__ __forceinline__ void LoadOne(int u, int token) {
    const int32_t block = blocks_[token / layout_.block_tokens];
    const T* key =
        base_ + block * layout_.BlockStride() + token % layout_.block_tokens * layout_.head_dim;
    keys_[u] = __ldcg(reinterpret_cast<const uint4*>(key));
    values_[u] = __ldcg(reinterpret_cast<const uint4*>(key + layout_.ValueOffset()));
  }

  const int32_t* blocks_;
  KvLayout layout_;
  int dim_;
  const T* base_;
  uint4 keys_[kUnroll];
  uint4 values_[kUnroll];
};

template <int kLanes, int kValues>
__device__ void MergeGroups(Partial<kValues>* partial) {
#pragma unroll
  for (int mask = kLanes; mask < 32; mask *= 2) {
    const float max = __shfl_xor_sync(kFullWarp, partial->max, mask);
    const float sum = __shfl_xor_sync(kFullWarp, partial->sum, mask);
    float values[kValues];
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      values[i] = __shfl_xor_sync(kFullWarp, partial->values[i], mask);
    }
    partial->Merge(max, sum, values);
  }
}

// One dimension of the block's result, from its warps' partial sums.
__device__ float MergeWarps(const BlockPartial& block, int dim, float* max, float* sum) {
  Partial<1> merged;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const float value[1] = {block.values[w][dim]};
    merged.Merge(block.max[w], block.sum[w], value);
  }
  *max = merged.max;
  *sum = merged.sum;
  return merged.values[0];
}

template <typename T>
__device__ void StoreOutput(const DecodeAttentionArgs& args, int dim, float value, float sum) {
  const int k = blockIdx.x * args.layout.head_dim + dim;
  static_cast<T*>(args.output)[(int64_t{k / 32} * args.row_capacity + blockIdx.y) * 32 + k % 32] =
      FromFloat<T>(sum > 0.0F ? value / sum : 0.0F);
}

// The blocks of a cluster each hold a part of the keys; the first one merges.
template <typename T>
__device__ void FinishSplit(const DecodeAttentionArgs& args, BlockPartial* block) {
  namespace cg = cooperative_groups;
  const cg::cluster_group cluster = cg::this_cluster();
  for (int dim = threadIdx.x; dim < args.layout.head_dim; dim += kThreads) {
    float max = 0.0F;
    float sum = 0.0F;
    block->block_values[dim] = MergeWarps(*block, dim, &max, &sum);
    if (dim == 0) {
      block->block_max = max;
      block->block_sum = sum;
    }
  }
  cluster.sync();
  if (cluster.block_rank() == 0) {
    for (int dim = threadIdx.x; dim < args.layout.head_dim; dim += kThreads) {
      Partial<1> merged;
      for (int rank = 0; rank < args.splits; ++rank) {
        const BlockPartial* other = cluster.map_shared_rank(block, rank);
        const float value[1] = {other->block_values[dim]};
        merged.Merge(other->block_max, other->block_sum, value);
      }
      StoreOutput<T>(args, dim, merged.values[0], merged.sum);
    }
  }
  cluster.sync();  // nobody may leave while the first block reads its shared memory
}

template <typename T, int kLanes>
__global__ void __launch_bounds__(kThreads)
    DecodeAttentionKernel(const __grid_constant__ DecodeAttentionArgs args) {
  constexpr int kValues = kVector<T>;
  constexpr int kStride = Reader<T, kLanes>::kGroups * kUnroll;
  __shared__ BlockPartial block;
  const int head = blockIdx.x;
  const int row = blockIdx.y;
  AllowNextKernel();
  // Row infos are complete before any kernel but the first of a pass starts.
  const RowInfo info = args.row_infos[row];
  int length = args.cross ? info.source_length : info.position + 1;
  if ((info.flags & RowInfo::kActive) == 0) length = 0;
  const int share = (length + args.splits * kStride - 1) / (args.splits * kStride) * kStride;
  const int begin = static_cast<int>(blockIdx.z) * share;
  const int end = min(length, begin + share);
  const int group = threadIdx.x / kLanes;
  Reader<T, kLanes> reader(args, info, head);
  // Of the keys, this pass writes those of the row's own position alone.
  reader.Load(begin + group, args.cross ? end : min(end, info.position));
  TouchParameters(args);
  WaitForEarlierKernels();
  if (!args.cross && info.position < end) reader.Reload(begin + group, info.position);

  float query[kValues] = {};
  if (reader.has_dims()) {
    const float* source = args.query +
                          (int64_t{row} * args.layout.heads + head) * args.layout.head_dim +
                          reader.dim();
#pragma unroll
    for (int i = 0; i < kValues; i += 4) {
      const float4 four = __ldcg(reinterpret_cast<const float4*>(source + i));
      query[i] = four.x * args.scale;
      query[i + 1] = four.y * args.scale;
      query[i + 2] = four.z * args.scale;
      query[i + 3] = four.w * args.scale;
    }
  }
  const float* bias = args.bias == nullptr ? nullptr : args.bias + head * (args.max_distance + 1);
  Partial<kValues> partial;
  for (int first = begin; first < end; first += kStride) {
    if (first != begin) reader.Load(first + group, end);
    reader.Add(args, first + group, end, info.position, query, bias, &partial);
  }
  MergeGroups<kLanes>(&partial);
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
  if (args.splits > 1) return FinishSplit<T>(args, &block);
  for (int dim = threadIdx.x; dim < args.layout.head_dim; dim += kThreads) {
    float max = 0.0F;
    float sum = 0.0F;
    const float value = MergeWarps(block, dim, &max, &sum);
    StoreOutput<T>(args, dim, value, sum);
  }
}

template <typename T>
cudaError_t LaunchTyped(const DecodeAttentionArgs& args, const LaunchContext& context) {
  LaunchShape shape;
  shape.grid = dim3(args.layout.heads, args.rows, args.splits);
  shape.block = dim3(kThreads);
  shape.cluster_z = args.splits;
  const int lanes = (args.layout.head_dim + kVector<T> - 1) / kVector<T>;
  if (lanes <= 4) return Launch(DecodeAttentionKernel<T, 4>, shape, context, args);
  if (lanes <= 8) return Launch(DecodeAttentionKernel<T, 8>, shape, context, args);
  if (lanes <= 16) return Launch(DecodeAttentionKernel<T, 16>, shape, context, args);
  return Launch(DecodeAttentionKernel<T, 32>, shape, context, args);
}

}  // namespace

cudaError_t LaunchDecodeAttention(ElementType type, const DecodeAttentionArgs& args,
                                  const LaunchContext& context) {
  const int head_dim = args.layout.head_dim;
  const int limit = type == ElementType::kFloat32 ? 128 : kMaxHeadDim;
  if (head_dim * ElementBytes(type) % 16 != 0 || head_dim > limit || args.splits < 1 ||
      args.splits > kMaxSplits) {
    return cudaErrorInvalidValue;
  }
  switch (type) {
    case ElementType::kFloat32:
      return LaunchTyped<float>(args, context);
    case ElementType::kFloat16:
      return LaunchTyped<__half>(args, context);
    case ElementType::kBfloat16:
      return LaunchTyped<__nv_bfloat16>(args, context);
  }
  return cudaErrorInvalidValue;
}

}  // namespace seq2seq::kernels
