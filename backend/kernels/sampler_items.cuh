// What a sampler's pass goes through, and what each item of it weighs. Device code only.
#ifndef SEQ2SEQ_BACKEND_KERNELS_SAMPLER_ITEMS_CUH_
#define SEQ2SEQ_BACKEND_KERNELS_SAMPLER_ITEMS_CUH_

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "backend/kernels/device_math.cuh"

namespace seq2seq::kernels {

// A float's bits, reordered so that larger floats have larger keys.
__device__ __forceinline__ uint32_t OrderedKey(float value) {
  const uint32_t bits = __float_as_uint(value);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

// The float that has this key.
__device__ __forceinline__ float FromOrderedKey(uint32_t key) {
  return __uint_as_float((key & 0x80000000U) != 0 ? key & 0x7fffffffU : ~key);
}

// The key for comparisons: zeros of both signs are equal logits.
__device__ __forceinline__ uint32_t EqualKey(float value) { return OrderedKey(value + 0.0F); }

// Some of a row's logits, in the order of their tokens, or each tile's best one.
struct SamplerItems {
  const float* values = nullptr;  // global; of an index: values[index * stride]
  uint32_t stride = 1;
  // Item i has the index i if null, else index i mod 2^shift of group groups[i / 2^shift].
  const int32_t* groups = nullptr;  // shared
  int32_t shift = 0;
  int32_t count = 0;
  int32_t indices = 0;  // there are; the last group may be smaller than the others

  __device__ __forceinline__ int32_t Index(int32_t item) const {
    if (groups == nullptr) return item;
    __builtin_assume(__isShared(groups));
    return (groups[item >> shift] << shift) + (item & ((1 << shift) - 1));
  }

  // Of kCount items, 32 apart from `first` on; those that aren't before `last` have -infinity.
  template <int kCount>
  __device__ __forceinline__ void Load(int32_t first, int32_t last, float (&value)[kCount]) const {
    __builtin_assume(__isGlobal(values));
    if (groups == nullptr && stride == 1 &&
        __all_sync(kFullWarp, first + 32 * (kCount - 1) < last)) {
      const float* place = values + first;
#pragma unroll
      for (int i = 0; i < kCount; ++i) value[i] = place[32 * i];
      return;
    }
    int32_t index[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) index[i] = first + 32 * i;
    if (groups != nullptr) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) index[i] = Index(min(index[i], last - 1));
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      value[i] = -INFINITY;
      if (first + 32 * i < last && index[i] < indices) {
        value[i] = values[static_cast<uint32_t>(index[i]) * stride];
      }
    }
  }
};

// Temperature and what filters keep of a row.
struct SamplerFilters {
  static constexpr float kOne = 0x1p40F;     // weight 1 in fixed point
  static constexpr float kNoWeight = 27.8F;  // exp(-27.8) is 0 in fixed point

  float largest = 0.0F;  // logit
  float temperature = 1.0F;
  float reciprocal = 1.0F;  // of the temperature
  bool plain = false;       // whether Score() may be exact without a division
  float least_logit = -FLT_MAX;
  float least_weight = 0.0F;
  uint32_t largest_depth = UINT32_MAX;  // largest Depth() that is left
  int32_t last_deepest = INT32_MAX;     // of the tokens that have it the last one that is left
  bool typical = false;                 // whether there is a largest distance
  float largest_distance = 0.0F;
  double log_total = 0.0;
  double entropy = 0.0;

  __device__ __forceinline__ SamplerFilters(float largest_logit, float divisor)
      : largest(largest_logit), temperature(divisor), reciprocal(1.0F / divisor) {
    // Then no step of Score() meets an infinity or loses bits below the least float: a difference
    // of logits, if it isn't 0, is at least an ulp of the largest.
    plain = divisor > 0x1p-20F && divisor < 0x1p20F && fabsf(largest_logit) > 0x1p-70F &&
            fabsf(largest_logit) < 0x1p60F;
  }

  // (logit - largest) / temperature as division rounds it, at most 0.
  __device__ __forceinline__ float Score(float logit) const {
    const float difference = logit - largest;
    float score = difference * reciprocal;
    score = fmaf(fmaf(-score, temperature, difference), reciprocal, score);
    return fmaf(fmaf(-score, temperature, difference), reciprocal, score);
  }
  __device__ __noinline__ static float SlowScore(float difference, float divisor) {
    return difference / divisor;
  }
  // How far below the largest: a key that ranks scores.
  __device__ __forceinline__ static uint32_t Depth(float score) {
    return __float_as_uint(score) & 0x7fffffffU;
  }
  __device__ __forceinline__ float Distance(float score) const {
    return static_cast<float>(fabs(log_total - static_cast<double>(score) - entropy));
  }
  // Of a weight up to 1.
  __device__ __forceinline__ static uint64_t FixedPoint(float weight) {
    return __float2ull_rz(weight * kOne);
  }
};

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_SAMPLER_ITEMS_CUH_
