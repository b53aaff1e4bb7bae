// What a projection's block does with its 16 outputs x rows once they are summed. Device code only.
#ifndef SEQ2SEQ_BACKEND_KERNELS_PROJECTION_EPILOGUE_CUH_
#define SEQ2SEQ_BACKEND_KERNELS_PROJECTION_EPILOGUE_CUH_

#include <cfloat>
#include <cmath>

#include "backend/kernels/device_math.cuh"
#include "backend/kernels/operand_layout.h"
#include "backend/kernels/projection.h"

namespace seq2seq::kernels {

// Sums over the 8 groups of a warp that share a row.
__device__ __forceinline__ float SumOverGroups(float value) {
  value += __shfl_xor_sync(kFullWarp, value, 4);
  value += __shfl_xor_sync(kFullWarp, value, 8);
  return value + __shfl_xor_sync(kFullWarp, value, 16);
}

__device__ __forceinline__ float MaxOverGroups(float value) {
  value = fmaxf(value, __shfl_xor_sync(kFullWarp, value, 4));
  value = fmaxf(value, __shfl_xor_sync(kFullWarp, value, 8));
  return fmaxf(value, __shfl_xor_sync(kFullWarp, value, 16));
}
__device__ __forceinline__ int MinOverGroups(int value) {
  value = min(value, __shfl_xor_sync(kFullWarp, value, 4));
  value = min(value, __shfl_xor_sync(kFullWarp, value, 8));
  return min(value, __shfl_xor_sync(kFullWarp, value, 16));
}

// NaN counts as -infinity and +infinity as the largest float: a broken row still gives a token.
__device__ __forceinline__ float CleanLogit(float logit) {
  return logit > -INFINITY ? fminf(logit, FLT_MAX) : -INFINITY;
}

// The activation, as exact as the format of its result. Half formats: 1 + tanh(u) is
// 2 / (1 + exp(-2 u)), and the fast exponential's error is far below their rounding.
template <typename T>
__device__ __forceinline__ float ActivateTo(ActivationKind kind, float x) {
  if constexpr (sizeof(T) == 2) {
    if (kind == ActivationKind::kGeluTanh) {
      const float u = 0.79788456080286536F * (x + 0.044715F * x * x * x);
      return __fdividef(x, 1.0F + __expf(-2.0F * u));
    }
    if (kind == ActivationKind::kSilu) return __fdividef(x, 1.0F + __expf(-x));
  }
  return Activate(kind, x);
}

// What the results of a row need to know of it. Like everything of an epilogue it is read in two
// moments, so that no memory is waited for at the end: Prepare() before the block's input is ready
// reads what no earlier kernel of the step writes, Fetch() after it reads what earlier kernels
// wrote.
template <ProjectionOutput kOutput>
struct EpilogueRow {
  static constexpr int64_t kNoCache = -1;

  __device__ __forceinline__ void Prepare(const ProjectionArgs& args, int row) {
    cache = kNoCache;
    if constexpr (kOutput == ProjectionOutput::kLogits) flags = args.row_infos[row].flags;
    if constexpr (kOutput == ProjectionOutput::kQueryKeyValue) {
      const QueryKeyValueOutput& out = args.query_key_value;
      if (args.outputs == out.inner) return;
      const RowInfo info = args.row_infos[row];
      if ((info.flags & RowInfo::kActive) == 0) return;
      const auto position = static_cast<uint32_t>(info.position);
      const int32_t block =
          out.self_blocks[int64_t{info.slot} * out.self_stride + position / kBlockTokens];
      cache = block * out.layout.BlockStride() + out.layer_offset +
              static_cast<int32_t>(position % kBlockTokens) * out.layout.head_dim;
    }
  }

  __device__ __forceinline__ void Fetch(const ProjectionArgs& args, int row) {
    if constexpr (kOutput == ProjectionOutput::kResidual) {
      scale = LoadFresh(args.residual.scale + row);
    }
  }

  int64_t cache;  // elements of the pool before the row's place in the first head
  int32_t flags;
  float scale;
};

// Outputs tile * 16 + group and + 8, for any number of rows. The 32 threads of a warp hold all 16
// outputs of 4 rows: `group` is lane / 4, and lanes that differ in group alone share the row. What
// lies beyond the last row or tile is read from valid places and not written.
template <typename T, ProjectionOutput kOutput>
class EpilogueOutputs {
 public:
  using Row = EpilogueRow<kOutput>;

  __device__ __forceinline__ EpilogueOutputs(const ProjectionArgs& args, int tile, int group)
      : args_(args), tile_(tile), group_(group), exists_(tile < TileCount(args.outputs)) {}

  __device__ __forceinline__ void Prepare() {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (args_.bias != nullptr) bias_[i] = args_.bias[Clamped(i)];
      if constexpr (kOutput == ProjectionOutput::kResidual) {
        norm_weight_[i] = args_.residual.norm_weight[Clamped(i)];
      }
      if constexpr (kOutput == ProjectionOutput::kQueryKeyValue) PrepareCache(i);
    }
  }

  // Where a row's outputs go; what the kind of output has none of is not set.
  struct Places {
    float* values;       // of the first output, the second's are 8 on: query, residual or logits
    T* results[2];       // numbers of the model's format; null: none
    float* sum_squares;  // the tile's
    LogitsPart* part;    // the tile's

    __device__ __forceinline__ void ComputeNow() {
      constexpr bool kGated = kOutput == ProjectionOutput::kGatedActivation;
      if constexpr (kOutput == ProjectionOutput::kLogits) {
        kernels::ComputeNow(values);
        kernels::ComputeNow(part);
      } else {
        kernels::ComputeNow(results[0]);
        if constexpr (!kGated) kernels::ComputeNow(results[1]);
      }
      if constexpr (kOutput == ProjectionOutput::kResidual) {
        kernels::ComputeNow(values);
        kernels::ComputeNow(sum_squares);
      }
    }
  };

  __device__ __forceinline__ Places PlacesOf(int row, const Row& state) const {
    Places places;
    if constexpr (kOutput == ProjectionOutput::kQueryKeyValue) {
      const QueryKeyValueOutput& out = args_.query_key_value;
      places.values =
          out.query == nullptr ? nullptr : out.query + int64_t{row} * out.inner + Output(0);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        places.results[i] = cache_[i] == Row::kNoCache || state.cache == Row::kNoCache
                                ? nullptr
                                : static_cast<T*>(out.pool) + state.cache + cache_[i];
      }
    } else if constexpr (kOutput == ProjectionOutput::kResidual) {
      const Residual& residual = args_.residual.residual;
      places.values = residual.values + int64_t{row} * residual.width + Output(0);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        places.results[i] = static_cast<T*>(residual.scaled) + Blocked(row, Output(i));
      }
      places.sum_squares = residual.sum_squares + int64_t{row} * residual.sum_stride + tile_;
    } else if constexpr (kOutput == ProjectionOutput::kLogits) {
      places.values = args_.logits.logits + int64_t{row} * args_.outputs + Output(0);
      places.part = args_.logits.parts + int64_t{row} * TileCount(args_.outputs) + tile_;
    } else {
      T* results = static_cast<T*>(args_.activation.values);
      constexpr bool kGated = kOutput == ProjectionOutput::kGatedActivation;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        places.results[i] = results + Blocked(row, kGated ? tile_ * 8 + group_ : Output(i));
      }
    }
    return places;
  }

  // The row's values of the residual stream, if that is what the outputs are added to.
  __device__ __forceinline__ void FetchOld(const Places& places, float (&old)[2]) const {
    if constexpr (kOutput == ProjectionOutput::kResidual) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (exists_ && Exists(i)) old[i] = LoadFresh(places.values + 8 * i);
      }
    }
  }
  __device__ __forceinline__ void FetchOld(int row, float (&old)[2]) const {
    FetchOld(PlacesOf(row, {}), old);
  }

  __device__ __forceinline__ bool exists() const { return exists_; }
  __device__ __forceinline__ float2 Values(float low, float high, float factor) const {
    return make_float2(low * factor + bias_[0], high * factor + bias_[1]);
  }

  // sums: of the two outputs; factor: the row's. All lanes of a warp call it together.
  __device__ __forceinline__ void Store(int row, bool row_exists, const Row& state,
                                        const float (&old)[2], const float (&sums)[2],
                                        float factor) const {
    Store(PlacesOf(row, state), row_exists, state, old, sums, factor);
  }
  __device__ __forceinline__ void Store(const Places& places, bool row_exists, const Row& state,
                                        const float (&old)[2], const float (&sums)[2],
                                        float factor) const {
    const float2 both = Values(sums[0], sums[1], factor);
    const float values[2] = {both.x, both.y};
    const bool exists = exists_ && row_exists;
    if constexpr (kOutput == ProjectionOutput::kQueryKeyValue) {
      StoreQueryKeyValue(places, exists, values);
    } else if constexpr (kOutput == ProjectionOutput::kResidual) {
      StoreResidual(places, exists, state, old, values);
    } else if constexpr (kOutput == ProjectionOutput::kLogits) {
      StoreLogits(places, exists, state, values);
    } else {
      StoreActivation(places, exists, values);
    }
  }

 private:
  __device__ __forceinline__ int Output(int i) const {
    return tile_ * kTileOutputs + group_ + 8 * i;
  }
  __device__ __forceinline__ int Clamped(int i) const { return min(Output(i), args_.outputs - 1); }
  __device__ __forceinline__ bool Exists(int i) const { return Output(i) < args_.outputs; }
  __device__ __forceinline__ int64_t Blocked(int row, int k) const {
    return BlockedPlace<sizeof(T)>(row, k, args_.row_capacity);
  }

  // Where output i goes: the query (kNoCache), or a place in a row's part of the cache.
  __device__ __forceinline__ void PrepareCache(int i) {
    const QueryKeyValueOutput& out = args_.query_key_value;
    const int beyond_queries = Output(i) - out.inner;
    if (beyond_queries < 0 || args_.outputs == out.inner) return;
    const bool is_value = beyond_queries >= out.inner;
    const int index = beyond_queries - (is_value ? out.inner : 0);
    const int head = out.layout.HeadOf(index);
    cache_[i] = (is_value ? out.layout.ValueOffset() : 0) + head * out.layout.HeadStride() + index -
                head * out.layout.head_dim;
  }

  __device__ __forceinline__ void StoreQueryKeyValue(const Places& places, bool exists,
                                                     const float (&values)[2]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (!exists || !Exists(i)) continue;
      if (cache_[i] == Row::kNoCache) {
        if (places.values != nullptr) places.values[8 * i] = values[i];
      } else if (places.results[i] != nullptr) {
        *places.results[i] = FromFloat<T>(values[i]);
      }
    }
  }

  __device__ __forceinline__ void StoreResidual(const Places& places, bool exists, const Row& state,
                                                const float (&old)[2],
                                                const float (&values)[2]) const {
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (!exists || !Exists(i)) continue;
      const float x = old[i] + values[i];
      places.values[8 * i] = x;
      sum += x * x;
      *places.results[i] = FromFloat<T>(x * (norm_weight_[i] * state.scale));
    }
    sum = SumOverGroups(sum);
    if (group_ == 0 && exists) *places.sum_squares = sum;
  }

  __device__ __forceinline__ void StoreActivation(const Places& places, bool exists,
                                                  const float (&values)[2]) const {
    const ActivationKind kind = args_.activation.kind;
    if constexpr (kOutput == ProjectionOutput::kGatedActivation) {
      const int output = tile_ * 8 + group_;
      if (!exists || output >= args_.outputs / 2) return;
      *places.results[0] = FromFloat<T>(ActivateTo<T>(kind, values[0]) * values[1]);
    } else {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (!exists || !Exists(i)) continue;
        *places.results[i] = FromFloat<T>(ActivateTo<T>(kind, values[i]));
      }
    }
  }

  __device__ __forceinline__ void StoreLogits(const Places& places, bool exists, const Row& state,
                                              const float (&values)[2]) const {
    const LogitsOutput& out = args_.logits;
    float logits[2];
    float allowed[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int output = Output(i);
      logits[i] = exists && Exists(i) ? CleanLogit(values[i]) : -INFINITY;
      allowed[i] = logits[i];
      if ((state.flags & RowInfo::kBanEos) != 0) {
        for (int e = 0; e < out.eos_count; ++e) {
          if (out.eos_tokens[e] == output) allowed[i] = -INFINITY;
        }
      }
      if (exists && Exists(i) && (out.write_all || (state.flags & RowInfo::kSample) != 0)) {
        places.values[8 * i] = logits[i];
      }
    }
    LogitsPart part;
    part.best = MaxOverGroups(fmaxf(allowed[0], allowed[1]));
    part.max = MaxOverGroups(fmaxf(logits[0], logits[1]));
    int index = INT32_MAX;
    float sum = 0.0F;
#pragma unroll
    for (int i = 1; i >= 0; --i) {  // the lower index last
      if (allowed[i] == part.best && part.best > -INFINITY) index = Output(i);
      if (logits[i] > -INFINITY) sum += expf(logits[i] - part.max);
    }
    part.best_index = MinOverGroups(index);
    part.sum_exp = SumOverGroups(sum);
    if (group_ == 0 && exists) *places.part = part;
  }

  const ProjectionArgs& args_;
  int tile_;
  int group_;
  bool exists_;
  int64_t cache_[2] = {Row::kNoCache, Row::kNoCache};
  float bias_[2] = {};
  float norm_weight_[2] = {};
};

// Two outputs of one row.
template <typename T, ProjectionOutput kOutput>
class Epilogue {
 public:
  __device__ __forceinline__ Epilogue(const ProjectionArgs& args, int tile, int group, int row)
      : args_(args),
        outputs_(args, tile, group),
        row_(min(row, args.rows - 1)),
        row_exists_(row < args.rows) {}

  __device__ __forceinline__ void Prepare() {
    outputs_.Prepare();
    state_.Prepare(args_, row_);
  }
  __device__ __forceinline__ void Fetch() {
    if (!row_exists_ || !outputs_.exists()) return;
    state_.Fetch(args_, row_);
    places_ = outputs_.PlacesOf(row_, state_);
    outputs_.FetchOld(places_, old_);
    // What is read takes a while.
    places_.ComputeNow();
  }
  // What the two outputs are. low, high: their sums; factor: the row's.
  __device__ __forceinline__ float2 Values(float low, float high, float factor) const {
    return outputs_.Values(low, high, factor);
  }
  // low, high: the sums of the two outputs; factor: the row's.
  __device__ __forceinline__ void Store(float low, float high, float factor) {
    outputs_.Store(places_, row_exists_, state_, old_, {low, high}, factor);
  }

 private:
  const ProjectionArgs& args_;
  EpilogueOutputs<T, kOutput> outputs_;
  EpilogueRow<kOutput> state_;
  typename EpilogueOutputs<T, kOutput>::Places places_ = {};
  int row_;
  bool row_exists_;
  float old_[2] = {};
};

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_PROJECTION_EPILOGUE_CUH_
