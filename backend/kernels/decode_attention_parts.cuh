// What the decode attention kernels have in common. Device code only.
#ifndef SEQ2SEQ_BACKEND_KERNELS_DECODE_ATTENTION_PARTS_CUH_
#define SEQ2SEQ_BACKEND_KERNELS_DECODE_ATTENTION_PARTS_CUH_

#include <cmath>

#include "backend/kernels/decode_attention.h"
#include "backend/kernels/device_math.cuh"

namespace seq2seq::kernels {

// Below every score, yet finite, so that differences stay numbers.
constexpr float kLowestScore = -1e30F;

// A softmax-weighted sum over some of the keys: maximum, sum of exponentials, and (per thread) a
// vector of the weighted values' dimensions.
template <int kValues>
struct Partial {
  float max = kLowestScore;
  float sum = 0.0F;
  float values[kValues] = {};

  __device__ __forceinline__ void Merge(float other_max, float other_sum,
                                        const float (&other)[kValues]) {
    const float merged = fmaxf(max, other_max);
    const float own_factor = FastExp(max - merged);
    const float other_factor = FastExp(other_max - merged);
    sum = sum * own_factor + other_sum * other_factor;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      values[i] = values[i] * own_factor + other[i] * other_factor;
    }
    max = merged;
  }
};

// A query's product with a key whose dimensions lie in kLanes neighbouring threads.
template <int kLanes, int kValues>
__device__ __forceinline__ float DotOverLanes(const float (&query)[kValues],
                                              const float (&key)[kValues]) {
  float score = 0.0F;
#pragma unroll
  for (int i = 0; i < kValues; ++i) score += query[i] * key[i];
#pragma unroll
  for (int mask = kLanes / 2; mask > 0; mask /= 2) score += __shfl_xor_sync(kFullWarp, score, mask);
  return score;
}

// Dimensions of a row's query, which an earlier kernel wrote.
template <int kValues>
__device__ __forceinline__ void LoadQuery(const float* source, float (&query)[kValues]) {
#pragma unroll
  for (int i = 0; i < kValues; i += 4) {
    const float4 four = LoadFresh(reinterpret_cast<const float4*>(source + i));
    query[i] = four.x;
    query[i + 1] = four.y;
    query[i + 2] = four.z;
    query[i + 3] = four.w;
  }
}

// Keys and values of a row's head, read by kThreads threads. kLanes threads share a key: each holds
// kVector<T> of its dimensions, of kUnroll keys at a time. kExact: a head has no fewer dimensions
// than they hold.
template <typename T, int kLanes, int kThreads, bool kExact>
class KeyReader {
 public:
  static constexpr int kUnroll = 4;
  static constexpr int kGroups = kThreads / kLanes;

  __device__ KeyReader(const DecodeAttentionArgs& args, const RowInfo& info, int head)
      : blocks_(args.blocks + int64_t{info.slot} * args.block_stride),
        bias_row_(args.bias == nullptr ? nullptr : args.bias + head * (args.max_distance + 1)),
        max_distance_(args.max_distance),
        position_(info.position),
        head_dim_(kExact ? kLanes * kVector<T> : args.layout.head_dim),
        value_offset_(int64_t{kBlockTokens} * head_dim_ * args.layout.heads),
        block_stride_(2 * args.layout.layers * value_offset_),
        dim_(static_cast<int>(threadIdx.x % kLanes) * kVector<T>),
        base_(static_cast<const T*>(args.pool) + args.layer_offset +
              int64_t{head} * kBlockTokens * head_dim_ + dim_) {}

  __device__ bool has_dims() const { return kExact || dim_ < head_dim_; }
  __device__ int dim() const { return dim_; }

  // Keys first, first + kGroups, ... of this thread's group; zeros from `end` on. Their blocks are
  // looked up all at once, as memory is waited for there.
  __device__ __forceinline__ void Load(int first, int end) {
    int32_t blocks[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int token = first + u * kGroups;
      blocks[u] = token < end && has_dims() ? blocks_[Index(token)] : 0;
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int token = first + u * kGroups;
      keys_[u] = uint4{};
      values_[u] = uint4{};
      if (token < end && has_dims()) LoadFrom(PlaceOf(blocks[u], token), &keys_[u], &values_[u]);
    }
  }

  // Where the thread's dimensions of `token` are.
  __device__ __forceinline__ const T* Find(int token) const {
    return PlaceOf(blocks_[Index(token)], token);
  }

  // Reads `token`, which is at `place`, again if it is one of those that Load() read.
  __device__ __forceinline__ void Reload(int first, int token, const T* place) {
    const int distance = token - first;
    if (distance < 0 || distance % kGroups != 0 || distance >= kUnroll * kGroups || !has_dims()) {
      return;
    }
    uint4 key;
    uint4 value;
    LoadFrom(place, &key, &value);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (distance != u * kGroups) continue;
      keys_[u] = key;
      values_[u] = value;
    }
  }

  // What is added to the scores of the keys first, first + kGroups, ...
  __device__ __forceinline__ void LoadBias(int first, float (&bias)[kUnroll]) const {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int distance = position_ - first - u * kGroups;
      bias[u] = bias_row_ == nullptr ? 0.0F : bias_row_[max(0, min(distance, max_distance_))];
    }
  }

  // Adds what Load brought. All groups of a warp keep the same maximum, see SumGroups().
  __device__ __forceinline__ void Add(int first, int end, const float (&query)[kVector<T>],
                                      const float (&bias)[kUnroll],
                                      Partial<kVector<T>>* partial) const {
    float scores[kUnroll];
    float max = partial->max;
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      float key[kVector<T>];
      Unpack<T>(keys_[u], key);
      const float score = DotOverLanes<kLanes>(query, key) + bias[u];
      scores[u] = first + u * kGroups < end ? score : -INFINITY;
      max = fmaxf(max, scores[u]);
    }
#pragma unroll
    for (int mask = kLanes; mask < 32; mask *= 2) {
      max = fmaxf(max, __shfl_xor_sync(kFullWarp, max, mask));
    }
    const float factor = FastExp(partial->max - max);
    partial->max = max;
    partial->sum *= factor;
#pragma unroll
    for (int i = 0; i < kVector<T>; ++i) partial->values[i] *= factor;
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const float weight = FastExp(scores[u] - max);
      partial->sum += weight;
      float value[kVector<T>];
      Unpack<T>(values_[u], value);
#pragma unroll
      for (int i = 0; i < kVector<T>; ++i) partial->values[i] += weight * value[i];
    }
  }

 private:
  __device__ __forceinline__ static uint32_t Index(int token) {
    return static_cast<uint32_t>(token) / kBlockTokens;
  }
  __device__ __forceinline__ const T* PlaceOf(int32_t block, int token) const {
    const auto offset = static_cast<int32_t>(static_cast<uint32_t>(token) % kBlockTokens);
    return base_ + block * block_stride_ + offset * head_dim_;
  }
  __device__ __forceinline__ void LoadFrom(const T* place, uint4* key, uint4* value) const {
    *key = LoadFresh(reinterpret_cast<const uint4*>(place));
    *value = LoadFresh(reinterpret_cast<const uint4*>(place + value_offset_));
  }

  const int32_t* blocks_;
  const float* bias_row_;
  int max_distance_;
  int position_;
  int head_dim_;
  int64_t value_offset_;
  int64_t block_stride_;
  int dim_;
  const T* base_;
  uint4 keys_[kUnroll];
  uint4 values_[kUnroll];
};

// Adds the sums of a warp's groups of kLanes threads that have the same maximum.
template <int kLanes, int kValues>
__device__ __forceinline__ void SumGroups(Partial<kValues>* partial) {
#pragma unroll
  for (int mask = kLanes; mask < 32; mask *= 2) {
    partial->sum += __shfl_xor_sync(kFullWarp, partial->sum, mask);
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      partial->values[i] += __shfl_xor_sync(kFullWarp, partial->values[i], mask);
    }
  }
}

// Some partial sums, from one writer each: warps or blocks.
template <int kCount, int kDims>
struct alignas(16) Partials {
  float max[kCount];
  float sum[kCount];
  float values[kCount][kDims];

  // One dimension of all of them together. Each thread finds the factors itself, without a chain
  // of shuffles.
  __device__ __forceinline__ Partial<1> Merged(int dim) const {
    Partial<1> merged;
#pragma unroll
    for (int i = 0; i < kCount; ++i) merged.max = fmaxf(merged.max, max[i]);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float factor = FastExp(max[i] - merged.max);
      merged.sum += factor * sum[i];
      merged.values[0] += factor * values[i][dim];
    }
    return merged;
  }
};

// Merges the sums of a warp's groups of kLanes threads.
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

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_DECODE_ATTENTION_PARTS_CUH_
