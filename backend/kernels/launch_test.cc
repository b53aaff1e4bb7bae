// What launchers refuse before they ask a device, so with and without one.
#include "backend/kernels/launch.h"

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "backend/kernels/convert.h"
#include "backend/kernels/decode_attention.h"
#include "backend/kernels/element_type.h"
#include "backend/kernels/encoder_attention.h"
#include "backend/kernels/step_state.h"

namespace seq2seq::kernels {
namespace {

constexpr ElementType kTypes[] = {ElementType::kFloat32, ElementType::kFloat16,
                                  ElementType::kBfloat16};

TEST(LaunchTest, TheDefaultStreamIsRefused) {
  ConvertArgs args;
  args.count = 1;
  EXPECT_EQ(LaunchConvert(args, {}), cudaErrorInvalidResourceHandle);
}

TEST(LaunchTest, NothingToDoLaunchesNothing) {
  EXPECT_EQ(LaunchConvert({}, {}), cudaSuccess);
  EXPECT_EQ(LaunchBindSlots(nullptr, nullptr, 0, {}, {}), cudaSuccess);
}

TEST(LaunchTest, DecodeAttentionRefusesWhatItCannotRead) {
  for (const ElementType type : kTypes) {
    DecodeAttentionArgs args;
    args.rows = 1;
    args.layout = {1, 1, 2};  // heads that are no whole number of 16-byte pieces
    EXPECT_EQ(LaunchDecodeAttention(type, args, {}), cudaErrorInvalidValue);
    args.layout.head_dim = 512;
    EXPECT_EQ(LaunchDecodeAttention(type, args, {}), cudaErrorInvalidValue);
    args.layout.head_dim = 64;
    args.splits = 16;
    EXPECT_EQ(LaunchDecodeAttention(type, args, {}), cudaErrorInvalidValue);
  }
}

TEST(LaunchTest, EncoderAttentionRefusesWhatItCannotRead) {
  for (const ElementType type : kTypes) {
    EncoderAttentionArgs args;
    args.tile_count = 1;
    args.heads = 1;
    args.head_dim = 2;
    EXPECT_EQ(LaunchEncoderAttention(type, args, {}), cudaErrorInvalidValue);
    args.head_dim = 512;
    EXPECT_EQ(LaunchEncoderAttention(type, args, {}), cudaErrorInvalidValue);
    args.head_dim = 64;
    args.max_distance = 4097;
    EXPECT_EQ(LaunchEncoderAttention(type, args, {}), cudaErrorInvalidValue);
  }
}

// Compute capabilities 8.6 and 8.9 give a block 99 KB, 8.0 163 KB and 9.0 227 KB.
TEST(LaunchTest, EncoderAttentionOfTilesIsForShapesThatFitTheDevice) {
  EXPECT_TRUE(TileAttentionTakes(64, 4096, 99 << 10));
  EXPECT_TRUE(TileAttentionTakes(128, 128, 99 << 10));
  // Keys and values: 4 x 64 rows of 272 bytes; the bias: 8,193 floats.
  EXPECT_FALSE(TileAttentionTakes(128, 4096, 99 << 10));
  EXPECT_TRUE(TileAttentionTakes(128, 4096, 4 * 64 * 272 + 8193 * 4));
  EXPECT_FALSE(TileAttentionTakes(128, 4096, 4 * 64 * 272 + 8193 * 4 - 1));
  EXPECT_TRUE(TileAttentionTakes(128, 4096, 163 << 10));
  EXPECT_FALSE(TileAttentionTakes(32, 128, 227 << 10));
}

}  // namespace
}  // namespace seq2seq::kernels
