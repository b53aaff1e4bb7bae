// The attention kernels against softmax in double on the same rounded inputs.
#include <algorithm>

#include "backend/kernels/decode_attention.h"
#include "backend/kernels/decode_attention_kernels.h"
#include "backend/kernels/encoder_attention.h"
#include "backend/kernels/kernel_test_util.h"
#include "backend/kernels/operand_layout.h"

namespace seq2seq::kernels {
namespace {

// Weighted sum of values; scores and values by key.
std::vector<double> Attend(const std::vector<double>& scores,
                           const std::vector<std::vector<double>>& values) {
  const double max = *std::max_element(scores.begin(), scores.end());
  double sum = 0.0;
  std::vector<double> out(values[0].size(), 0.0);
  for (size_t key = 0; key < scores.size(); ++key) {
    const double weight = std::exp(scores[key] - max);
    sum += weight;
    for (size_t d = 0; d < out.size(); ++d) out[d] += weight * values[key][d];
  }
  for (double& value : out) value /= sum;
  return out;
}

struct DecodeCase {
  int32_t heads;
  int32_t head_dim;
  std::vector<int32_t> lengths;  // 0: a row that is not active
  bool cross;
  int32_t splits;
};

void TestDecode(ElementType type, const DecodeCase& test) {
  const auto rows = static_cast<int32_t>(test.lengths.size());
  const KvLayout layout(2, test.heads, test.head_dim);
  const int32_t longest = *std::max_element(test.lengths.begin(), test.lengths.end());
  const int32_t stride = longest / 16 + 1;
  const int32_t inner = test.heads * test.head_dim;
  const int32_t capacity = (rows + 7) / 8 * 8;
  constexpr int32_t kMaxDistance = 20;
  const DeviceValues pool(type, RandomValues(rows * stride * layout.BlockStride(), 1, 0.4));
  const DeviceValues query(ElementType::kFloat32, RandomValues(size_t(rows) * inner, 2));
  const DeviceValues bias(ElementType::kFloat32, RandomValues(test.heads * (kMaxDistance + 1), 3));
  std::vector<int32_t> table(size_t(rows) * stride);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(table.size() - 1 - i);
  std::vector<RowInfo> infos(rows);
  for (int32_t row = 0; row < rows; ++row) {
    const int32_t length = test.lengths[row];
    infos[row] = {rows - 1 - row, length - 1, length, length > 0 ? RowInfo::kActive : 0};
  }
  const DeviceRecords<RowInfo> device_infos(infos);
  const DeviceRecords<int32_t> device_table(table);
  DecodeAttentionArgs args;
  args.query = query.floats();
  args.pool = pool.data();
  args.layout = layout;
  args.layer_offset = layout.LayerStride();
  args.blocks = device_table.data();
  args.block_stride = stride;
  args.row_infos = device_infos.data();
  args.rows = rows;
  args.row_capacity = capacity;
  args.cross = test.cross;
  if (!test.cross) args.bias = bias.floats();
  args.max_distance = test.cross ? 0 : kMaxDistance;
  args.scale = 0.6F;
  args.splits = test.splits;
  std::vector<double> expected;
  for (int32_t row = 0; row < rows; ++row) {
    for (int32_t head = 0; head < test.heads; ++head) {
      std::vector<double> exact(test.head_dim, 0.0);
      std::vector<double> scores;
      std::vector<std::vector<double>> values;
      for (int32_t key = 0; key < test.lengths[row]; ++key) {
        const int64_t block = table[infos[row].slot * stride + key / 16];
        const int64_t at = block * layout.BlockStride() + layout.LayerStride() +
                           head * layout.HeadStride() + key % 16 * test.head_dim;
        double score = 0.0;
        std::vector<double> value;
        for (int32_t d = 0; d < test.head_dim; ++d) {
          score += query.rounded()[size_t(row) * inner + head * test.head_dim + d] *
                   pool.rounded()[at + d];
          value.push_back(pool.rounded()[at + layout.ValueOffset() + d]);
        }
        score *= args.scale;
        const int32_t distance = std::min(infos[row].position - key, kMaxDistance);
        if (!test.cross) score += bias.rounded()[head * (kMaxDistance + 1) + distance];
        scores.push_back(score);
        values.push_back(value);
      }
      if (!scores.empty()) exact = Attend(scores, values);
      for (int32_t d = 0; d < test.head_dim; ++d) {
        expected.push_back(exact[d]);
      }
    }
  }
  const auto check = [&](const char* kernel, auto launch) {
    const DeviceValues output(type, Poison(size_t(inner + 31) / 32 * 32 * capacity));
    args.output = output.data();
    RunOnStream([&](cudaStream_t stream) { return launch(type, args, LaunchContext{stream}); });
    const std::vector<double> got = output.Read();
    std::vector<double> actual;
    for (int32_t row = 0; row < rows; ++row) {
      for (int32_t k = 0; k < inner; ++k) {
        actual.push_back(got[BlockedPlace(type, row, k, capacity)]);
      }
    }
    CheckClose(actual, expected, Tolerance(type),
               std::string(TypeName(type)) + (test.cross ? " cross" : " self") + " attention, " +
                   std::to_string(test.heads) + " heads of " + std::to_string(test.head_dim) +
                   ", " + std::to_string(rows) + " rows up to " + std::to_string(longest) +
                   ", splits " + std::to_string(test.splits) + kernel);
  };
  check("", LaunchDecodeAttention);
  if (CanStreamDecodeAttention(type, args)) check(", streamed", LaunchStreamedDecodeAttention);
}

void TestEncoder(ElementType type, int32_t heads, int32_t head_dim,
                 const std::vector<int32_t>& lengths, bool with_bias) {
  constexpr int32_t kMaxDistance = 30;
  const int32_t inner = heads * head_dim;
  std::vector<QueryTile> tiles;
  int32_t tokens = 0;
  for (const int32_t length : lengths) {
    for (int32_t query = 0; query < length; query += kQueryTile) {
      tiles.push_back({tokens, length, query, 0});
    }
    tokens += length;
  }
  const DeviceValues source(type, RandomValues(size_t(tokens) * 3 * inner, 4, 0.5));
  const DeviceValues bias(ElementType::kFloat32, RandomValues(heads * (2 * kMaxDistance + 1), 5));
  const DeviceValues output(type, Poison(size_t(tokens) * inner));
  const DeviceRecords<QueryTile> device_tiles(tiles);
  EncoderAttentionArgs args;
  args.query_key_value = source.data();
  args.output = output.data();
  args.tiles = device_tiles.data();
  args.tile_count = static_cast<int32_t>(tiles.size());
  args.tokens = tokens;
  args.heads = heads;
  args.head_dim = head_dim;
  if (with_bias) args.bias = bias.floats();
  args.max_distance = kMaxDistance;
  args.scale = 0.8F;
  RunOnStream([&](cudaStream_t stream) { return LaunchEncoderAttention(type, args, {stream}); });
  std::vector<double> expected;
  int32_t first = 0;
  const auto at = [&](int32_t token, int32_t part, int32_t head, int32_t d) {
    return source.rounded()[(size_t(token) * 3 + part) * inner + head * head_dim + d];
  };
  for (const int32_t length : lengths) {
    for (int32_t query = 0; query < length; ++query) {
      for (int32_t head = 0; head < heads; ++head) {
        std::vector<double> scores;
        std::vector<std::vector<double>> values;
        for (int32_t key = 0; key < length; ++key) {
          double score = 0.0;
          std::vector<double> value;
          for (int32_t d = 0; d < head_dim; ++d) {
            score += at(first + query, 0, head, d) * at(first + key, 1, head, d);
            value.push_back(at(first + key, 2, head, d));
          }
          score *= args.scale;
          const int32_t distance = std::clamp(key - query, -kMaxDistance, kMaxDistance);
          if (with_bias) {
            score += bias.rounded()[head * (2 * kMaxDistance + 1) + distance + kMaxDistance];
          }
          scores.push_back(score);
          values.push_back(value);
        }
        for (const double value : Attend(scores, values)) expected.push_back(value);
      }
    }
    first += length;
  }
  CheckClose(output.Read(), expected, Tolerance(type),
             std::string(TypeName(type)) + " encoder attention, " + std::to_string(heads) +
                 " heads of " + std::to_string(head_dim) + ", " + std::to_string(tokens) +
                 " tokens" + (with_bias ? ", bias" : ""));
}

class AttentionTest : public testing::TestWithParam<ElementType> {
 protected:
  void SetUp() override { CheckCuda(PrepareEncoderAttention(), "PrepareEncoderAttention"); }
};

// Lengths around a block of 16 tokens and around what one pass of a thread block reads.
TEST_P(AttentionTest, DecodeSelf) {
  TestDecode(GetParam(), {6, 16, {1, 15, 0, 16, 17, 31, 33, 64, 65, 200}, false, 1});
  TestDecode(GetParam(), {3, 64, {1, 63, 64, 65, 129, 300}, false, 1});
  TestDecode(GetParam(), {1, 8, {48, 0, 47, 49}, false, 1});
}

// Around what is on its way to a warp at once (2 or 13 blocks of the cache, or as many as fill the
// device), and around the 32 blocks that a warp looks up at once.
TEST_P(AttentionTest, DecodeOfManyBlocks) {
  TestDecode(GetParam(), {5, 64, {32, 33, 34, 0, 512, 513, 514, 1041}, false, 1});
  TestDecode(GetParam(), {3, 64, {0, 207, 208, 209, 511, 512, 513, 1025}, true, 1});
}

TEST_P(AttentionTest, DecodeSelfInClusters) {
  TestDecode(GetParam(), {3, 64, {1, 63, 64, 65, 129, 300}, false, 2});
  TestDecode(GetParam(), {24, 64, {128}, false, 4});
  TestDecode(GetParam(), {2, 32, {0, 16, 15}, false, 8});
}

TEST_P(AttentionTest, DecodeCross) {
  TestDecode(GetParam(), {4, 64, {512, 7, 0, 100}, true, 1});
  TestDecode(GetParam(), {2, 8, {5, 90}, true, 1});
  TestDecode(GetParam(), {2, 24, {17, 16, 1}, true, 1});
}

TEST_P(AttentionTest, DecodeCrossInClusters) {
  TestDecode(GetParam(), {4, 64, {512, 7, 0, 100}, true, 8});
  TestDecode(GetParam(), {2, 128, {33, 500}, true, 4});
  TestDecode(GetParam(), {1, 64, {1, 2, 511}, true, 2});
}

TEST_P(AttentionTest, LargeDecodeOfManyRows) {
  std::vector<int32_t> lengths(70);
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = static_cast<int32_t>(i * 37 % 200);
  TestDecode(GetParam(), {4, 64, lengths, true, 1});
  TestDecode(GetParam(), {4, 64, lengths, false, 1});
  // More heads than a multiprocessor's share of five, with less to keep of each.
  for (int32_t& length : lengths) length %= 75;
  TestDecode(GetParam(), {10, 64, lengths, true, 1});
  TestDecode(GetParam(), {10, 64, lengths, false, 1});
}

TEST_P(AttentionTest, Encoder) {
  TestEncoder(GetParam(), 2, 64, {1, 63, 64, 65, 130, 7}, true);
  TestEncoder(GetParam(), 2, 64, {100}, false);
  TestEncoder(GetParam(), 1, 128, {40, 70, 128, 129}, true);
}

TEST_P(AttentionTest, EncoderOfOtherHeads) {
  TestEncoder(GetParam(), 3, 16, {12, 100, 3}, true);
  TestEncoder(GetParam(), 2, 32, {65, 64}, false);
  TestEncoder(GetParam(), 1, 256, {20}, true);
}

TEST_P(AttentionTest, LargeEncoder) { TestEncoder(GetParam(), 4, 64, {513, 300, 5}, true); }

INSTANTIATE_TEST_SUITE_P(Types, AttentionTest, testing::ValuesIn(kElementTypes), TypeParamName);

}  // namespace
}  // namespace seq2seq::kernels
