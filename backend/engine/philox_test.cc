#include "backend/engine/philox.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <set>

namespace seq2seq {
namespace {

using Block = std::array<uint32_t, 4>;

// The known-answer vectors that Random123 publishes for philox4x32-10.
TEST(Philox, MatchesThePublishedVectors) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(TokenUniform, UsesTheUpperBitsOfTheFirstWord) {
  EXPECT_EQ(TokenUniform(0, 0), static_cast<float>(0x6627e8) / 16777216.0F);
}

TEST(TokenUniform, SplitsSeedAndIndexIntoWords) {
  const uint64_t seed = 0xFEDCBA9876543210U;
  const uint64_t index = 0x0000000500000007U;
  const Block block = Philox4x32({7, 5, 0, 0}, {0x76543210U, 0xFEDCBA98U});
  EXPECT_EQ(TokenUniform(seed, index), std::ldexp(static_cast<float>(block[0] >> 8), -24));
}

TEST(TokenUniform, StaysBelowOneAndIsEven) {
  constexpr int kDraws = 20000;
  constexpr int kBins = 20;
  std::array<int, kBins> counts = {};
  for (int index = 0; index < kDraws; ++index) {
    const float uniform = TokenUniform(12345, index);
    ASSERT_GE(uniform, 0.0F);
    ASSERT_LT(uniform, 1.0F);
    ++counts[static_cast<int>(uniform * kBins)];
  }
  double chi_square = 0.0;
  constexpr double kExpected = static_cast<double>(kDraws) / kBins;
  for (const int count : counts) {
    chi_square += (count - kExpected) * (count - kExpected) / kExpected;
  }
  EXPECT_LT(chi_square, 43.8);  // the 0.999 quantile for 19 degrees of freedom
}

TEST(TokenUniform, DiffersBetweenSeedsAndIndices) {
  std::set<float> seen;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (uint64_t index = 0; index < 20; ++index) seen.insert(TokenUniform(seed, index));
  }
  EXPECT_GT(seen.size(), 395U);  // of 400, 2^24 values to choose from
}

}  // namespace
}  // namespace seq2seq
