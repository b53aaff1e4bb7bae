// T5's relative position bias, laid out for loops over keys.
#ifndef SEQ2SEQ_BACKEND_CPU_RELATIVE_POSITIONS_H_
#define SEQ2SEQ_BACKEND_CPU_RELATIVE_POSITIONS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "backend/model/model_spec.h"

namespace seq2seq::cpu {

// The bucket of a key at `key` seen by a query at `query`, `distance` = key - query.
// Raffel et al. 2020, 2.1: half of the buckets (of one side) hold one distance each, the others
// logarithmically growing ranges up to max_distance. Bidirectional (encoder): the upper half of all
// buckets is for keys after the query; else (decoder) such keys count as distance 0.
int32_t RelativeBucket(int32_t distance, bool bidirectional, const RelativePositionSpec& spec);

// The biases of one layer for all distances that `max_tokens` positions can have, head by head.
class PositionBias {
 public:
  // `table` is [spec.buckets, heads].
  PositionBias(std::span<const float> table, int32_t heads, bool bidirectional,
               const RelativePositionSpec& spec, int32_t max_tokens);

  // The bias of key j for this query is Row(head, query)[j].
  const float* Row(int32_t head, int32_t query) const {
    return values_.data() + head * head_stride_ + (max_tokens_ - 1 - query);
  }

 private:
  int32_t max_tokens_;
  size_t head_stride_;
  std::vector<float> values_;  // [heads, distances from 1 - max_tokens upwards]
};

}  // namespace seq2seq::cpu

#endif  // SEQ2SEQ_BACKEND_CPU_RELATIVE_POSITIONS_H_
