// The decoder's attention against softmax in double on the same rounded inputs.
#include "backend/kernels/decode_attention.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "backend/kernels/decode_attention_kernels.h"
#include "backend/kernels/kernel_test_util.h"
#include "backend/kernels/operand_layout.h"

namespace seq2seq::kernels {
namespace {

// Weighted sum of values; scores and values by key.
void Attend(const std::vector<double>& scores, const std::vector<const double*>& values,
            std::span<double> out) {
  const double max = *std::max_element(scores.begin(), scores.end());
  double sum = 0.0;
  for (const double score : scores) sum += std::exp(score - max);
  for (size_t key = 0; key < scores.size(); ++key) {
    const double weight = std::exp(scores[key] - max) / sum;
    for (size_t d = 0; d < out.size(); ++d) out[d] += weight * values[key][d];
  }
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
  // A row that is not active has zeros.
  std::vector<double> expected(size_t(rows) * inner, 0.0);
  ForEach(size_t(rows) * test.heads, [&](size_t i) {
    const auto row = static_cast<int32_t>(i) / test.heads;
    const auto head = static_cast<int32_t>(i) % test.heads;
    const double* query_of_head = &query.rounded()[i * test.head_dim];
    std::vector<double> scores;
    std::vector<const double*> values;
    for (int32_t key = 0; key < test.lengths[row]; ++key) {
      const int64_t block = table[infos[row].slot * stride + key / 16];
      const double* of_key = &pool.rounded()[block * layout.BlockStride() + layout.LayerStride() +
                                             head * layout.HeadStride() + key % 16 * test.head_dim];
      const double product = std::inner_product(of_key, of_key + test.head_dim, query_of_head, 0.0);
      const int32_t distance = std::min(infos[row].position - key, kMaxDistance);
      scores.push_back(product * args.scale +
                       (test.cross ? 0.0 : bias.rounded()[head * (kMaxDistance + 1) + distance]));
      values.push_back(of_key + layout.ValueOffset());
    }
    if (!scores.empty())
      Attend(scores, values, {&expected[i * test.head_dim], size_t(test.head_dim)});
  });
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

class DecodeAttentionTest : public testing::TestWithParam<ElementType> {};

// Lengths around a block of 16 tokens and around what one pass of a thread block reads.
TEST_P(DecodeAttentionTest, Self) {
  TestDecode(GetParam(), {6, 16, {1, 15, 0, 16, 17, 31, 33, 64, 65, 200}, false, 1});
  TestDecode(GetParam(), {3, 64, {1, 63, 64, 65, 129, 300}, false, 1});
  TestDecode(GetParam(), {1, 8, {48, 0, 47, 49}, false, 1});
}

// Around what is on its way to a warp at once (2 or 13 blocks of the cache, or as many as fill the
// device), and around the 32 blocks that a warp looks up at once.
TEST_P(DecodeAttentionTest, ManyBlocks) {
  TestDecode(GetParam(), {5, 64, {32, 33, 34, 0, 512, 513, 514, 1041}, false, 1});
  TestDecode(GetParam(), {3, 64, {0, 207, 208, 209, 511, 512, 513, 1025}, true, 1});
}

TEST_P(DecodeAttentionTest, SelfInClusters) {
  TestDecode(GetParam(), {3, 64, {1, 63, 64, 65, 129, 300}, false, 2});
  TestDecode(GetParam(), {24, 64, {128}, false, 4});
  TestDecode(GetParam(), {2, 32, {0, 16, 15}, false, 8});
}

TEST_P(DecodeAttentionTest, Cross) {
  TestDecode(GetParam(), {4, 64, {512, 7, 0, 100}, true, 1});
  TestDecode(GetParam(), {2, 8, {5, 90}, true, 1});
  TestDecode(GetParam(), {2, 24, {17, 16, 1}, true, 1});
}

TEST_P(DecodeAttentionTest, CrossInClusters) {
  TestDecode(GetParam(), {4, 64, {512, 7, 0, 100}, true, 8});
  TestDecode(GetParam(), {2, 128, {33, 500}, true, 4});
  TestDecode(GetParam(), {1, 64, {1, 2, 511}, true, 2});
}

TEST_P(DecodeAttentionTest, LargeManyRows) {
  std::vector<int32_t> lengths(70);
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = static_cast<int32_t>(i * 37 % 200);
  TestDecode(GetParam(), {4, 64, lengths, true, 1});
  TestDecode(GetParam(), {4, 64, lengths, false, 1});
  // More heads than a multiprocessor's share of five, with less to keep of each.
  for (int32_t& length : lengths) length %= 75;
  TestDecode(GetParam(), {10, 64, lengths, true, 1});
  TestDecode(GetParam(), {10, 64, lengths, false, 1});
}

INSTANTIATE_TEST_SUITE_P(Types, DecodeAttentionTest, testing::ValuesIn(kElementTypes),
                         TypeParamName);

}  // namespace
}  // namespace seq2seq::kernels
