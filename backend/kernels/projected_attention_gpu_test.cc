// Projection and attention in one kernel beside the same in double precision on the same rounded
// inputs.
#include "backend/kernels/projected_attention.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "backend/kernels/kernel_test_util.h"
#include "backend/kernels/operand_layout.h"

namespace seq2seq::kernels {
namespace {

constexpr int32_t kHeadDim = 64;
constexpr int32_t kLayers = 2;
constexpr int32_t kMaxDistance = 20;
constexpr float kEpsilon = 1e-6F;
constexpr float kScale = 0.3F;
constexpr float kOutputScale = 0.7F;

struct Shape {
  bool cross = false;
  int32_t heads = 0;
  int32_t inputs = 0;
  std::vector<int32_t> lengths;  // keys with the row's own; 0: a row that is not active
  bool projection_bias = false;
  bool position_bias = false;
};

void PrintTo(const Shape& shape, std::ostream* out) {
  *out << (shape.cross ? "cross" : "self") << ", " << shape.heads << " heads, " << shape.inputs
       << " inputs, lengths";
  for (const int32_t length : shape.lengths) *out << ' ' << length;
}

using Case = std::tuple<Shape, ElementType>;

// One layer's inputs, cache and outputs, and what they should become.
class Layer {
 public:
  Layer(const Shape& shape, ElementType type)
      : shape_(shape),
        type_(type),
        rows_(static_cast<int32_t>(shape.lengths.size())),
        capacity_((rows_ + 7) / 8 * 8),
        inner_(shape.heads * kHeadDim),
        outputs_(inner_ * (shape.cross ? 1 : 3)),
        stride_(*std::max_element(shape.lengths.begin(), shape.lengths.end()) / kBlockTokens + 1),
        parts_(TileCount(shape.inputs)),
        layout_(kLayers, shape.heads, kHeadDim),
        weights_(type, RandomValues(size_t(outputs_) * shape.inputs, 1,
                                    1.0 / std::sqrt(double(shape.inputs)))),
        packed_(type, std::vector<double>(PackedElements(outputs_, shape.inputs), 0.0)),
        input_(type, BlockedInput()),
        squares_(ElementType::kFloat32, SumsOfSquares()),
        scale_in_(ElementType::kFloat32, std::vector<double>(capacity_, 0.8)),
        scale_out_(ElementType::kFloat32, Poison(capacity_)),
        projection_bias_(ElementType::kFloat32, RandomValues(outputs_, 4)),
        position_bias_(ElementType::kFloat32, RandomValues(shape.heads * (kMaxDistance + 1), 5)),
        pool_(type, RandomValues(size_t(rows_) * stride_ * layout_.BlockStride(), 6, 0.7)),
        output_(type, Poison(size_t(inner_) * capacity_)),
        infos_(Infos()),
        device_infos_(infos_),
        table_(Table()),
        device_table_(table_) {}

  void Run(size_t shared_limit = LaunchContext().shared_limit) {
    PackArgs pack;
    pack.source = weights_.data();
    pack.source_type = pack.packed_type = type_;
    pack.rows = outputs_;
    pack.columns = shape_.inputs;
    pack.packed = packed_.data();
    const ProjectedAttentionArgs args = Args();
    ASSERT_TRUE(CanProjectAndAttend(type_, args));
    RunOnStream([&](cudaStream_t stream) {
      const cudaError_t packed = LaunchPack(pack, {stream});
      const LaunchContext context{.stream = stream, .shared_limit = shared_limit};
      return packed != cudaSuccess ? packed : LaunchProjectedAttention(type_, args, context);
    });
  }

  ProjectedAttentionArgs Args() const {
    ProjectedAttentionArgs args;
    ProjectionArgs& projection = args.projection;
    projection.weights = packed_.data();
    projection.outputs = outputs_;
    projection.inputs = shape_.inputs;
    projection.bias = shape_.projection_bias ? projection_bias_.floats() : nullptr;
    projection.input = input_.data();
    projection.rows = rows_;
    projection.row_capacity = capacity_;
    projection.max_splits = 4;
    projection.row_infos = device_infos_.data();
    projection.factor = {squares_.floats(),
                         (parts_ + 3) / 4 * 4,
                         parts_,
                         1.0F / static_cast<float>(shape_.inputs),
                         kEpsilon,
                         scale_in_.floats(),
                         scale_out_.floats(),
                         kOutputScale};
    projection.output = ProjectionOutput::kQueryKeyValue;
    projection.query_key_value = {
        nullptr, inner_, pool_.data(), layout_, layout_.LayerStride(), device_table_.data(),
        stride_};
    DecodeAttentionArgs& attention = args.attention;
    attention.pool = pool_.data();
    attention.layout = layout_;
    attention.layer_offset = layout_.LayerStride();
    attention.blocks = device_table_.data();
    attention.block_stride = stride_;
    attention.row_infos = device_infos_.data();
    attention.rows = rows_;
    attention.row_capacity = capacity_;
    attention.cross = shape_.cross;
    attention.bias = shape_.position_bias ? position_bias_.floats() : nullptr;
    attention.max_distance = kMaxDistance;
    attention.scale = kScale;
    attention.output = output_.data();
    return args;
  }

  void CheckFactors() const {
    const std::vector<double> scales = scale_out_.Read();
    for (int32_t row = 0; row < rows_; ++row) {
      EXPECT_NEAR(scales[row], NormFactor(row), 1e-5 * NormFactor(row)) << "row " << row;
    }
  }

  // The rows' keys and values are in the cache, and nothing else has changed.
  void CheckCache() const {
    const std::vector<double> cache = pool_.Read();
    std::vector<double> expected = pool_.rounded();
    std::vector<double> actual_new;
    std::vector<double> expected_new;
    for (int32_t row = 0; row < rows_ && !shape_.cross; ++row) {
      if (shape_.lengths[row] == 0) continue;
      for (int32_t part = 1; part < 3; ++part) {
        for (int32_t i = 0; i < inner_; ++i) {
          const int64_t at =
              CacheIndex(row, part, i / kHeadDim, infos_[row].position, i % kHeadDim);
          actual_new.push_back(cache[at]);
          expected_new.push_back(Projected(row, part * inner_ + i));
          expected[at] = cache[at];
        }
      }
    }
    if (!expected_new.empty()) {
      EXPECT_LE(RelativeError(actual_new, expected_new), Tolerance(type_));
    }
    EXPECT_EQ(cache, expected);
  }

  void CheckOutput() const {
    const std::vector<double> cache = pool_.Read();
    const std::vector<double> got = output_.Read();
    std::vector<double> actual;
    std::vector<double> expected;
    for (int32_t row = 0; row < rows_; ++row) {
      for (int32_t head = 0; head < shape_.heads; ++head) {
        const std::vector<double> exact = Attend(cache, row, head);
        for (int32_t d = 0; d < kHeadDim; ++d) {
          const int32_t k = head * kHeadDim + d;
          const double value = got[BlockedPlace(type_, row, k, capacity_)];
          if (shape_.lengths[row] == 0) {
            EXPECT_EQ(value, 0.0) << "row " << row;
          }
          actual.push_back(value);
          expected.push_back(exact[d]);
        }
      }
    }
    EXPECT_LE(RelativeError(actual, expected), Tolerance(type_));
  }

 private:
  std::vector<double> BlockedInput() const {
    std::vector<double> values(size_t(ChunkCount(shape_.inputs)) * 32 * capacity_, 0.0);
    const std::vector<double> random = RandomValues(size_t(rows_) * shape_.inputs, 2);
    for (int32_t row = 0; row < rows_; ++row) {
      for (int32_t k = 0; k < shape_.inputs; ++k) {
        values[InputIndex(row, k)] = random[size_t(row) * shape_.inputs + k];
      }
    }
    return values;
  }

  std::vector<double> SumsOfSquares() const {
    const int32_t stride = (parts_ + 3) / 4 * 4;
    std::vector<double> sums(size_t(stride) * capacity_, 0.0);
    for (int32_t row = 0; row < rows_; ++row) {
      for (int32_t part = 0; part < parts_; ++part) {
        sums[size_t(row) * stride + part] = 10.0 + row + 0.1 * part;
      }
    }
    return sums;
  }

  // Rows lie in slots in reverse order.
  std::vector<RowInfo> Infos() const {
    std::vector<RowInfo> infos(rows_);
    for (int32_t row = 0; row < rows_; ++row) {
      const int32_t length = shape_.lengths[row];
      infos[row] = {rows_ - 1 - row, std::max(length - 1, 0), length,
                    length > 0 ? RowInfo::kActive : 0};
    }
    return infos;
  }

  std::vector<int32_t> Table() const {
    std::vector<int32_t> table(size_t(rows_) * stride_);
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(table.size() - 1 - i);
    return table;
  }

  size_t InputIndex(int32_t row, int32_t k) const { return BlockedPlace(type_, row, k, capacity_); }

  int64_t CacheIndex(int32_t row, int32_t part, int32_t head, int32_t token, int32_t d) const {
    const int64_t block = table_[infos_[row].slot * stride_ + token / kBlockTokens];
    return block * layout_.BlockStride() + layout_.LayerStride() +
           (part == 2 ? layout_.ValueOffset() : 0) + head * layout_.HeadStride() +
           token % kBlockTokens * kHeadDim + d;
  }

  double NormFactor(int32_t row) const {
    double sum = 0.0;
    for (int32_t part = 0; part < parts_; ++part) {
      sum += squares_.rounded()[size_t(row) * ((parts_ + 3) / 4 * 4) + part];
    }
    return 1.0 / std::sqrt(sum / shape_.inputs + kEpsilon);
  }

  double Projected(int32_t row, int32_t output) const {
    double sum = 0.0;
    for (int32_t k = 0; k < shape_.inputs; ++k) {
      sum += weights_.rounded()[size_t(output) * shape_.inputs + k] *
             input_.rounded()[InputIndex(row, k)];
    }
    const double bias = shape_.projection_bias ? projection_bias_.rounded()[output] : 0.0;
    return sum * kOutputScale * NormFactor(row) / scale_in_.rounded()[row] + bias;
  }

  // `cache` has the row's own key and value.
  std::vector<double> Attend(const std::vector<double>& cache, int32_t row, int32_t head) const {
    std::vector<double> query(kHeadDim);
    for (int32_t d = 0; d < kHeadDim; ++d) query[d] = Projected(row, head * kHeadDim + d);
    std::vector<double> scores;
    for (int32_t token = 0; token < shape_.lengths[row]; ++token) {
      double score = 0.0;
      for (int32_t d = 0; d < kHeadDim; ++d) {
        score += query[d] * cache[CacheIndex(row, 1, head, token, d)];
      }
      score *= kScale;
      if (shape_.position_bias) {
        const int32_t distance = std::min(infos_[row].position - token, kMaxDistance);
        score += position_bias_.rounded()[head * (kMaxDistance + 1) + distance];
      }
      scores.push_back(score);
    }
    std::vector<double> result(kHeadDim, 0.0);
    if (scores.empty()) return result;
    const double max = *std::max_element(scores.begin(), scores.end());
    double sum = 0.0;
    for (size_t token = 0; token < scores.size(); ++token) {
      const double weight = std::exp(scores[token] - max);
      sum += weight;
      for (int32_t d = 0; d < kHeadDim; ++d) {
        result[d] += weight * cache[CacheIndex(row, 2, head, static_cast<int32_t>(token), d)];
      }
    }
    for (double& value : result) value /= sum;
    return result;
  }

  Shape shape_;
  ElementType type_;
  int32_t rows_;
  int32_t capacity_;
  int32_t inner_;
  int32_t outputs_;
  int32_t stride_;
  int32_t parts_;
  KvLayout layout_;
  DeviceValues weights_;
  DeviceValues packed_;
  DeviceValues input_;
  DeviceValues squares_;
  DeviceValues scale_in_;
  DeviceValues scale_out_;
  DeviceValues projection_bias_;
  DeviceValues position_bias_;
  DeviceValues pool_;
  DeviceValues output_;
  std::vector<RowInfo> infos_;
  DeviceRecords<RowInfo> device_infos_;
  std::vector<int32_t> table_;
  DeviceRecords<int32_t> device_table_;
};

class ProjectedAttentionGpuTest : public testing::TestWithParam<Case> {};

TEST_P(ProjectedAttentionGpuTest, MatchesDoublePrecision) {
  const auto& [shape, type] = GetParam();
  Layer layer(shape, type);
  ASSERT_NO_FATAL_FAILURE(layer.Run());
  layer.CheckFactors();
  layer.CheckCache();
  layer.CheckOutput();
}

// Lengths around the cache's blocks and around the 128 keys that are read early; inactive rows
// first and between; inputs of less than a chunk, of part of a chunk, and of more than what is
// staged.
INSTANTIATE_TEST_SUITE_P(
    Shapes, ProjectedAttentionGpuTest,
    testing::Combine(
        testing::Values(Shape{false, 3, 200, {1}, false, true},
                        Shape{false, 2, 32, {17}, true, false},
                        Shape{false, 1, 16, {0, 2}, false, false},
                        Shape{false, 5, 512, {16, 0, 17, 128, 129, 130, 300, 5}, true, true},
                        Shape{false, 2, 1536, {64, 1, 15, 33, 0, 255, 256}, false, true},
                        Shape{false, 2, 2048, {129, 40}, false, true},
                        Shape{false, 1, 4200, {30, 20, 10}, true, true},
                        Shape{true, 3, 200, {1}, false, false},
                        Shape{true, 2, 512, {31, 0}, true, false},
                        Shape{true, 5, 1536, {512, 33}, false, false},
                        Shape{true, 2, 2048, {129, 700}, true, true},
                        Shape{true, 1, 4200, {2000}, false, false}),
        testing::Values(ElementType::kFloat16, ElementType::kBfloat16)));

// Half of the weights that 80 KB would take are staged.
TEST(ProjectedAttentionTest, StagesLessWhereABlockHasLittleSharedMemory) {
  Layer layer(Shape{false, 1, 4200, {30, 20, 10}, true, true}, ElementType::kBfloat16);
  ASSERT_NO_FATAL_FAILURE(layer.Run(48 << 10));
  layer.CheckFactors();
  layer.CheckCache();
  layer.CheckOutput();
}

TEST(ProjectedAttentionTest, RefusesWhatItDoesNotDo) {
  const Layer layer(Shape{false, 2, 64, {5, 6}, false, false}, ElementType::kFloat16);
  const auto refuses = [](ElementType type, const ProjectedAttentionArgs& args) {
    return !CanProjectAndAttend(type, args) &&
           LaunchProjectedAttention(type, args, {}) == cudaErrorInvalidValue;
  };
  ProjectedAttentionArgs args = layer.Args();
  EXPECT_TRUE(refuses(ElementType::kFloat32, args));
  args.projection.max_splits = 1;
  EXPECT_TRUE(refuses(ElementType::kFloat16, args));
  args = layer.Args();
  args.projection.rows = args.attention.rows = 64;
  EXPECT_TRUE(refuses(ElementType::kFloat16, args));
  args = layer.Args();
  args.attention.layout.head_dim = 128;
  EXPECT_TRUE(refuses(ElementType::kFloat16, args));
  args = layer.Args();
  args.projection.outputs = 2 * kHeadDim;
  EXPECT_TRUE(refuses(ElementType::kFloat16, args));
}

}  // namespace
}  // namespace seq2seq::kernels
