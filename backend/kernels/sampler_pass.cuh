// One pass over some of a row's logits: sums, or a histogram, of what they weigh. Device code only.
#ifndef SEQ2SEQ_BACKEND_KERNELS_SAMPLER_PASS_CUH_
#define SEQ2SEQ_BACKEND_KERNELS_SAMPLER_PASS_CUH_

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "backend/kernels/begin_row.cuh"
#include "backend/kernels/device_math.cuh"
#include "backend/kernels/sampler_items.cuh"

namespace seq2seq::kernels {

// Order in which a filter keeps tokens, by a key: the least keys first.
enum class SamplerRank {
  kLogit,     // by EqualKey(), from the largest on downwards; a token counts 1
  kWeight,    // by Depth(); a token counts what it weighs
  kDistance,  // by the distance from the entropy, as bits of a float; the same
};

// What a pass makes of the masses of tokens whose keys are in [low, high].
enum class SamplerUse {
  kHistogram,
  kSum,
  kMoments,  // the sum, and that of mass x score
};

constexpr int kDigitBits = 11;
constexpr int kBuckets = 1 << kDigitBits;
constexpr uint32_t kInfinityBits = 0x7f800000U;
constexpr uint32_t kNoKey = UINT32_MAX;

struct SamplerPass {
  SamplerRank rank = SamplerRank::kWeight;
  SamplerUse use = SamplerUse::kSum;
  uint32_t low = 0;
  uint32_t high = kInfinityBits;  // less than kNoKey
  // A key's bucket: (key - low) >> shift, or LinearBucket() of a float's bits.
  int shift = 0;
  bool linear = false;
  int32_t begin = 0;  // items
  int32_t end = 0;
};

// Keys of the same distance in each bucket but the last, which has all beyond.
constexpr float kLinearBuckets = 64.0F;  // a distance of 1
__device__ __forceinline__ uint32_t LinearBucket(uint32_t key) {
  return min(static_cast<uint32_t>(__uint_as_float(key) * kLinearBuckets),
             static_cast<uint32_t>(kBuckets - 1));
}

struct SamplerSums {
  uint64_t mass = 0;
  double moment = 0.0;
};

// Words of the buckets' masses; all 0 but between a pass and the evaluation of its histogram.
struct SamplerHistogram {
  alignas(16) uint32_t low[kBuckets];
  alignas(16) uint32_t high[kBuckets];
};
// The block's. Where functions find it by its name, they know that it is shared memory.
__device__ __forceinline__ SamplerHistogram& Histogram() {
  __shared__ SamplerHistogram histogram;
  return histogram;
}

__device__ __forceinline__ int Warp() { return static_cast<int>(threadIdx.x) / 32; }
__device__ __forceinline__ int Lane() { return static_cast<int>(threadIdx.x) % 32; }

// Each warp has a piece of so many of a pass's items, in order.
__device__ __forceinline__ int32_t PieceOf(int32_t count) {
  return (count + kRowThreads - 1) / kRowThreads * 32;
}

// Logits that may have a key in a pass's range: their distance from `center` is the key times the
// temperature, within what rounding does to it.
struct LogitBounds {
  float floor = -FLT_MAX;
  float center = 0.0F;
  float inner = 0.0F;
  float outer = INFINITY;

  __device__ __forceinline__ LogitBounds(const SamplerPass& pass, const SamplerFilters& filters)
      : floor(filters.least_logit), center(filters.largest) {
    if (pass.rank == SamplerRank::kLogit) return;
    float least = __uint_as_float(pass.low);
    float most = __uint_as_float(pass.high);
    const bool typical = pass.rank == SamplerRank::kWeight && filters.typical;
    if (typical) {
      least = 0.0F;
      most = filters.largest_distance;
    }
    if (typical || pass.rank == SamplerRank::kDistance) {
      center += filters.temperature * static_cast<float>(filters.log_total - filters.entropy);
    } else {
      most = fminf(most, SamplerFilters::kNoWeight);
      if (filters.largest_depth < kInfinityBits) {
        most = fminf(most, __uint_as_float(filters.largest_depth));
      }
    }
    // Scores are less than 2^5 where a token has a weight.
    const float margin = 0x1p-14F * filters.temperature + 0x1p-19F * fabsf(filters.largest);
    inner = filters.temperature * least * (1.0F - 0x1p-16F) - margin;
    outer = filters.temperature * most * (1.0F + 0x1p-16F) + margin;
  }

  __device__ __forceinline__ bool Hold(float logit) const {
    const float distance = fabsf(logit - center);
    // A bound that is no number excludes nothing.
    return !(distance < inner) && !(distance > outer);
  }
};

constexpr int kBatch = 4;  // items of a thread side by side

// Devices have no addition of 64 bits in shared memory.
__device__ __forceinline__ void AddToHistogram(const SamplerPass& pass,
                                               const uint32_t (&key)[kBatch],
                                               const uint64_t (&mass)[kBatch]) {
  uint32_t bucket[kBatch];
  uint32_t before[kBatch];
  if (pass.linear) {
#pragma unroll
    for (int b = 0; b < kBatch; ++b) bucket[b] = LinearBucket(key[b]);
  } else {
#pragma unroll
    for (int b = 0; b < kBatch; ++b) bucket[b] = (key[b] - pass.low) >> pass.shift;
  }
#pragma unroll
  for (int b = 0; b < kBatch; ++b) {
    if (mass[b] == 0) continue;
    before[b] = atomicAdd(&Histogram().low[bucket[b]], static_cast<uint32_t>(mass[b]));
  }
#pragma unroll
  for (int b = 0; b < kBatch; ++b) {
    if (mass[b] == 0) continue;
    const uint32_t low = static_cast<uint32_t>(mass[b]);
    const uint32_t carry = before[b] + low < low ? 1 : 0;
    const uint32_t high = static_cast<uint32_t>(mass[b] >> 32) + carry;
    if (high != 0) atomicAdd(&Histogram().high[bucket[b]], high);
  }
}

// What depth and distance say of tokens, whose keys are depths before: kNoKey of those that filters
// dropped, else the key of the pass's rank.
__device__ __forceinline__ void Filter(const SamplerItems& items, const SamplerFilters& filters,
                                       const SamplerPass& pass, int32_t first,
                                       const float (&score)[kBatch], uint32_t (&key)[kBatch]) {
  bool dropped[kBatch];
#pragma unroll
  for (int b = 0; b < kBatch; ++b) dropped[b] = key[b] > filters.largest_depth;
  if (filters.last_deepest != INT32_MAX) {
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (key[b] != filters.largest_depth) continue;
      dropped[b] = items.Index(first + 32 * b) > filters.last_deepest;
    }
  }
  if (filters.typical || pass.rank == SamplerRank::kDistance) {
    float distance[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) distance[b] = filters.Distance(score[b]);
    if (pass.rank == SamplerRank::kDistance) {
#pragma unroll
      for (int b = 0; b < kBatch; ++b) key[b] = __float_as_uint(distance[b]);
    } else {
#pragma unroll
      for (int b = 0; b < kBatch; ++b) dropped[b] |= distance[b] > filters.largest_distance;
    }
  }
#pragma unroll
  for (int b = 0; b < kBatch; ++b) key[b] = dropped[b] ? kNoKey : key[b];
}

// This thread's sums; 0 of a histogram. All threads of the block call it.
__device__ __noinline__ SamplerSums RunPass(const SamplerItems& given_items,
                                            const SamplerFilters& given_filters,
                                            const SamplerPass pass) {
  const SamplerItems items = given_items;  // in registers
  const SamplerFilters filters = given_filters;
  const LogitBounds bounds(pass, filters);
  const uint32_t largest_key = EqualKey(filters.largest);
  const bool filtered =
      filters.typical || pass.rank == SamplerRank::kDistance || filters.last_deepest != INT32_MAX;
  const uint32_t high =
      pass.rank == SamplerRank::kWeight ? min(pass.high, filters.largest_depth) : pass.high;
  const uint32_t range = high - pass.low;
  SamplerSums sums;
  const int32_t piece = PieceOf(pass.end - pass.begin);
  const int32_t first = pass.begin + Warp() * piece;
  const int32_t last = min(pass.end, first + piece);
  float next[kBatch] = {};
#pragma unroll 1
  for (int32_t base = first - 32 * kBatch; base < last; base += 32 * kBatch) {
    float logit[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) logit[b] = next[b];
    items.Load(base + 32 * kBatch + Lane(), last, next);
    if (base < first) continue;
    bool any = false;
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      // NaN counts as -infinity, +infinity as the largest.
      logit[b] = logit[b] >= bounds.floor ? fminf(logit[b], filters.largest) : -INFINITY;
      any |= bounds.Hold(logit[b]);
    }
    if (!__any_sync(kFullWarp, any)) continue;
    float score[kBatch];
    uint32_t key[kBatch];
    if (pass.rank == SamplerRank::kLogit) {
#pragma unroll
      for (int b = 0; b < kBatch; ++b) key[b] = largest_key - EqualKey(logit[b]);
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const uint32_t offset = key[b] - pass.low;
        if (offset <= range) atomicAdd(&Histogram().low[offset >> pass.shift], 1U);
      }
      continue;
    }
    if (filters.temperature == 1.0F) {
#pragma unroll
      for (int b = 0; b < kBatch; ++b) score[b] = logit[b] - filters.largest;
    } else if (filters.plain) {
#pragma unroll
      for (int b = 0; b < kBatch; ++b) score[b] = filters.Score(logit[b]);
    } else {
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        score[b] = SamplerFilters::SlowScore(logit[b] - filters.largest, filters.temperature);
      }
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) key[b] = SamplerFilters::Depth(score[b]);
    if (filtered) {
      Filter(items, filters, pass, base + Lane(), score, key);
      any = false;
#pragma unroll
      for (int b = 0; b < kBatch; ++b) any |= key[b] - pass.low <= range;
      if (!__any_sync(kFullWarp, any)) continue;
    }
    uint64_t mass[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const float weight = expf(score[b]);
      const bool kept = (key[b] - pass.low <= range) & (weight >= filters.least_weight);
      mass[b] = SamplerFilters::FixedPoint(kept ? weight : 0.0F);
    }
    if (pass.use == SamplerUse::kHistogram) {
      AddToHistogram(pass, key, mass);
      continue;
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) sums.mass += mass[b];
    if (pass.use == SamplerUse::kMoments) {
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const float finite = mass[b] != 0 ? score[b] : 0.0F;
        sums.moment = fma(static_cast<double>(mass[b]), static_cast<double>(finite), sums.moment);
      }
    }
  }
  return sums;
}

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_SAMPLER_PASS_CUH_
