#include "backend/kernels/kv_layout.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace seq2seq::kernels {
namespace {

// T5's widths of a head, and others; up to as many dimensions as the widest models have.
TEST(KvLayoutTest, FindsTheHeadOfADimensionAsDivisionDoes) {
  for (const int32_t head_dim : {2, 8, 24, 40, 64, 80, 128, 255, 256}) {
    const KvLayout layout(1, 1, head_dim);
    for (int32_t index = 0; index < 128 * 256; ++index) {
      ASSERT_EQ(layout.HeadOf(index), index / head_dim) << index << " / " << head_dim;
    }
  }
}

TEST(KvLayoutTest, StridesNest) {
  const KvLayout layout(3, 5, 64);
  EXPECT_EQ(layout.HeadStride(), kBlockTokens * 64);
  EXPECT_EQ(layout.ValueOffset(), 5 * layout.HeadStride());
  EXPECT_EQ(layout.BlockStride(), 3 * 2 * 5 * kBlockTokens * 64);
}

}  // namespace
}  // namespace seq2seq::kernels
