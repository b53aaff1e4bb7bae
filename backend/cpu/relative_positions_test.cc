#include "backend/cpu/relative_positions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <vector>

namespace seq2seq::cpu {
namespace {

// The paper's formula in exact terms: the largest bucket whose lower border, exact * (max /
// exact)^(step / steps), is not above the distance; borders are compared in double, with room for
// rounding at a border that is a whole number.
int32_t NaiveSide(int32_t away, int32_t buckets, int32_t max_distance) {
  const int32_t exact = buckets / 2;
  if (away < exact) return away;
  int32_t bucket = exact;
  for (int32_t b = exact + 1; b < buckets; ++b) {
    const double border = exact * std::pow(static_cast<double>(max_distance) / exact,
                                           static_cast<double>(b - exact) / (buckets - exact));
    if (away + 1e-5 * border >= border) bucket = b;
  }
  return bucket;
}

TEST(RelativeBucketTest, FollowsThePapersFormula) {
  for (const RelativePositionSpec spec :
       {RelativePositionSpec{32, 128}, RelativePositionSpec{32, 20}, RelativePositionSpec{8, 20},
        RelativePositionSpec{64, 256}}) {
    for (int32_t distance = -600; distance <= 600; ++distance) {
      const int32_t half = spec.buckets / 2;
      const int32_t both =
          NaiveSide(std::abs(distance), half, spec.max_distance) + (distance > 0 ? half : 0);
      EXPECT_EQ(RelativeBucket(distance, true, spec), both) << distance << ", " << spec.buckets;
      const int32_t past = NaiveSide(distance < 0 ? -distance : 0, spec.buckets, spec.max_distance);
      EXPECT_EQ(RelativeBucket(distance, false, spec), past) << distance << ", " << spec.buckets;
    }
  }
}

// transformers' T5Attention._relative_position_bucket(torch.tensor(d), num_buckets=32,
// max_distance=128) for a few distances around the borders.
TEST(RelativeBucketTest, EqualsPublishedValues) {
  const RelativePositionSpec spec{32, 128};
  EXPECT_EQ(RelativeBucket(-7, true, spec), 7);
  EXPECT_EQ(RelativeBucket(-8, true, spec), 8);
  EXPECT_EQ(RelativeBucket(8, true, spec), 24);
  EXPECT_EQ(RelativeBucket(-128, true, spec), 15);
  EXPECT_EQ(RelativeBucket(5000, true, spec), 31);
  EXPECT_EQ(RelativeBucket(-16, false, spec), 16);
  EXPECT_EQ(RelativeBucket(-128, false, spec), 31);
  EXPECT_EQ(RelativeBucket(3, false, spec), 0);
}

TEST(PositionBiasTest, RowsHoldTheTableByDistance) {
  const RelativePositionSpec spec{8, 20};
  constexpr int32_t kHeads = 3;
  constexpr int32_t kTokens = 40;
  std::vector<float> table(spec.buckets * kHeads);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i);
  for (bool bidirectional : {true, false}) {
    const PositionBias bias(table, kHeads, bidirectional, spec, kTokens);
    for (int32_t head = 0; head < kHeads; ++head) {
      for (int32_t query = 0; query < kTokens; ++query) {
        for (int32_t key = 0; key < (bidirectional ? kTokens : query + 1); ++key) {
          const int32_t bucket = RelativeBucket(key - query, bidirectional, spec);
          EXPECT_EQ(bias.Row(head, query)[key], table[bucket * kHeads + head]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace seq2seq::cpu
