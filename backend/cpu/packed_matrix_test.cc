#include "backend/cpu/packed_matrix.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "backend/cpu/float_formats.h"

namespace seq2seq::cpu {
namespace {

TensorView View(const std::vector<float>& values, int64_t rows) {
  return {reinterpret_cast<const std::byte*>(values.data()),
          DType::kFloat32,
          {rows, static_cast<int64_t>(values.size()) / rows}};
}

TEST(FloatFormatsTest, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    if ((bits & 0x7fff) <= 0x7c00) {
      EXPECT_EQ(ToFloat16(FromFloat16(half)), half);
    }
    if ((bits & 0x7fff) <= 0x7f80) {
      EXPECT_EQ(ToBFloat16(FromBFloat16(half)), half);
    }
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(FromFloat16(ToFloat16(nan))));
  EXPECT_TRUE(std::isnan(FromBFloat16(ToBFloat16(nan))));
}

TEST(FloatFormatsTest, KnownValues) {
  EXPECT_EQ(FromFloat16(0x3c00), 1.0F);
  EXPECT_EQ(FromFloat16(0x7bff), 65504.0F);
  EXPECT_EQ(FromFloat16(0x0001), 0x1p-24F);
  EXPECT_EQ(FromFloat16(0xc000), -2.0F);
  EXPECT_EQ(ToFloat16(65519.0F), 0x7bff);
  EXPECT_EQ(ToFloat16(65520.0F), 0x7c00);
  EXPECT_EQ(ToFloat16(1.0F + 0x1p-11F), 0x3c00);      // tie: to even
  EXPECT_EQ(ToFloat16(1.0F + 3 * 0x1p-11F), 0x3c02);  // tie: to even
  EXPECT_EQ(ToFloat16(0x1p-25F), 0x0000);             // tie: to even
  EXPECT_EQ(ToFloat16(1.5F * 0x1p-24F), 0x0002);      // tie: to even
  EXPECT_EQ(ToBFloat16(1.0F + 0x1p-8F), 0x3f80);      // tie: to even
  EXPECT_EQ(ToBFloat16(1.0F + 3 * 0x1p-8F), 0x3f82);  // tie: to even
}

class PackedMatrixTest : public testing::TestWithParam<DType> {};

TEST_P(PackedMatrixTest, KeepsEveryValueOfAllParts) {
  constexpr int64_t kDepth = 7;
  // Whole numbers that every format holds.
  std::vector<float> first(5 * kDepth), second(61 * kDepth);
  for (size_t i = 0; i < first.size(); ++i) first[i] = static_cast<float>(i);
  for (size_t i = 0; i < second.size(); ++i) second[i] = -static_cast<float>(i % 200);
  const std::vector<TensorView> parts = {View(first, 5), View(second, 61)};
  std::vector<std::byte> memory(PackedMatrix::PackedBytes(66, kDepth, GetParam()));
  EXPECT_EQ(memory.size(), 3 * 32 * kDepth * DTypeBytes(GetParam()));
  const auto matrix = PackedMatrix::Pack(parts, GetParam(), "m", memory.data());
  ASSERT_TRUE(matrix);
  EXPECT_EQ(matrix->outputs(), 66);
  EXPECT_EQ(matrix->depth(), kDepth);
  EXPECT_EQ(matrix->panels(), 3);
  std::vector<float> row(kDepth);
  for (int32_t output = 0; output < 66; ++output) {
    matrix->CopyRow(output, row.data());
    for (int32_t k = 0; k < kDepth; ++k) {
      const float truth =
          output < 5 ? first[output * kDepth + k] : second[(output - 5) * kDepth + k];
      EXPECT_EQ(row[k], truth) << output << ", " << k;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, PackedMatrixTest,
                         testing::Values(DType::kFloat32, DType::kFloat16, DType::kBFloat16));

TEST(PackedMatrixErrorTest, RefusesValuesThatOverflow) {
  const std::vector<float> values = {1.0F, 70000.0F};
  std::vector<std::byte> memory(PackedMatrix::PackedBytes(1, 2, DType::kFloat16));
  const std::vector<TensorView> parts = {View(values, 1)};
  const auto matrix = PackedMatrix::Pack(parts, DType::kFloat16, "the head", memory.data());
  ASSERT_FALSE(matrix);
  EXPECT_EQ(matrix.error().code, ErrorCode::kInvalidArgument);
  for (const char* word : {"the head", "weights_dtype", "float16"}) {
    EXPECT_NE(matrix.error().message.find(word), std::string::npos) << matrix.error().message;
  }
}

}  // namespace
}  // namespace seq2seq::cpu
