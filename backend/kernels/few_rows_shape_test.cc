// That what a block stages fits devices that are smaller than those that the kernels are tuned on.
#include "backend/kernels/few_rows_shape.h"

#include <gtest/gtest.h>

#include <cstddef>

namespace seq2seq::kernels {
namespace {

// Shared memory of a block by compute capability, from CUDA's programming guide.
constexpr size_t kLimit80 = 163 << 10;
constexpr size_t kLimit86And89 = 99 << 10;
constexpr size_t kLimit90 = 227 << 10;
constexpr size_t kStatic = 256;  // a block's factors

class FewRowsShapeTest : public testing::TestWithParam<size_t> {};

TEST_P(FewRowsShapeTest, StagesWhatFits) {
  for (const int inputs : {1, 32, 512, 1536, 3584, 10240, 65536}) {
    for (const int warps : {8, 16}) {
      for (const int tiles : {1, 2}) {
        for (const int row_tiles : {1, 2, 4, 8}) {
          if (warps == 16 && row_tiles > 2) continue;  // never launched
          const FewRowsShape shape =
              FewRowsShapeFor(inputs, warps, row_tiles, tiles, GetParam() - kStatic);
          EXPECT_LE(shape.shared_bytes() + kStatic, GetParam()) << inputs;
          EXPECT_EQ(shape.warps, warps);
          EXPECT_LE(shape.staged, kMaxStagedUnits);
          // Whole chunks of all tiles, and room for the sums of all pairs.
          EXPECT_EQ(shape.staged % tiles, 0);
          EXPECT_GE(shape.warp_vectors, tiles * row_tiles * 32);
          EXPECT_GE(shape.warp_vectors, shape.staged * kUnitVectors);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, FewRowsShapeTest,
                         testing::Values(kLimit80, kLimit86And89, kLimit90));

TEST(FewRowsShapeRoomTest, StagesAllThatItMayWhereThereIsRoom) {
  EXPECT_EQ(FewRowsShapeFor(10240, 16, 1, 1, kLimit90).staged, kMaxStagedUnits);
  EXPECT_EQ(FewRowsShapeFor(10240, 16, 1, 1, kLimit90).shared_bytes(), 160U << 10);
  // 16 warps x 6 units of 1 KB are 96 KB.
  EXPECT_EQ(FewRowsShapeFor(10240, 16, 1, 1, kLimit86And89 - kStatic).staged, 6);
  // 48 chunks are 3 for each of 16 warps, of which two are in registers.
  EXPECT_EQ(FewRowsShapeFor(1536, 16, 1, 1, kLimit86And89).staged, 1);
  EXPECT_EQ(FewRowsShapeFor(32, 8, 1, 2, kLimit86And89).staged, 0);
}

}  // namespace
}  // namespace seq2seq::kernels
