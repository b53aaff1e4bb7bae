// The projections of many rows, each kernel that can do them, beside sums in double on the same
// rounded inputs. projection_gpu_test.cc has the other kernels and LaunchProjection's choice.
//
// Tolerances: sums are kept in float32, so stored floats may be off by float rounding alone; stored
// halves by half a unit in the last place on top.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "backend/kernels/kernel_test_util.h"
#include "backend/kernels/operand_layout.h"
#include "backend/kernels/projection.h"
#include "backend/kernels/projection_kernels.h"
#include "backend/kernels/tensor_map.h"

namespace seq2seq::kernels {
namespace {

enum class Kernel : uint8_t { kPortable, kWarpgroup };

struct Shape {
  int32_t outputs;
  int32_t inputs;
  int32_t rows;
};

using Case = std::tuple<Kernel, ElementType, Shape>;

constexpr int32_t kSumParts = 5;
constexpr int32_t kSumStride = 8;
constexpr double kEpsilon = 1e-6;
constexpr double kOutputScale = 0.7;
constexpr double kSumTolerance = 1e-5;

double HalfTolerance(ElementType type) { return type == ElementType::kFloat16 ? 1e-3 : 8e-3; }

// A matrix, a batch of rows with a norm's sums, and their product in double.
class Problem {
 public:
  Problem(ElementType type, const Shape& shape, bool paired)
      : type_(type),
        shape_(shape),
        paired_(paired),
        capacity_((shape.rows + 7) / 8 * 8 + 8),
        weight_(type,
                RandomValues(Size(shape.outputs, shape.inputs), 1, 1.0 / std::sqrt(shape.inputs))),
        packed_(type, std::vector<double>(PackedElements(shape.outputs + 16, shape.inputs), 0.0)),
        input_(type, BlockedInput(shape.rows, 2)),
        bias_(ElementType::kFloat32, RandomValues(shape.outputs, 3)),
        sums_(ElementType::kFloat32, Squares()),
        scale_in_(ElementType::kFloat32, std::vector<double>(capacity_, 0.5)),
        scale_out_(ElementType::kFloat32, Poison(capacity_)) {
    Pack();
  }

  ProjectionArgs Args() const {
    ProjectionArgs args;
    args.weights = packed_.data();
    args.outputs = shape_.outputs;
    args.inputs = shape_.inputs;
    if (!paired_) args.bias = bias_.floats();
    args.input = input_.data();
    args.rows = shape_.rows;
    args.row_capacity = capacity_;
    args.max_splits = 4;
    args.factor.output_scale = static_cast<float>(kOutputScale);
    args.factor.sum_squares = sums_.floats();
    args.factor.sum_stride = kSumStride;
    args.factor.parts = kSumParts;
    args.factor.inverse_width = 1.0F / static_cast<float>(shape_.inputs);
    args.factor.epsilon = static_cast<float>(kEpsilon);
    args.factor.scale_in = scale_in_.floats();
    args.factor.scale_out = scale_out_.floats();
    return args;
  }

  // The products of all rows, [rows][outputs].
  std::vector<double> Products() const {
    std::vector<double> products(Size(shape_.rows, shape_.outputs));
    const auto threads = static_cast<int32_t>(std::max(1U, std::thread::hardware_concurrency()));
    std::vector<std::jthread> workers;
    for (int32_t first = 0; first < threads; ++first) {
      workers.emplace_back([&, first] { MultiplyRows(first, threads, &products); });
    }
    workers.clear();
    return products;
  }

  // The factor that the kernel leaves for the next writer of the residual.
  double NormScale(int32_t row) const {
    double sum = 0.0;
    for (int p = 0; p < kSumParts; ++p) sum += sums_.rounded()[Size(row, kSumStride) + p];
    return 1.0 / std::sqrt(sum / shape_.inputs + kEpsilon);
  }
  std::vector<double> WrittenScales() const { return scale_out_.Read(); }

  // Gives all rows but one other inputs.
  void ReplaceOthers(int32_t kept) {
    std::vector<double> values = BlockedInput(shape_.rows, 77);
    for (int32_t k = 0; k < shape_.inputs; ++k) {
      values[Blocked(kept, k)] = input_.rounded()[Blocked(kept, k)];
    }
    input_.Write(values);
  }

  size_t Blocked(int32_t row, int32_t k) const { return BlockedPlace(type_, row, k, capacity_); }
  int32_t capacity() const { return capacity_; }

 private:
  static size_t Size(int32_t a, int32_t b) { return static_cast<size_t>(a) * b; }

  // Rows first, first + step, ... of the products.
  void MultiplyRows(int32_t first, int32_t step, std::vector<double>* products) const {
    std::vector<double> input(shape_.inputs);
    for (int32_t row = first; row < shape_.rows; row += step) {
      for (int32_t k = 0; k < shape_.inputs; ++k) input[k] = input_.rounded()[Blocked(row, k)];
      for (int32_t output = 0; output < shape_.outputs; ++output) {
        const double* weight = &weight_.rounded()[Size(output, shape_.inputs)];
        const double sum = std::inner_product(input.begin(), input.end(), weight, 0.0);
        (*products)[Size(row, shape_.outputs) + output] =
            sum * kOutputScale * NormScale(row) / 0.5 + (paired_ ? 0.0 : bias_.rounded()[output]);
      }
    }
  }

  std::vector<double> BlockedInput(int32_t rows, uint64_t seed) const {
    std::vector<double> values(Size(ChunkCount(shape_.inputs) * 32, capacity_), 0.0);
    const std::vector<double> random = RandomValues(Size(rows, shape_.inputs), seed);
    for (int32_t row = 0; row < rows; ++row) {
      for (int32_t k = 0; k < shape_.inputs; ++k) {
        values[Blocked(row, k)] = random[Size(row, shape_.inputs) + k];
      }
    }
    return values;
  }

  std::vector<double> Squares() const {
    std::vector<double> sums = RandomValues(Size(kSumStride, capacity_), 4);
    for (size_t i = 0; i < sums.size(); ++i) {
      sums[i] = i % kSumStride < kSumParts ? (sums[i] * sums[i] + 0.1) * shape_.inputs : 0.0;
    }
    return sums;
  }

  void Pack() const {
    RunOnStream([&](cudaStream_t stream) {
      PackArgs args;
      args.source = weight_.data();
      args.source_type = type_;
      args.columns = shape_.inputs;
      args.packed = packed_.data();
      args.packed_type = type_;
      args.paired = paired_;
      args.rows = paired_ ? shape_.outputs / 2 : shape_.outputs;
      const cudaError_t error = LaunchPack(args, {stream});
      if (error != cudaSuccess || !paired_) return error;
      args.source = static_cast<const char*>(weight_.data()) +
                    Size(args.rows, shape_.inputs) * ElementBytes(type_);
      args.half = 1;
      return LaunchPack(args, {stream});
    });
  }

  ElementType type_;
  Shape shape_;
  bool paired_;
  int32_t capacity_;
  DeviceValues weight_;
  DeviceValues packed_;
  DeviceValues input_;
  DeviceValues bias_;
  DeviceValues sums_;
  DeviceValues scale_in_;
  DeviceValues scale_out_;
};

// Everything that adding to the residual stream writes.
struct ResidualBuffers {
  ResidualBuffers(ElementType type, int32_t width, int32_t capacity)
      : values(ElementType::kFloat32, RandomValues(static_cast<size_t>(capacity) * width, 7)),
        scaled(type, Poison(static_cast<size_t>(ChunkCount(width)) * 32 * capacity)),
        sums(ElementType::kFloat32, Poison(static_cast<size_t>(TileCount(width)) * capacity)),
        norm(ElementType::kFloat32, RandomValues(width, 8)),
        scale(ElementType::kFloat32, RandomValues(capacity, 9)),
        width_(width),
        capacity_(capacity) {}

  void Attach(ProjectionArgs* args) const {
    args->output = ProjectionOutput::kResidual;
    args->residual.residual = {values.floats(),   scaled.data(), sums.floats(),
                               TileCount(width_), width_,        capacity_};
    args->residual.norm_weight = norm.floats();
    args->residual.scale = scale.floats();
  }

  DeviceValues values;
  DeviceValues scaled;
  DeviceValues sums;
  DeviceValues norm;
  DeviceValues scale;

 private:
  int32_t width_;
  int32_t capacity_;
};

class ProjectionWideGpuTest : public testing::TestWithParam<Case> {
 protected:
  static Kernel kernel() { return std::get<0>(GetParam()); }
  static ElementType type() { return std::get<1>(GetParam()); }
  static Shape shape() { return std::get<2>(GetParam()); }

  static void Run(const ProjectionArgs& args) {
    RunOnStream([&](cudaStream_t stream) {
      return kernel() == Kernel::kWarpgroup ? LaunchWarpgroupProjection(type(), args, {stream})
                                            : LaunchWideProjection(type(), args, {stream});
    });
  }

  static void CheckScales(const Problem& problem) {
    const std::vector<double> scales = problem.WrittenScales();
    for (int32_t row = 0; row < problem.capacity(); ++row) {
      if (row >= shape().rows) {
        EXPECT_TRUE(std::isnan(scales[row])) << row;
      } else {
        EXPECT_NEAR(scales[row], problem.NormScale(row), problem.NormScale(row) * 1e-5) << row;
      }
    }
  }
};

TEST_P(ProjectionWideGpuTest, AddsToTheResidualStream) {
  const Problem problem(type(), shape(), false);
  const int32_t width = shape().outputs;
  const ResidualBuffers buffers(type(), width, problem.capacity());
  ProjectionArgs args = problem.Args();
  buffers.Attach(&args);
  Run(args);
  const std::vector<double> products = problem.Products();
  const std::vector<double> got = buffers.values.Read();
  const std::vector<double> got_scaled = buffers.scaled.Read();
  const std::vector<double> got_sums = buffers.sums.Read();
  std::vector<double> actual, expected, scaled, expected_scaled, sums, expected_sums;
  for (int32_t row = 0; row < shape().rows; ++row) {
    for (int32_t tile = 0; tile < TileCount(width); ++tile) {
      double squares = 0.0;
      for (int32_t i = tile * 16; i < std::min(width, tile * 16 + 16); ++i) {
        const size_t at = static_cast<size_t>(row) * width + i;
        const double x = buffers.values.rounded()[at] + products[at];
        actual.push_back(got[at]);
        expected.push_back(x);
        scaled.push_back(got_scaled[problem.Blocked(row, i)]);
        expected_scaled.push_back(x * buffers.norm.rounded()[i] * buffers.scale.rounded()[row]);
        squares += x * x;
      }
      sums.push_back(got_sums[static_cast<size_t>(row) * TileCount(width) + tile]);
      expected_sums.push_back(squares);
    }
  }
  EXPECT_LE(RelativeError(actual, expected), kSumTolerance);
  EXPECT_LE(RelativeError(scaled, expected_scaled), HalfTolerance(type()));
  EXPECT_LE(RelativeError(sums, expected_sums), kSumTolerance);
  // Rows beyond the last keep what they had.
  const auto beyond = static_cast<size_t>(shape().rows) * width;
  EXPECT_TRUE(
      std::equal(got.begin() + beyond, got.end(), buffers.values.rounded().begin() + beyond));
  CheckScales(problem);
}

TEST_P(ProjectionWideGpuTest, Activates) {
  for (const bool gated : {false, true}) {
    Shape even = shape();
    even.outputs = (even.outputs + 1) / 2 * 2;
    const Problem problem(type(), even, gated);
    const int32_t width = gated ? even.outputs / 2 : even.outputs;
    const DeviceValues values(
        type(), Poison(static_cast<size_t>(ChunkCount(width)) * 32 * problem.capacity()));
    ProjectionArgs args = problem.Args();
    args.output = gated ? ProjectionOutput::kGatedActivation : ProjectionOutput::kActivation;
    args.activation.values = values.data();
    args.activation.kind = ActivationKind::kSilu;
    Run(args);
    const std::vector<double> products = problem.Products();
    const std::vector<double> got = values.Read();
    std::vector<double> actual, expected;
    for (int32_t row = 0; row < even.rows; ++row) {
      for (int32_t i = 0; i < width; ++i) {
        const double* of_row = &products[static_cast<size_t>(row) * even.outputs];
        const double activated = of_row[i] / (1.0 + std::exp(-of_row[i]));
        expected.push_back(gated ? activated * of_row[width + i] : activated);
        actual.push_back(got[problem.Blocked(row, i)]);
      }
    }
    EXPECT_LE(RelativeError(actual, expected), HalfTolerance(type())) << "gated: " << gated;
  }
}

TEST_P(ProjectionWideGpuTest, WritesQueriesAndTheCache) {
  // Heads of 16 whatever the outputs, up to a cache of a tolerable size; parts: queries alone, or
  // queries, keys and values.
  constexpr int32_t kMostHeads = 6;
  for (const int32_t parts : {1, 3}) {
    const int32_t heads = std::clamp(shape().outputs / (16 * parts), 1, kMostHeads);
    const int32_t inner = heads * 16;
    const Problem problem(type(), {parts * inner, shape().inputs, shape().rows}, false);
    const KvLayout layout(2, heads, 16);
    constexpr int32_t kStride = 3;
    const int32_t rows = shape().rows;
    const int32_t blocks = rows * kStride;
    const DeviceValues pool(type(), Poison(blocks * layout.BlockStride()));
    const DeviceValues query(ElementType::kFloat32,
                             Poison(static_cast<size_t>(problem.capacity()) * inner));
    std::vector<RowInfo> infos(rows);
    std::vector<int32_t> table(blocks);
    for (int32_t i = 0; i < blocks; ++i) table[i] = blocks - 1 - i;
    for (int32_t row = 0; row < rows; ++row) {
      infos[row] = {rows - 1 - row, row * 7 % 48, 1, row % 3 == 2 ? 0 : RowInfo::kActive};
    }
    const DeviceRecords<RowInfo> device_infos(infos);
    const DeviceRecords<int32_t> device_table(table);
    ProjectionArgs args = problem.Args();
    args.output = ProjectionOutput::kQueryKeyValue;
    args.row_infos = device_infos.data();
    args.query_key_value = {query.floats(),      inner,  pool.data(), layout, layout.LayerStride(),
                            device_table.data(), kStride};
    Run(args);
    const std::vector<double> products = problem.Products();
    const std::vector<double> got_query = query.Read();
    const std::vector<double> got_pool = pool.Read();
    std::vector<double> actual, expected, cache, expected_cache;
    for (int32_t row = 0; row < rows; ++row) {
      const double* of_row = &products[static_cast<size_t>(row) * parts * inner];
      for (int32_t i = 0; i < inner; ++i) {
        expected.push_back(of_row[i]);
        actual.push_back(got_query[static_cast<size_t>(row) * inner + i]);
      }
      if (parts == 1 || infos[row].flags == 0) continue;
      const int64_t block = table[infos[row].slot * kStride + infos[row].position / kBlockTokens];
      for (int32_t i = 0; i < 2 * inner; ++i) {
        expected_cache.push_back(of_row[inner + i]);
        cache.push_back(
            got_pool[block * layout.BlockStride() + layout.LayerStride() +
                     (i < inner ? 0 : layout.ValueOffset()) + i % inner / 16 * layout.HeadStride() +
                     infos[row].position % kBlockTokens * 16 + i % 16]);
      }
    }
    EXPECT_LE(RelativeError(actual, expected), kSumTolerance);
    EXPECT_LE(RelativeError(cache, expected_cache), HalfTolerance(type()));
    const auto written =
        std::ranges::count_if(got_pool, [](double value) { return !std::isnan(value); });
    EXPECT_EQ(static_cast<size_t>(written), expected_cache.size());
  }
}

TEST_P(ProjectionWideGpuTest, SumsUpLogits) {
  const Problem problem(type(), shape(), false);
  const int32_t tiles = TileCount(shape().outputs);
  const std::vector<int32_t> eos = {1, 15};
  std::vector<RowInfo> infos(shape().rows);
  for (int32_t row = 0; row < shape().rows; ++row) {
    infos[row].flags = RowInfo::kActive | (row % 2 == 1 ? RowInfo::kBanEos : 0) |
                       (row % 3 == 0 ? RowInfo::kSample : 0);
  }
  const DeviceRecords<RowInfo> device_infos(infos);
  const DeviceRecords<int32_t> device_eos(eos);
  const DeviceRecords<LogitsPart> parts(
      std::vector<LogitsPart>(static_cast<size_t>(problem.capacity()) * tiles));
  const DeviceValues logits(ElementType::kFloat32,
                            Poison(static_cast<size_t>(problem.capacity()) * shape().outputs));
  ProjectionArgs args = problem.Args();
  args.output = ProjectionOutput::kLogits;
  args.row_infos = device_infos.data();
  args.logits.parts = parts.data();
  args.logits.logits = logits.floats();
  args.logits.eos_tokens = device_eos.data();
  args.logits.eos_count = 2;
  Run(args);
  const std::vector<double> products = problem.Products();
  const std::vector<double> got_logits = logits.Read();
  const std::vector<LogitsPart> got = parts.Read();
  std::vector<double> actual, expected, actual_logits, expected_logits;
  for (int32_t row = 0; row < shape().rows; ++row) {
    const double* of_row = &products[static_cast<size_t>(row) * shape().outputs];
    for (int32_t i = 0; i < shape().outputs; ++i) {
      const double logit = got_logits[static_cast<size_t>(row) * shape().outputs + i];
      if ((infos[row].flags & RowInfo::kSample) == 0) {
        ASSERT_TRUE(std::isnan(logit)) << row << " " << i;
        continue;
      }
      actual_logits.push_back(logit);
      expected_logits.push_back(of_row[i]);
    }
    for (int32_t tile = 0; tile < tiles; ++tile) {
      const LogitsPart& part = got[static_cast<size_t>(row) * tiles + tile];
      double best = -INFINITY;
      double max = -INFINITY;
      const int32_t end = std::min(shape().outputs, tile * 16 + 16);
      for (int32_t i = tile * 16; i < end; ++i) {
        max = std::max(max, of_row[i]);
        if (row % 2 == 0 || (i != 1 && i != 15)) best = std::max(best, of_row[i]);
      }
      double sum = 0.0;
      for (int32_t i = tile * 16; i < end; ++i) sum += std::exp(of_row[i] - max);
      actual.insert(actual.end(), {part.best, part.max, part.sum_exp});
      expected.insert(expected.end(), {best, max, sum});
      ASSERT_NEAR(of_row[part.best_index], best, 1e-4) << row << " " << tile;
    }
  }
  EXPECT_LE(RelativeError(actual, expected), kSumTolerance);
  EXPECT_LE(RelativeError(actual_logits, expected_logits), kSumTolerance);
}

// A row's result depends on nothing but the row: not on the other rows, not on timing.
TEST_P(ProjectionWideGpuTest, RowsAreIndependentToTheBit) {
  Problem problem(type(), shape(), false);
  const int32_t width = shape().outputs;
  const int32_t kept = shape().rows - 1;
  std::vector<std::vector<double>> results;
  for (int run = 0; run < 3; ++run) {
    const ResidualBuffers buffers(type(), width, problem.capacity());
    ProjectionArgs args = problem.Args();
    buffers.Attach(&args);
    Run(args);
    const std::vector<double> values = buffers.values.Read();
    results.emplace_back(values.begin() + static_cast<int64_t>(kept) * width,
                         values.begin() + static_cast<int64_t>(kept + 1) * width);
    if (run == 1) problem.ReplaceOthers(kept);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

std::string CaseName(const testing::TestParamInfo<Case>& info) {
  const auto& [kernel, type, shape] = info.param;
  return std::string(kernel == Kernel::kPortable ? "Portable" : "Warpgroup") + "_" +
         TypeName(type) + "_" + std::to_string(shape.outputs) + "x" + std::to_string(shape.inputs) +
         "_" + std::to_string(shape.rows) + "Rows";
}

// Those of the device at hand.
std::vector<Kernel> Kernels() {
  bool hopper = false;
  if (IsHopper(&hopper) != cudaSuccess || !hopper) return {Kernel::kPortable};
  return {Kernel::kPortable, Kernel::kWarpgroup};
}

constexpr ElementType kHalfTypes[] = {ElementType::kFloat16, ElementType::kBfloat16};

// One tile and one chunk, parts of tiles, chunks and row tiles, more splits than inputs, several
// blocks of rows.
INSTANTIATE_TEST_SUITE_P(Small, ProjectionWideGpuTest,
                         testing::Combine(testing::ValuesIn(Kernels()),
                                          testing::ValuesIn(kHalfTypes),
                                          testing::Values(Shape{16, 32, 33}, Shape{200, 72, 64},
                                                          Shape{136, 200, 65}, Shape{72, 520, 130},
                                                          Shape{48, 104, 200},
                                                          Shape{136, 136, 300})),
                         CaseName);

INSTANTIATE_TEST_SUITE_P(
    Large, ProjectionWideGpuTest,
    testing::Combine(testing::ValuesIn(Kernels()), testing::ValuesIn(kHalfTypes),
                     testing::Values(Shape{1536, 520, 64}, Shape{3080, 136, 100},
                                     Shape{16400, 64, 200}, Shape{136, 3592, 192},
                                     Shape{4232, 72, 256})),
    CaseName);

}  // namespace
}  // namespace seq2seq::kernels
