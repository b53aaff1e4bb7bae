// The encoder's attention against arithmetic in double: every kernel that LaunchEncoderAttention
// chooses between, sources that end within tiles, biases that reach their limit and that don't.
#include "backend/kernels/encoder_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "backend/kernels/kernel_test_util.h"

namespace seq2seq::kernels {
namespace {

struct Shape {
  const char* name;
  int32_t heads;
  int32_t head_dim;
  std::vector<int32_t> lengths;
  int32_t max_distance;  // 0: no bias
  size_t shared_limit = LaunchContext().shared_limit;
};

using Case = std::tuple<Shape, ElementType>;

class EncoderAttentionGpuTest : public testing::TestWithParam<Case> {};

// softmax(scale q k^T + bias) v of one head of one source.
struct Reference {
  const std::vector<double>& source;  // [tokens][3 heads head_dim]
  const std::vector<double>& bias;
  const Shape& shape;
  double scale;

  double At(int32_t token, int32_t part, int32_t head, int32_t d) const {
    return source[(int64_t{token} * 3 + part) * shape.heads * shape.head_dim +
                  head * shape.head_dim + d];
  }

  // output: [head_dim]
  void Attend(int32_t first, int32_t length, int32_t query, int32_t head, double* output) const {
    std::vector<double> weights;
    double sum = 0.0;
    for (int32_t key = 0; key < length; ++key) {
      double score = 0.0;
      for (int32_t d = 0; d < shape.head_dim; ++d) {
        score += At(first + query, 0, head, d) * At(first + key, 1, head, d);
      }
      score *= scale;
      if (shape.max_distance > 0) {
        const int32_t distance = std::clamp(key - query, -shape.max_distance, shape.max_distance);
        score += bias[head * (2 * shape.max_distance + 1) + distance + shape.max_distance];
      }
      weights.push_back(std::exp(score));
      sum += weights.back();
    }
    for (int32_t d = 0; d < shape.head_dim; ++d) {
      double value = 0.0;
      for (int32_t key = 0; key < length; ++key) {
        value += weights[key] * At(first + key, 2, head, d);
      }
      output[d] = value / sum;
    }
  }
};

TEST_P(EncoderAttentionGpuTest, MatchesDoublePrecision) {
  const Shape& shape = std::get<0>(GetParam());
  const ElementType type = std::get<1>(GetParam());
  const int32_t inner = shape.heads * shape.head_dim;
  std::vector<QueryTile> tiles;
  int32_t tokens = 0;
  for (const int32_t length : shape.lengths) {
    for (int32_t query = 0; query < length; query += kQueryTile) {
      tiles.push_back({tokens, length, query, 0});
    }
    tokens += length;
  }
  tiles.emplace_back();  // of no source
  const DeviceValues source(type, RandomValues(int64_t{tokens} * 3 * inner, 1, 0.7));
  const DeviceValues bias(ElementType::kFloat32,
                          RandomValues(shape.heads * (2 * shape.max_distance + 1), 2));
  const DeviceValues output(type, Poison(int64_t{tokens} * inner));
  const DeviceRecords<QueryTile> device_tiles(tiles);
  EncoderAttentionArgs args;
  args.query_key_value = source.data();
  args.output = output.data();
  args.tiles = device_tiles.data();
  args.tile_count = static_cast<int32_t>(tiles.size());
  args.tokens = tokens;
  args.heads = shape.heads;
  args.head_dim = shape.head_dim;
  if (shape.max_distance > 0) args.bias = bias.floats();
  args.max_distance = shape.max_distance;
  args.scale = 0.6F;
  ASSERT_EQ(PrepareEncoderAttention(), cudaSuccess);
  RunOnStream([&](cudaStream_t stream) {
    return LaunchEncoderAttention(type, args,
                                  {.stream = stream, .shared_limit = shape.shared_limit});
  });

  const Reference reference{source.rounded(), bias.rounded(), shape, args.scale};
  std::vector<double> expected(int64_t{tokens} * inner);
  int32_t first = 0;
  for (const int32_t length : shape.lengths) {
    ForEach(length, [&](size_t query) {
      for (int32_t head = 0; head < shape.heads; ++head) {
        reference.Attend(first, length, static_cast<int32_t>(query), head,
                         &expected[(first + query) * inner + head * shape.head_dim]);
      }
    });
    first += length;
  }
  EXPECT_LE(RelativeError(output.Read(), expected), Tolerance(type));
}

const Shape kShapes[] = {
    {"OneToken", 2, 64, {1}, 8},
    {"TileEdges", 2, 64, {63, 64, 65, 127, 128, 129, 7}, 30},
    {"ManyTiles", 2, 64, {512, 300}, 128},
    {"OddDistance", 1, 64, {200, 33}, 31},
    {"BiasOfFarAway", 1, 64, {700}, 4},
    {"BiasOfAll", 1, 64, {260}, 1024},
    {"NoBias", 3, 64, {100, 450}, 0},
    {"Wide", 1, 128, {40, 170, 129}, 30},
    {"Widest", 1, 256, {20}, 30},
    {"Narrow", 3, 16, {12, 140, 3}, 30},
    {"NarrowWithoutBias", 2, 32, {65, 64}, 0},
    // More than a block has on compute capabilities 8.6 and 8.9, and what one has there.
    {"WideBiasOnASmallDevice", 1, 128, {150}, 4096, 99 << 10},
    {"WideOnASmallDevice", 1, 128, {150}, 3900, 99 << 10},
};

INSTANTIATE_TEST_SUITE_P(ShapesAndTypes, EncoderAttentionGpuTest,
                         testing::Combine(testing::ValuesIn(kShapes),
                                          testing::Values(ElementType::kFloat32,
                                                          ElementType::kFloat16,
                                                          ElementType::kBfloat16)),
                         [](const testing::TestParamInfo<Case>& info) {
                           return std::string(std::get<0>(info.param).name) +
                                  TypeName(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace seq2seq::kernels
