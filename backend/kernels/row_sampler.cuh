// Draws one row's token, one block a row. Device code only.
//
// Every filter keeps what lies above some threshold, so nothing is sorted or stored: a filter
// searches its threshold over the row's logits, and later filters test the thresholds before them.
// Masses are sums of weights in fixed point, which don't depend on the order of addition.
#ifndef SEQ2SEQ_BACKEND_KERNELS_ROW_SAMPLER_CUH_
#define SEQ2SEQ_BACKEND_KERNELS_ROW_SAMPLER_CUH_

#include <cstdint>

#include "backend/kernels/device_math.cuh"
#include "backend/kernels/projection_epilogue.cuh"
#include "backend/kernels/step_state.h"

namespace seq2seq::kernels {

// Salmon et al. 2011, Philox4x32-10, first word of the block; see backend/engine/philox.h.
inline __device__ float TokenUniform(uint64_t seed, uint64_t index) {
  uint32_t c0 = static_cast<uint32_t>(index);
  uint32_t c1 = static_cast<uint32_t>(index >> 32);
  uint32_t c2 = 0;
  uint32_t c3 = 0;
  uint32_t k0 = static_cast<uint32_t>(seed);
  uint32_t k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53U} * c0;
    const uint64_t product1 = uint64_t{0xCD9E8D57U} * c2;
    c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(product1);
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(product0);
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return static_cast<float>(c0 >> 8) * 0x1p-24F;
}

// A float's bits, reordered so that larger floats have larger keys.
__device__ __forceinline__ uint32_t OrderedKey(float value) {
  const uint32_t bits = __float_as_uint(value);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

// The float that has this key.
__device__ __forceinline__ float FromOrderedKey(uint32_t key) {
  return __uint_as_float((key & 0x80000000U) != 0 ? key & 0x7fffffffU : ~key);
}

struct SamplerRow {
  const float* logits = nullptr;
  int32_t vocabulary = 0;
  const int32_t* banned = nullptr;  // banned_count tokens
  int32_t banned_count = 0;
  float largest = 0.0F;  // of the logits that are not banned; finite
  SlotState state;
};

template <int kThreads>
class RowSampler {
 public:
  struct Shared {
    uint64_t warp_sums[kThreads / 32][15];
    uint64_t scan[kThreads];
    double warp_doubles[kThreads / 32];
    int32_t found;
  };

  __device__ RowSampler(const SamplerRow& row, Shared* shared) : row_(row), shared_(shared) {}

  __device__ int32_t Draw() {
    const SlotState& state = row_.state;
    if (state.top_k > 0 && state.top_k < row_.vocabulary) KeepTopK(state.top_k);
    if (state.top_p < 1.0F) KeepTopP(state.top_p);
    if (state.min_p > 0.0F) least_weight_ = static_cast<double>(state.min_p);
    if (state.typical_p < 1.0F) KeepTypicalP(state.typical_p);
    const float uniform = TokenUniform(state.seed, static_cast<uint64_t>(state.generated));
    const uint64_t total = TotalMass();
    const auto target =
        static_cast<uint64_t>(static_cast<double>(uniform) * static_cast<double>(total));
    return FirstBeyond(target, [this](int32_t token) { return Mass(token); });
  }

 private:
  static constexpr double kOne = 0x1p40;  // weight 1 in fixed point
  static constexpr int kWays = 16;        // parts that one pass of a search divides its range into

  __device__ float Logit(int32_t token) const {
    for (int i = 0; i < row_.banned_count; ++i) {
      if (row_.banned[i] == token) return -INFINITY;
    }
    return row_.logits[token];
  }
  __device__ float Score(float logit) const {
    return (logit - row_.largest) / row_.state.temperature;
  }
  __device__ float Distance(float score) const {
    return static_cast<float>(fabs(log_total_ - static_cast<double>(score) - entropy_));
  }

  // The token's weight in fixed point; 0 if a filter dropped it.
  __device__ uint64_t Mass(int32_t token) const {
    const float logit = Logit(token);
    if (!(logit >= least_logit_) || logit == -INFINITY) return 0;
    const float score = Score(logit);
    const uint32_t key = OrderedKey(score);
    if (key < least_key_ || (key == least_key_ && token > last_equal_)) return 0;
    const float weight = expf(score);
    if (static_cast<double>(weight) < least_weight_) return 0;
    if (has_typical_ && Distance(score) > farthest_) return 0;
    return static_cast<uint64_t>(static_cast<double>(weight) * kOne);
  }

  __device__ uint64_t TotalMass() {
    uint64_t sum = 0;
    for (int32_t token = threadIdx.x; token < row_.vocabulary; token += kThreads)
      sum += Mass(token);
    return BlockSum(sum);
  }

  __device__ static uint64_t WarpSum64(uint64_t value) {
    for (int offset = 16; offset > 0; offset /= 2) {
      value += __shfl_xor_sync(kFullWarp, value, offset);
    }
    return value;
  }

  __device__ uint64_t BlockSum(uint64_t value) {
    value = WarpSum64(value);
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared_->warp_sums[threadIdx.x / 32][0] = value;
    __syncthreads();
    uint64_t total = 0;
    for (int w = 0; w < kThreads / 32; ++w) total += shared_->warp_sums[w][0];
    return total;
  }

  // The largest key such that the tokens whose key is at least as large have `target` (> 0)
  // together; *above gets the mass of those that are larger. key(token) -> uint32, mass(token) ->
  // uint64.
  template <typename Key, typename MassOf>
  __device__ uint32_t SearchKey(uint64_t target, Key key, MassOf mass, uint64_t* above) {
    uint32_t base = 0;
    *above = 0;
    for (int shift = 28; shift >= 0; shift -= 4) {
      uint64_t sums[kWays - 1] = {};  // sums[i]: keys in this range with digit above i
      for (int32_t token = threadIdx.x; token < row_.vocabulary; token += kThreads) {
        const uint64_t value = mass(token);
        if (value == 0) continue;
        const uint32_t token_key = key(token);
        if (shift < 28 && (token_key >> (shift + 4)) != (base >> (shift + 4))) continue;
        const uint32_t digit = (token_key >> shift) & 15U;
#pragma unroll
        for (int i = 0; i < kWays - 1; ++i) sums[i] += digit > i ? value : 0;
      }
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kWays - 1; ++i) {
        const uint64_t sum = WarpSum64(sums[i]);
        if (threadIdx.x % 32 == 0) shared_->warp_sums[threadIdx.x / 32][i] = sum;
      }
      __syncthreads();
      uint32_t digit = 0;
      uint64_t beyond = 0;
      for (int i = kWays - 2; i >= 0; --i) {
        uint64_t sum = 0;
        for (int w = 0; w < kThreads / 32; ++w) sum += shared_->warp_sums[w][i];
        if (*above + sum >= target) {
          digit = i + 1;
          break;
        }
        beyond = sum;
      }
      *above += beyond;
      base |= digit << shift;
    }
    return base;
  }

  // The first token, in the order of ids, at which the running sum of mass exceeds `target`; the
  // last one that has a mass if none does.
  template <typename MassOf>
  __device__ int32_t FirstBeyond(uint64_t target, MassOf mass) {
    const int32_t share = (row_.vocabulary + kThreads - 1) / kThreads;
    const int32_t begin = min(row_.vocabulary, static_cast<int32_t>(threadIdx.x) * share);
    const int32_t end = min(row_.vocabulary, begin + share);
    uint64_t own = 0;
    for (int32_t token = begin; token < end; ++token) own += mass(token);
    __syncthreads();
    shared_->scan[threadIdx.x] = own;
    if (threadIdx.x == 0) shared_->found = -1;
    __syncthreads();
    uint64_t before = 0;
    for (int t = 0; t < static_cast<int>(threadIdx.x); ++t) before += shared_->scan[t];
    int32_t last = -1;
    if (before <= target && own > 0) {
      for (int32_t token = begin; token < end; ++token) {
        const uint64_t value = mass(token);
        if (value == 0) continue;
        last = token;
        before += value;
        if (before > target) break;
      }
      // Among the threads whose range begins before the target, the last one holds it.
      atomicMax(&shared_->found, last);
    }
    __syncthreads();
    return shared_->found;
  }

  __device__ void KeepTopK(int32_t top_k) {
    uint64_t above = 0;
    const uint32_t key = SearchKey(
        static_cast<uint64_t>(top_k), [this](int32_t token) { return OrderedKey(Logit(token)); },
        [](int32_t) { return uint64_t{1}; }, &above);
    least_logit_ = FromOrderedKey(key);
  }

  __device__ void KeepTopP(float top_p) {
    const auto target =
        static_cast<uint64_t>(ceil(static_cast<double>(top_p) * static_cast<double>(TotalMass())));
    const auto mass = [this](int32_t token) { return Mass(token); };
    const auto key = [this](int32_t token) { return OrderedKey(Score(Logit(token))); };
    uint64_t above = 0;
    const uint32_t least = SearchKey(target, key, mass, &above);
    // Of those that equal the last one only as many as the mass still asks for, lowest ids first.
    const auto equal_mass = [&](int32_t token) {
      const uint64_t value = mass(token);
      return value != 0 && key(token) == least ? value : uint64_t{0};
    };
    const int32_t last = FirstBeyond(target - above - 1, equal_mass);
    least_key_ = least;
    last_equal_ = last;
  }

  __device__ void KeepTypicalP(float typical_p) {
    const uint64_t total = TotalMass();
    const double scale = static_cast<double>(total) / kOne;
    log_total_ = log(scale);
    double entropy = 0.0;
    for (int32_t token = threadIdx.x; token < row_.vocabulary; token += kThreads) {
      const uint64_t mass = Mass(token);
      if (mass == 0) continue;
      entropy += static_cast<double>(mass) / kOne / scale *
                 (log_total_ - static_cast<double>(Score(Logit(token))));
    }
    entropy_ = BlockSumDouble(entropy);
    const auto target =
        static_cast<uint64_t>(ceil(static_cast<double>(typical_p) * static_cast<double>(total)));
    uint64_t above = 0;
    // The nearest have the largest keys.
    const uint32_t key = SearchKey(
        target, [this](int32_t token) { return ~OrderedKey(Distance(Score(Logit(token)))); },
        [this](int32_t token) { return Mass(token); }, &above);
    farthest_ = __uint_as_float(~key & 0x7fffffffU);
    has_typical_ = true;
  }

  __device__ double BlockSumDouble(double value) {
    for (int offset = 16; offset > 0; offset /= 2) {
      value += __shfl_xor_sync(kFullWarp, value, offset);
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared_->warp_doubles[threadIdx.x / 32] = value;
    __syncthreads();
    double total = 0.0;
    for (int w = 0; w < kThreads / 32; ++w) total += shared_->warp_doubles[w];
    return total;
  }

  const SamplerRow& row_;
  Shared* shared_;
  float least_logit_ = -INFINITY;
  uint32_t least_key_ = 0;
  int32_t last_equal_ = INT32_MAX;
  double least_weight_ = 0.0;
  bool has_typical_ = false;
  double log_total_ = 0.0;
  double entropy_ = 0.0;
  float farthest_ = 0.0F;
};

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_ROW_SAMPLER_CUH_
