// Draws one row's token, one block of kRowThreads a row. Device code only.
//
// Every filter keeps what lies above some threshold, so nothing is sorted: a threshold is searched
// digit by digit in histograms of keys. Masses are sums of weights in fixed point, which don't
// depend on the order of addition.
//
// Where there is a top_k, most of the vocabulary is never read: of the tiles' bests, which the head
// found, the k-th largest is not above the k-th largest logit, so only tiles whose best reaches it
// matter. Their tokens that reach it are a list in shared memory, in order.
//
// Functions are not inlined, and few: in a decode step their code comes from memory.
#ifndef SEQ2SEQ_BACKEND_KERNELS_ROW_SAMPLER_CUH_
#define SEQ2SEQ_BACKEND_KERNELS_ROW_SAMPLER_CUH_

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "backend/kernels/begin_row.cuh"
#include "backend/kernels/device_math.cuh"
#include "backend/kernels/projection.h"
#include "backend/kernels/sampler_items.cuh"
#include "backend/kernels/sampler_pass.cuh"
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
#pragma unroll 1
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

// Sums over lanes from the first on.
class WarpScan {
 public:
  __device__ __forceinline__ explicit WarpScan(uint64_t value) : sum_(value) {
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const uint64_t other = __shfl_up_sync(kFullWarp, sum_, offset);
      if (Lane() >= offset) sum_ += other;
    }
  }

  // Up to this lane's.
  __device__ __forceinline__ uint64_t sum() const { return sum_; }
  __device__ __forceinline__ uint64_t Total() const { return __shfl_sync(kFullWarp, sum_, 31); }
  // Up to the one before `lane`, which all lanes name.
  __device__ __forceinline__ uint64_t Before(int lane) const {
    const uint64_t before = __shfl_sync(kFullWarp, sum_, max(lane - 1, 0));
    return lane > 0 ? before : 0;
  }
  // The first lane whose sum exceeds `target`; the last of `lanes` if none does.
  __device__ __forceinline__ int FirstBeyond(uint64_t target, int lanes) const {
    const unsigned beyond = __ballot_sync(kFullWarp, sum_ > target);
    return beyond != 0 ? __ffs(beyond) - 1 : lanes - 1;
  }

 private:
  uint64_t sum_;
};

struct SamplerRow {
  float* logits = nullptr;  // those that are banned become -infinity
  int32_t vocabulary = 0;
  const LogitsPart* parts = nullptr;  // [tiles], of the row
  int32_t tiles = 0;
  const int32_t* banned = nullptr;  // [banned_count] tokens
  int32_t banned_count = 0;
  float largest = 0.0F;  // of the logits that are not banned; finite
  SlotState state;
};

class RowSampler {
 public:
  __device__ explicit RowSampler(const SamplerRow& row)
      : row_(row), filters_(row.largest, row.state.temperature) {
    items_.values = row.logits;
    items_.count = items_.indices = row.vocabulary;
  }

  // All threads of the block call it, and get the same token.
  __device__ int32_t Draw() {
    const SlotState& state = row_.state;
    for (int i = threadIdx.x; i < kBuckets; i += kRowThreads) {
      Histogram().low[i] = Histogram().high[i] = 0;
    }
    for (int i = threadIdx.x; i < row_.banned_count; i += kRowThreads) {
      row_.logits[row_.banned[i]] = -INFINITY;
    }
    __syncthreads();
    if (state.top_k > 0 && state.top_k < row_.vocabulary) KeepTopK(state.top_k);
    if (state.top_p < 1.0F) KeepTopP(state.top_p);
    filters_.least_weight = state.min_p;
    if (state.typical_p < 1.0F) KeepTypicalP(state.typical_p);
    return FirstBeyond(0, kInfinityBits, true, 0);
  }

 private:
  using Rank = SamplerRank;
  using Use = SamplerUse;

  static constexpr int kListed = 2048;  // tiles or tokens that a list has room for
  static constexpr int kTileShift = 4;
  static_assert(1 << kTileShift == kTileOutputs);

  // The bucket in which the sum from the first on reaches its target.
  struct Crossing {
    int32_t bucket;
    uint64_t before;  // the sum
    uint64_t inside;
  };
  struct Shared {
    int32_t tiles[kListed];
    int32_t tokens[kListed];
    uint64_t sums[2][kRowWarps];
    double moments[kRowWarps];
    Crossing crossing;
    int32_t token;
  };
  struct Threshold {
    uint32_t key;      // of the last that are left
    uint64_t missing;  // what is wanted of those that have it
    bool whole;        // they are all wanted
    bool enough;       // there is as much as was asked for
  };

  __device__ __forceinline__ static Shared& Memory() {
    __shared__ Shared shared;
    return shared;
  }

  // Over warps, a lane each.
  __device__ __forceinline__ static WarpScan ScanOfWarps(const uint64_t (&sums)[kRowWarps]) {
    static_assert(kRowWarps <= 32);
    return WarpScan(Lane() < kRowWarps ? sums[Lane()] : 0);
  }

  // Of the histogram, which it empties. *target, where it is 0, is first set to the part of the sum
  // of all that is asked for; then it is lowered to that sum.
  __device__ __forceinline__ static Crossing Cross(double part, uint64_t* target) {
    static_assert(kBuckets == 4 * kRowThreads);
    uint4* low = reinterpret_cast<uint4*>(Histogram().low) + threadIdx.x;
    uint4* high = reinterpret_cast<uint4*>(Histogram().high) + threadIdx.x;
    const uint4 lows = *low;
    const uint4 highs = *high;
    *low = *high = make_uint4(0, 0, 0, 0);
    const uint64_t own[4] = {uint64_t{highs.x} << 32 | lows.x, uint64_t{highs.y} << 32 | lows.y,
                             uint64_t{highs.z} << 32 | lows.z, uint64_t{highs.w} << 32 | lows.w};
    const uint64_t sum = own[0] + own[1] + own[2] + own[3];
    const WarpScan scan(sum);
    if (Lane() == 31) Memory().sums[0][Warp()] = scan.sum();
    __syncthreads();
    const WarpScan warps = ScanOfWarps(Memory().sums[0]);
    const uint64_t total = warps.Total();
    if (*target == 0) *target = static_cast<uint64_t>(ceil(part * static_cast<double>(total)));
    *target = min(*target, total);
    uint64_t before = warps.Before(Warp()) + scan.sum() - sum;
    if (before < *target && *target <= before + sum) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (before < *target && *target <= before + own[i]) {
          Memory().crossing = {static_cast<int32_t>(threadIdx.x) * 4 + i, before, own[i]};
        }
        before += own[i];
      }
    }
    __syncthreads();
    return Memory().crossing;
  }

  // A token of this rank, if its key is not above `key`, weighs at least so much.
  __device__ __forceinline__ uint64_t LeastMass(Rank rank, uint32_t key) const {
    const double score = rank == Rank::kDistance
                             ? filters_.log_total - filters_.entropy - __uint_as_float(key)
                             : -__uint_as_float(key);
    const uint64_t mass = SamplerFilters::FixedPoint(expf(min(static_cast<float>(score), 0.0F)));
    const uint64_t error = (mass >> 16) + 1;  // rounding of distance and exponential
    return mass - min(mass, error);
  }

  // The least key such that the items with keys up to it have a part of the mass of all; of rank
  // kLogit, such that they are `count` or up to twice `slack` more. It ends as soon as all items in
  // a bucket are wanted: any key between the last of them and the next is as good. No key is above
  // `high`.
  __device__ __noinline__ Threshold Search(Rank rank, double part, uint64_t count, uint64_t slack,
                                           uint32_t high) {
    SamplerPass pass;
    pass.rank = rank;
    pass.use = Use::kHistogram;
    pass.linear = rank != Rank::kLogit;
    pass.high = high;
    pass.end = items_.count;
    Threshold threshold;
    threshold.missing = count;
#pragma unroll 1
    for (bool first = true;; first = false) {
      pass.shift = max(0, 32 - __clz(pass.high - pass.low) - kDigitBits);
      RunPass(items_, filters_, pass);
      __syncthreads();
      const Crossing crossing = Cross(part, &threshold.missing);
      if (first) threshold.enough = threshold.missing >= count;
      threshold.missing -= crossing.before;
      const uint32_t bucket = crossing.bucket;
      if (pass.linear) {
        pass.low = __float_as_uint(static_cast<float>(bucket) / kLinearBuckets);
        if (bucket + 1 < kBuckets) {
          pass.high = __float_as_uint(static_cast<float>(bucket + 1) / kLinearBuckets) - 1;
        }
        pass.linear = false;
      } else {
        pass.low += bucket << pass.shift;
        pass.high = min(pass.high, pass.low + ((1U << pass.shift) - 1));
      }
      threshold.key = pass.high;
      const uint64_t least = rank == Rank::kLogit ? slack + 1 : LeastMass(rank, pass.high);
      // Not even the lightest can be spared, or there is but one.
      threshold.whole = crossing.inside < threshold.missing + least || crossing.inside < 2 * least;
      if (threshold.whole || pass.low == pass.high) return threshold;
    }
  }

  // Of the tokens whose depth is in [low, high] the first at which the running sum of mass exceeds
  // `target`; if `draws`, exceeds a random part of the sum of all.
  __device__ __noinline__ int32_t FirstBeyond(uint32_t low, uint32_t high, bool draws,
                                              uint64_t target) {
    SamplerPass pass;
    pass.low = low;
    pass.high = high;
    pass.end = items_.count;
    int turn = 0;
#pragma unroll 1
    for (;; turn = 1 - turn) {
      const uint64_t own = RunPass(items_, filters_, pass).mass;
      const uint64_t sum = WarpSum(own);
      if (Lane() == 0) Memory().sums[turn][Warp()] = sum;
      __syncthreads();
      const WarpScan warps = ScanOfWarps(Memory().sums[turn]);
      if (draws) {
        const float uniform =
            TokenUniform(row_.state.seed, static_cast<uint64_t>(row_.state.generated));
        target = static_cast<uint64_t>(static_cast<double>(uniform) *
                                       static_cast<double>(warps.Total()));
        draws = false;
      }
      const int chosen = warps.FirstBeyond(target, kRowWarps);
      target -= warps.Before(chosen);
      const int32_t piece = PieceOf(pass.end - pass.begin);
      pass.begin += chosen * piece;
      pass.end = min(pass.end, pass.begin + piece);
      if (piece > 32) continue;
      if (Warp() == chosen) {
        const int lane = WarpScan(own).FirstBeyond(target, pass.end - pass.begin);
        if (Lane() == 0) Memory().token = items_.Index(pass.begin + lane);
      }
      __syncthreads();
      return Memory().token;
    }
  }

  // Puts the indices of items that are not below `least` into a list, in order, and makes them the
  // items if there is room. Returns whether.
  __device__ __noinline__ bool Compact(float least, int32_t* list) {
    const SamplerItems items = items_;
    const int32_t piece = PieceOf(items.count);
    const int32_t first = Warp() * piece;
    const int32_t last = min(items.count, first + piece);
    int32_t total = 0;
    int32_t place = 0;
    // Counted, then written.
#pragma unroll 1
    for (bool writes = false;; writes = true) {
#pragma unroll 1
      for (int32_t base = first; base < last; base += 32 * kBatch) {
        float value[kBatch];
        items.Load(base + Lane(), last, value);
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
          const unsigned kept = __ballot_sync(kFullWarp, value[b] >= least);
          if (writes && value[b] >= least) {
            const int before = __popc(kept & ((1U << Lane()) - 1));
            list[place + before] = items.Index(base + Lane() + 32 * b);
          }
          place += __popc(kept);
        }
      }
      if (writes) break;
      if (Lane() == 0) Memory().sums[0][Warp()] = place;
      __syncthreads();
      const WarpScan warps = ScanOfWarps(Memory().sums[0]);
      total = static_cast<int32_t>(warps.Total());
      if (total > kListed) break;
      place = static_cast<int32_t>(warps.Before(Warp()));
    }
    if (total <= kListed) {
      items_.groups = list;
      items_.shift = 0;
      items_.count = total;
    }
    __syncthreads();
    return total <= kListed;
  }

  // Makes the tokens that may be among the k largest the items; false if they are too many.
  __device__ __forceinline__ bool ListLargest(int32_t top_k, uint32_t* high) {
    if (top_k > min(row_.tiles, kListed)) return false;
    const SamplerItems row = items_;
    items_.values = &row_.parts->best;
    items_.stride = sizeof(LogitsPart) / sizeof(float);
    items_.count = items_.indices = row_.tiles;
    const Threshold tiles = Search(Rank::kLogit, 0.0, top_k, min(top_k / 4, 32), *high);
    const float least = FromOrderedKey(EqualKey(row_.largest) - tiles.key);
    if (tiles.enough && Compact(least, Memory().tiles)) {
      items_.values = row.values;
      items_.stride = row.stride;
      items_.shift = kTileShift;
      items_.count <<= kTileShift;
      items_.indices = row.indices;
      if (Compact(least, Memory().tokens)) {
        *high = tiles.key;
        return true;
      }
    }
    items_ = row;
    return false;
  }

  __device__ __noinline__ void KeepTopK(int32_t top_k) {
    const uint32_t largest = EqualKey(row_.largest);
    uint32_t high = largest - OrderedKey(-FLT_MAX);
    ListLargest(top_k, &high);
    const Threshold threshold = Search(Rank::kLogit, 0.0, top_k, 0, high);
    filters_.least_logit = FromOrderedKey(largest - threshold.key);
  }

  __device__ __noinline__ void KeepTopP(float top_p) {
    const Threshold threshold = Search(Rank::kWeight, top_p, 0, 0, kInfinityBits);
    // Of those that equal the last one only as many as the mass still asks for, lowest ids first.
    if (!threshold.whole) {
      filters_.last_deepest =
          FirstBeyond(threshold.key, threshold.key, false, threshold.missing - 1);
    }
    filters_.largest_depth = threshold.key;
  }

  __device__ __noinline__ void KeepTypicalP(float typical_p) {
    SamplerPass pass;
    pass.use = Use::kMoments;
    pass.end = items_.count;
    const SamplerSums own = RunPass(items_, filters_, pass);
    const uint64_t warp_mass = WarpSum(own.mass);
    const double warp_moment = WarpSum(own.moment);
    if (Lane() == 0) {
      Memory().sums[0][Warp()] = warp_mass;
      Memory().moments[Warp()] = warp_moment;
    }
    __syncthreads();
    const auto total = static_cast<double>(ScanOfWarps(Memory().sums[0]).Total());
    const double moment = WarpSum(Lane() < kRowWarps ? Memory().moments[Lane()] : 0.0);
    // Of the probabilities p = exp(score) / sum: -(sum of p log p).
    filters_.log_total = log(total / SamplerFilters::kOne);
    filters_.entropy = filters_.log_total - moment / total;
    const Threshold threshold = Search(Rank::kDistance, typical_p, 0, 0, kInfinityBits);
    filters_.largest_distance = __uint_as_float(threshold.key);
    filters_.typical = true;
  }

  const SamplerRow& row_;
  SamplerItems items_;
  SamplerFilters filters_;
};

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_ROW_SAMPLER_CUH_
