// What a projection's block does with its 16 outputs x rows once they are summed. Device code only.
#ifndef SEQ2SEQ_BACKEND_KERNELS_PROJECTION_EPILOGUE_CUH_
#define SEQ2SEQ_BACKEND_KERNELS_PROJECTION_EPILOGUE_CUH_

#include <cfloat>
#include <cmath>

#include "backend/kernels/device_math.cuh"
#include "backend/kernels/projection.h"

namespace seq2seq::kernels {

// Sums over the 8 groups of a warp that share a row.
__device__ __forceinline__ float SumOverGroups(float value) {
  value += __shfl_xor_sync(kFullWarp, value, 4);
  value += __shfl_xor_sync(kFullWarp, value, 8);
  return value + __shfl_xor_sync(kFullWarp, value, 16);
}

// NaN counts as -infinity and +infinity as the largest float: a broken row still gives a token.
__device__ __forceinline__ float CleanLogit(float logit) {
  return logit > -INFINITY ? fminf(logit, FLT_MAX) : -INFINITY;
}

// Merges two parts; of equal logits the lower index wins.
__device__ __forceinline__ LogitsPart MergeParts(const LogitsPart& a, const LogitsPart& b) {
  LogitsPart merged = a;
  if (b.best > a.best || (b.best == a.best && b.best_index < a.best_index)) {
    merged.best = b.best;
    merged.best_index = b.best_index;
  }
  merged.max = fmaxf(a.max, b.max);
  merged.sum_exp = 0.0F;
  if (a.sum_exp > 0.0F) merged.sum_exp += a.sum_exp * expf(a.max - merged.max);
  if (b.sum_exp > 0.0F) merged.sum_exp += b.sum_exp * expf(b.max - merged.max);
  return merged;
}

__device__ __forceinline__ LogitsPart ShufflePart(const LogitsPart& part, int mask) {
  LogitsPart other;
  other.best = __shfl_xor_sync(kFullWarp, part.best, mask);
  other.best_index = __shfl_xor_sync(kFullWarp, part.best_index, mask);
  other.max = __shfl_xor_sync(kFullWarp, part.max, mask);
  other.sum_exp = __shfl_xor_sync(kFullWarp, part.sum_exp, mask);
  return other;
}

inline __device__ LogitsPart EmptyPart() { return {-INFINITY, INT32_MAX, -INFINITY, 0.0F}; }

// A thread's part of the block's result: outputs tile * 16 + group and + 8 of one row. The 32
// threads of a warp hold all 16 outputs of 4 rows: `group` is lane / 4, and lanes that differ in
// group alone share the row.
//
// Three moments, so that no memory is waited for at the end: Prepare() before the block's input is
// ready reads what the step doesn't write, Fetch() after it reads what earlier kernels wrote, and
// Store() hands the result on. What lies beyond the last row or tile is read from valid places and
// not written.
template <typename T, ProjectionOutput kOutput>
class Epilogue {
 public:
  __device__ __forceinline__ Epilogue(const ProjectionArgs& args, int tile, int group, int row)
      : args_(args),
        tile_(tile),
        group_(group),
        row_(min(row, args.rows - 1)),
        exists_(row < args.rows && tile < TileCount(args.outputs)) {}

  __device__ __forceinline__ void Prepare() {
    if (args_.bias != nullptr) {
#pragma unroll
      for (int i = 0; i < 2; ++i) bias_[i] = args_.bias[Clamped(i)];
    }
    if constexpr (kOutput == ProjectionOutput::kResidual) {
#pragma unroll
      for (int i = 0; i < 2; ++i) norm_weight_[i] = args_.residual.norm_weight[Clamped(i)];
    }
    if constexpr (kOutput == ProjectionOutput::kLogits) flags_ = args_.row_infos[row_].flags;
    if constexpr (kOutput == ProjectionOutput::kQueryKeyValue) PrepareCache();
  }

  __device__ __forceinline__ void Fetch() {
    if constexpr (kOutput == ProjectionOutput::kResidual) {
      if (!exists_) return;
      scale_ = LoadFresh(args_.residual.scale + row_);
#pragma unroll
      for (int i = 0; i < 2; ++i) old_[i] = LoadFresh(Value(Clamped(i)));
    }
  }

  // What the two outputs are. low, high: their sums; factor: the row's.
  __device__ __forceinline__ float2 Values(float low, float high, float factor) const {
    return make_float2(low * factor + bias_[0], high * factor + bias_[1]);
  }

  __device__ __forceinline__ void Store(float low, float high, float factor) {
    const float2 both = Values(low, high, factor);
    const float values[2] = {both.x, both.y};
    if constexpr (kOutput == ProjectionOutput::kQueryKeyValue) {
      StoreQueryKeyValue(values);
    } else if constexpr (kOutput == ProjectionOutput::kResidual) {
      StoreResidual(values);
    } else if constexpr (kOutput == ProjectionOutput::kLogits) {
      StoreLogits(values);
    } else {
      StoreActivation(values);
    }
  }

 private:
  __device__ __forceinline__ int Output(int i) const {
    return tile_ * kTileOutputs + group_ + 8 * i;
  }
  __device__ __forceinline__ int Clamped(int i) const { return min(Output(i), args_.outputs - 1); }
  __device__ __forceinline__ bool Exists(int i) const {
    return exists_ && Output(i) < args_.outputs;
  }
  __device__ __forceinline__ float* Value(int output) const {
    const Residual& residual = args_.residual.residual;
    return residual.values + int64_t{row_} * residual.width + output;
  }
  // The place of input k of this row in a blocked array.
  __device__ __forceinline__ int64_t Blocked(int k) const {
    return (int64_t{k / kChunkInputs} * args_.row_capacity + row_) * kChunkInputs +
           k % kChunkInputs;
  }

  // Where the two outputs go: the query, or a place in the cache (none if the row is not active).
  __device__ __forceinline__ void PrepareCache() {
    const QueryKeyValueOutput& out = args_.query_key_value;
    if (args_.outputs == out.inner) return;
    const RowInfo info = args_.row_infos[row_];
    const int32_t block = out.self_blocks[int64_t{info.slot} * out.self_stride +
                                          info.position / out.layout.block_tokens];
    T* cache = static_cast<T*>(out.pool) + block * out.layout.BlockStride() + out.layer_offset +
               info.position % out.layout.block_tokens * out.layout.head_dim;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int part = Output(i) / out.inner;  // query, key, value
      const int index = Output(i) - part * out.inner;
      if (part == 0 || !Exists(i) || (info.flags & RowInfo::kActive) == 0) continue;
      cache_[i] = cache + (part == 2 ? out.layout.ValueOffset() : 0) +
                  index / out.layout.head_dim * out.layout.HeadStride() +
                  index % out.layout.head_dim;
    }
  }

  __device__ __forceinline__ void StoreQueryKeyValue(const float (&values)[2]) {
    const QueryKeyValueOutput& out = args_.query_key_value;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (Exists(i) && Output(i) < out.inner) {
        if (out.query == nullptr) continue;
        out.query[int64_t{row_} * out.inner + Output(i)] = values[i];
      } else if (cache_[i] != nullptr) {
        *cache_[i] = FromFloat<T>(values[i]);
      }
    }
  }

  __device__ __forceinline__ void StoreResidual(const float (&values)[2]) {
    const Residual& residual = args_.residual.residual;
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (!Exists(i)) continue;
      const float x = old_[i] + values[i];
      *Value(Output(i)) = x;
      sum += x * x;
      static_cast<T*>(residual.scaled)[Blocked(Output(i))] =
          FromFloat<T>(x * norm_weight_[i] * scale_);
    }
    sum = SumOverGroups(sum);
    if (group_ == 0 && exists_) {
      residual.sum_squares[int64_t{row_} * residual.sum_stride + tile_] = sum;
    }
  }

  __device__ __forceinline__ void StoreActivation(const float (&values)[2]) {
    T* results = static_cast<T*>(args_.activation.values);
    const ActivationKind kind = args_.activation.kind;
    if constexpr (kOutput == ProjectionOutput::kGatedActivation) {
      const int output = tile_ * 8 + group_;
      if (!exists_ || output >= args_.outputs / 2) return;
      results[Blocked(output)] = FromFloat<T>(Activate(kind, values[0]) * values[1]);
    } else {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (Exists(i)) results[Blocked(Output(i))] = FromFloat<T>(Activate(kind, values[i]));
      }
    }
  }

  __device__ __forceinline__ void StoreLogits(const float (&values)[2]) {
    const LogitsOutput& out = args_.logits;
    LogitsPart part = EmptyPart();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (!Exists(i)) continue;
      const int output = Output(i);
      const float logit = CleanLogit(values[i]);
      bool banned = false;
      if ((flags_ & RowInfo::kBanEos) != 0) {
        for (int e = 0; e < out.eos_count; ++e) banned |= out.eos_tokens[e] == output;
      }
      part = MergeParts(part, {banned ? -INFINITY : logit, banned ? INT32_MAX : output, logit,
                               logit > -INFINITY ? 1.0F : 0.0F});
      if (out.write_all || (flags_ & RowInfo::kSample) != 0) {
        out.logits[int64_t{row_} * args_.outputs + output] = logit;
      }
    }
#pragma unroll
    for (int mask = 4; mask < 32; mask *= 2) part = MergeParts(part, ShufflePart(part, mask));
    if (group_ == 0 && exists_) {
      out.parts[int64_t{row_} * TileCount(args_.outputs) + tile_] = part;
    }
  }

  const ProjectionArgs& args_;
  int tile_;
  int group_;
  int row_;
  bool exists_;
  int32_t flags_ = 0;
  T* cache_[2] = {};
  float bias_[2] = {};
  float norm_weight_[2] = {};
  float old_[2] = {};
  float scale_ = 0.0F;
};

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_PROJECTION_EPILOGUE_CUH_
