// What a projection's block does with its 16 outputs x rows once they are summed. Device code only.
#ifndef SEQ2SEQ_BACKEND_KERNELS_PROJECTION_EPILOGUE_CUH_
#define SEQ2SEQ_BACKEND_KERNELS_PROJECTION_EPILOGUE_CUH_

#include <cfloat>
#include <cmath>

#include "backend/kernels/device_math.cuh"
#include "backend/kernels/projection.h"

namespace seq2seq::kernels {

// A thread holds outputs tile * 16 + group and + 8 of one row. The 32 threads of a warp hold all 16
// outputs of 4 rows: `group` is lane / 4, and lanes that differ in group alone share the row.
struct OutputPair {
  int tile = 0;
  int group = 0;  // 0..7
  int row = 0;
  bool row_exists = false;
  float value[2] = {};
};

// Sums over the 8 groups of a warp that share a row.
__device__ __forceinline__ float SumOverGroups(float value) {
  value += __shfl_xor_sync(kFullWarp, value, 4);
  value += __shfl_xor_sync(kFullWarp, value, 8);
  return value + __shfl_xor_sync(kFullWarp, value, 16);
}

template <typename T>
__device__ void StoreQueryKeyValue(const ProjectionArgs& args, const OutputPair& pair) {
  if (!pair.row_exists) return;
  const QueryKeyValueOutput& out = args.query_key_value;
  const RowInfo info = args.row_infos[pair.row];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int output = pair.tile * kTileOutputs + pair.group + 8 * i;
    if (output >= args.outputs) continue;
    if (output < out.inner) {
      out.query[int64_t{pair.row} * out.inner + output] = pair.value[i];
      continue;
    }
    if ((info.flags & RowInfo::kActive) == 0) continue;
    const bool is_value = output >= 2 * out.inner;
    const int index = output - (is_value ? 2 : 1) * out.inner;
    const int head = index / out.layout.head_dim;
    const int dim = index % out.layout.head_dim;
    const int32_t block = out.self_blocks[int64_t{info.slot} * out.self_stride +
                                          info.position / out.layout.block_tokens];
    const int64_t offset = block * out.layout.BlockStride() + out.layer_offset +
                           (is_value ? out.layout.ValueOffset() : 0) +
                           head * out.layout.HeadStride() +
                           (info.position % out.layout.block_tokens) * out.layout.head_dim + dim;
    static_cast<T*>(out.pool)[offset] = FromFloat<T>(pair.value[i]);
  }
}

template <typename T>
__device__ void StoreResidual(const ProjectionArgs& args, const OutputPair& pair) {
  const ResidualOutput& out = args.residual;
  const Residual& residual = out.residual;
  float sum = 0.0F;
  const float scale = pair.row_exists ? __ldcg(out.scale + pair.row) : 0.0F;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int output = pair.tile * kTileOutputs + pair.group + 8 * i;
    if (output >= args.outputs || !pair.row_exists) continue;
    float* value = residual.values + int64_t{pair.row} * residual.width + output;
    const float x = __ldcg(value) + pair.value[i];
    *value = x;
    sum += x * x;
    static_cast<T*>(residual.scaled)[(int64_t{output / kChunkInputs} * residual.row_capacity +
                                      pair.row) *
                                         kChunkInputs +
                                     output % kChunkInputs] =
        FromFloat<T>(x * out.norm_weight[output] * scale);
  }
  sum = SumOverGroups(sum);
  if (pair.group == 0 && pair.row_exists) {
    residual.sum_squares[int64_t{pair.tile} * residual.row_capacity + pair.row] = sum;
  }
}

template <typename T>
__device__ __forceinline__ void StoreActivated(const ProjectionArgs& args, int output, int row,
                                               float value) {
  static_cast<T*>(args.activation.values)[(int64_t{output / kChunkInputs} * args.row_capacity +
                                           row) *
                                              kChunkInputs +
                                          output % kChunkInputs] = FromFloat<T>(value);
}

template <typename T>
__device__ void StoreActivation(const ProjectionArgs& args, const OutputPair& pair) {
  if (!pair.row_exists) return;
  if (args.output == ProjectionOutput::kGatedActivation) {
    const int output = pair.tile * 8 + pair.group;
    if (output >= args.outputs / 2) return;
    StoreActivated<T>(args, output, pair.row,
                      Activate(args.activation.kind, pair.value[0]) * pair.value[1]);
    return;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int output = pair.tile * kTileOutputs + pair.group + 8 * i;
    if (output >= args.outputs) continue;
    StoreActivated<T>(args, output, pair.row, Activate(args.activation.kind, pair.value[i]));
  }
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

inline __device__ void StoreLogits(const ProjectionArgs& args, const OutputPair& pair) {
  const LogitsOutput& out = args.logits;
  const int32_t flags = pair.row_exists ? args.row_infos[pair.row].flags : 0;
  LogitsPart part = EmptyPart();
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int output = pair.tile * kTileOutputs + pair.group + 8 * i;
    if (output >= args.outputs || !pair.row_exists) continue;
    const float logit = CleanLogit(pair.value[i]);
    bool banned = false;
    if ((flags & RowInfo::kBanEos) != 0) {
      for (int e = 0; e < out.eos_count; ++e) banned |= out.eos_tokens[e] == output;
    }
    part = MergeParts(part, {banned ? -INFINITY : logit, banned ? INT32_MAX : output, logit,
                             logit > -INFINITY ? 1.0F : 0.0F});
    if (out.write_all || (flags & RowInfo::kSample) != 0) {
      out.logits[int64_t{pair.row} * args.outputs + output] = logit;
    }
  }
  for (int mask = 4; mask < 32; mask *= 2) part = MergeParts(part, ShufflePart(part, mask));
  if (pair.group == 0 && pair.row_exists) {
    out.parts[int64_t{pair.row} * TileCount(args.outputs) + pair.tile] = part;
  }
}

template <typename T>
__device__ __forceinline__ void StoreOutputs(const ProjectionArgs& args, const OutputPair& pair) {
  switch (args.output) {
    case ProjectionOutput::kQueryKeyValue:
      return StoreQueryKeyValue<T>(args, pair);
    case ProjectionOutput::kResidual:
      return StoreResidual<T>(args, pair);
    case ProjectionOutput::kActivation:
    case ProjectionOutput::kGatedActivation:
      return StoreActivation<T>(args, pair);
    case ProjectionOutput::kLogits:
      return StoreLogits(args, pair);
  }
}

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_PROJECTION_EPILOGUE_CUH_
