#include "backend/cpu/relative_positions.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace seq2seq::cpu {

int32_t RelativeBucket(int32_t distance, bool bidirectional, const RelativePositionSpec& spec) {
  int32_t buckets = spec.buckets;
  int32_t first = 0;
  int32_t away = std::max(-distance, 0);
  if (bidirectional) {
    buckets /= 2;
    first = distance > 0 ? buckets : 0;
    away = std::abs(distance);
  }
  const int32_t exact = buckets / 2;
  if (away < exact) return first + away;
  // In float, as the published models were trained: double moves some borders by one bucket.
  const float ratio = std::log(static_cast<float>(away) / static_cast<float>(exact)) /
                      static_cast<float>(std::log(static_cast<double>(spec.max_distance) / exact));
  const float beyond = ratio * static_cast<float>(buckets - exact);
  // Far beyond max_distance the float may exceed an int; all of it is the last bucket.
  const int32_t last = buckets - 1;
  if (!(beyond < static_cast<float>(last - exact))) return first + last;
  return first + exact + static_cast<int32_t>(beyond);
}

PositionBias::PositionBias(std::span<const float> table, int32_t heads, bool bidirectional,
                           const RelativePositionSpec& spec, int32_t max_tokens)
    : max_tokens_(max_tokens),
      head_stride_(bidirectional ? 2 * static_cast<size_t>(max_tokens) - 1 : max_tokens),
      values_(heads * head_stride_) {
  const int32_t last_distance = bidirectional ? max_tokens - 1 : 0;
  for (int32_t distance = 1 - max_tokens; distance <= last_distance; ++distance) {
    const int32_t bucket = RelativeBucket(distance, bidirectional, spec);
    for (int32_t head = 0; head < heads; ++head) {
      values_[head * head_stride_ + distance + max_tokens - 1] = table[bucket * heads + head];
    }
  }
}

}  // namespace seq2seq::cpu
