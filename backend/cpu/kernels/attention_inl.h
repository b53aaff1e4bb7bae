// Softmax, and attention of one query over paged keys and values. Included by kernels_<set>.cc
// only.
#ifndef SEQ2SEQ_BACKEND_CPU_KERNELS_ATTENTION_INL_H_
#define SEQ2SEQ_BACKEND_CPU_KERNELS_ATTENTION_INL_H_

#include "backend/cpu/kernels/elementwise_inl.h"
#include "backend/cpu/kernels/vec.h"

namespace seq2seq::cpu {
namespace {

float Softmax(float* scores, const float* bias, float scale, int32_t count) {
  const int32_t padded = (count + kLaneFloats - 1) / kLaneFloats * kLaneFloats;
  const float lowest = -__builtin_huge_valf();
  Vec largest = Splat(lowest);
  int32_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    Vec s = Load(scores + i) * scale;
    if (bias != nullptr) s += Load(bias + i);
    Store(scores + i, s);
    largest = Max(largest, s);
  }
  float max = MaxOf(largest);
  for (; i < count; ++i) {
    scores[i] = scores[i] * scale + (bias != nullptr ? bias[i] : 0.0F);
    if (scores[i] > max) max = scores[i];
  }
  for (; i < padded; ++i) scores[i] = lowest;
  Vec sum = {};
  for (i = 0; i + kWidth <= count; i += kWidth) {
    const Vec e = Exp(Load(scores + i) - max);
    Store(scores + i, e);
    sum += e;
  }
  float total = Sum(sum);
  for (; i < padded; i += kWidth) {
    Vec e = Exp(Load(scores + i) - max);
    for (int lane = 0; lane < kWidth; ++lane) {
      if (i + lane >= count) e[lane] = 0.0F;
      total += e[lane];
    }
    Store(scores + i, e);
  }
  return 1.0F / total;
}

// scores[0 .. 32) = query . keys of one block.
SEQ2SEQ_INLINE void ScoreBlock(const float* query, const float* keys, int32_t head_dim,
                               float* scores) {
  constexpr int kVecs = kPanelColumns / kWidth;
  Vec sums[kVecs] = {};
  for (int32_t d = 0; d < head_dim; ++d) {
    const Vec q = Splat(query[d]);
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      sums[v] += q * Load(keys + static_cast<size_t>(d) * kPanelColumns + v * kWidth);
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVecs; ++v) Store(scores + v * kWidth, sums[v]);
}

// output[column .. column + kVecs * kWidth) = factor * sum over positions of weight x value.
template <int kVecs>
SEQ2SEQ_INLINE void WeightValues(const AttendArgs& args, int32_t column, float factor) {
  Vec sums[kVecs] = {};
  for (int32_t first = 0, block = 0; first < args.count; first += kPanelColumns, ++block) {
    const float* values = args.pool + args.blocks[block] * args.block_stride + args.value_offset;
    const int32_t left = args.count - first;
    const int32_t positions = left < kPanelColumns ? left : kPanelColumns;
    for (int32_t j = 0; j < positions; ++j) {
      const Vec weight = Splat(args.scores[first + j]);
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) {
        sums[v] += weight * Load(values + j * args.value_stride + column + v * kWidth);
      }
    }
  }
  if (column + kVecs * kWidth > args.head_dim) {  // kVecs is 1; what follows is the next head's
    for (int32_t i = 0; column + i < args.head_dim; ++i)
      args.output[column + i] = sums[0][i] * factor;
    return;
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVecs; ++v) Store(args.output + column + v * kWidth, sums[v] * factor);
}

void Attend(const AttendArgs& args) {
  for (int32_t first = 0, block = 0; first < args.count; first += kPanelColumns, ++block) {
    const float* keys = args.pool + args.blocks[block] * args.block_stride + args.key_offset;
    ScoreBlock(args.query, keys, args.head_dim, args.scores + first);
  }
  const float factor = Softmax(args.scores, args.bias, args.scale, args.count);
  int32_t column = 0;
  for (; column + 4 * kWidth <= args.head_dim; column += 4 * kWidth) {
    WeightValues<4>(args, column, factor);
  }
  for (; column < args.head_dim; column += kWidth) WeightValues<1>(args, column, factor);
}

}  // namespace
}  // namespace seq2seq::cpu

#endif  // SEQ2SEQ_BACKEND_CPU_KERNELS_ATTENTION_INL_H_
