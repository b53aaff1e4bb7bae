// Problems for projections of all kinds of output, and their results against sums in double on the
// same rounded inputs.
//
// Tolerances are relative to the norm of what is compared: sums are kept in float32, so stored
// floats may be off by float rounding alone; stored halves by a unit in the last place on top.
#ifndef SEQ2SEQ_BACKEND_KERNELS_PROJECTION_TEST_UTIL_H_
#define SEQ2SEQ_BACKEND_KERNELS_PROJECTION_TEST_UTIL_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "backend/kernels/kernel_test_util.h"
#include "backend/kernels/operand_layout.h"
#include "backend/kernels/projection.h"

namespace seq2seq::kernels {

struct ProjectionShape {
  int32_t outputs;
  int32_t inputs;
  int32_t rows;
};

inline std::string ShapeName(const ProjectionShape& shape) {
  return std::to_string(shape.outputs) + "x" + std::to_string(shape.inputs) + "_" +
         std::to_string(shape.rows) + "rows";
}

// Queues the projection under test.
using RunProjection = std::function<cudaError_t(const ProjectionArgs&, cudaStream_t)>;

inline constexpr double kSumTolerance = 1e-5;

// Of numbers that are stored in the model's format.
inline double StoredTolerance(ElementType type) {
  return type == ElementType::kFloat32   ? kSumTolerance
         : type == ElementType::kFloat16 ? 1e-3
                                         : 8e-3;
}

inline size_t Elements(int32_t a, int32_t b) { return static_cast<size_t>(a) * b; }

// A matrix, a batch of rows, what every kind of output needs of them, and their product in double.
class ProjectionProblem {
 public:
  struct Kind {
    bool normed = true;   // the input is that of an RMSNorm, whose factor is the projection's task
    bool paired = false;  // gates and values, without a bias
  };

  ProjectionProblem(ElementType type, const ProjectionShape& shape, Kind kind)
      : type_(type),
        shape_(shape),
        kind_(kind),
        capacity_((shape.rows + 7) / 8 * 8 + 8),
        weight_(type, RandomValues(Elements(shape.outputs, shape.inputs), 1,
                                   1.0 / std::sqrt(shape.inputs))),
        packed_(type, std::vector<double>(PackedElements(shape.outputs + 16, shape.inputs), 0.0)),
        input_(type, BlockedInput(2)),
        bias_(ElementType::kFloat32, RandomValues(shape.outputs, 3)),
        sums_(ElementType::kFloat32, Squares()),
        scale_in_(ElementType::kFloat32, std::vector<double>(capacity_, kScaleIn)),
        scale_out_(ElementType::kFloat32, Poison(capacity_)) {
    Pack();
  }

  ProjectionArgs Args() const {
    ProjectionArgs args;
    args.weights = packed_.data();
    args.outputs = shape_.outputs;
    args.inputs = shape_.inputs;
    if (!kind_.paired) args.bias = bias_.floats();
    args.input = input_.data();
    args.rows = shape_.rows;
    args.row_capacity = capacity_;
    args.max_splits = 4;
    args.factor.output_scale = static_cast<float>(kOutputScale);
    if (!kind_.normed) return args;
    args.factor.sum_squares = sums_.floats();
    args.factor.sum_stride = kSumStride;
    args.factor.parts = kSumParts;
    args.factor.inverse_width = 1.0F / static_cast<float>(shape_.inputs);
    args.factor.epsilon = static_cast<float>(kEpsilon);
    args.factor.scale_in = scale_in_.floats();
    args.factor.scale_out = scale_out_.floats();
    return args;
  }

  // [rows][outputs]
  std::vector<double> Products() const {
    std::vector<double> products(Elements(shape_.rows, shape_.outputs));
    ForEach(shape_.rows, [&](size_t row) {
      MultiplyRow(static_cast<int32_t>(row), &products[row * shape_.outputs]);
    });
    return products;
  }

  // The factors that the kernel leaves for the next writer of the residual are those of the rows.
  void ExpectWrittenScales() const {
    const std::vector<double> scales = scale_out_.Read();
    for (int32_t row = 0; row < capacity_; ++row) {
      if (!kind_.normed || row >= shape_.rows) {
        EXPECT_TRUE(std::isnan(scales[row])) << row;
      } else {
        EXPECT_NEAR(scales[row], NormScale(row), NormScale(row) * 1e-5) << row;
      }
    }
  }

  // Gives all rows but one other inputs.
  void ReplaceOthers(int32_t kept) {
    std::vector<double> values = BlockedInput(77);
    for (int32_t k = 0; k < shape_.inputs; ++k) {
      values[Blocked(kept, k)] = input_.rounded()[Blocked(kept, k)];
    }
    input_.Write(values);
  }

  ElementType type() const { return type_; }
  const ProjectionShape& shape() const { return shape_; }
  int32_t capacity() const { return capacity_; }
  size_t Blocked(int32_t row, int32_t k) const { return BlockedPlace(type_, row, k, capacity_); }

 private:
  static constexpr int32_t kSumParts = 5;
  static constexpr int32_t kSumStride = 8;
  static constexpr double kEpsilon = 1e-6;
  static constexpr double kOutputScale = 0.7;
  static constexpr double kScaleIn = 0.5;

  // Paired: the first half of the outputs are gates, the second their values.
  void Pack() const {
    PackArgs args;
    args.source = weight_.data();
    args.source_type = type_;
    args.columns = shape_.inputs;
    args.packed = packed_.data();
    args.packed_type = type_;
    args.paired = kind_.paired;
    args.rows = kind_.paired ? shape_.outputs / 2 : shape_.outputs;
    RunOnStream([&](cudaStream_t stream) { return LaunchPack(args, {stream}); });
    if (!kind_.paired) return;
    args.source = static_cast<const char*>(weight_.data()) +
                  Elements(args.rows, shape_.inputs) * ElementBytes(type_);
    args.half = 1;
    RunOnStream([&](cudaStream_t stream) { return LaunchPack(args, {stream}); });
  }

  void MultiplyRow(int32_t row, double* products) const {
    std::vector<double> input(shape_.inputs);
    for (int32_t k = 0; k < shape_.inputs; ++k) input[k] = input_.rounded()[Blocked(row, k)];
    const double factor = kOutputScale * (kind_.normed ? NormScale(row) / kScaleIn : 1.0);
    for (int32_t output = 0; output < shape_.outputs; ++output) {
      const double* weight = &weight_.rounded()[Elements(output, shape_.inputs)];
      const double sum = std::inner_product(input.begin(), input.end(), weight, 0.0);
      products[output] = sum * factor + (kind_.paired ? 0.0 : bias_.rounded()[output]);
    }
  }

  double NormScale(int32_t row) const {
    double sum = 0.0;
    for (int p = 0; p < kSumParts; ++p) sum += sums_.rounded()[Elements(row, kSumStride) + p];
    return 1.0 / std::sqrt(sum / shape_.inputs + kEpsilon);
  }

  std::vector<double> BlockedInput(uint64_t seed) const {
    std::vector<double> values(Elements(ChunkCount(shape_.inputs) * 32, capacity_), 0.0);
    const std::vector<double> random = RandomValues(Elements(shape_.rows, shape_.inputs), seed);
    for (int32_t row = 0; row < shape_.rows; ++row) {
      for (int32_t k = 0; k < shape_.inputs; ++k) {
        values[Blocked(row, k)] = random[Elements(row, shape_.inputs) + k];
      }
    }
    return values;
  }

  std::vector<double> Squares() const {
    std::vector<double> sums = RandomValues(Elements(kSumStride, capacity_), 4);
    for (size_t i = 0; i < sums.size(); ++i) {
      sums[i] = i % kSumStride < kSumParts ? (sums[i] * sums[i] + 0.1) * shape_.inputs : 0.0;
    }
    return sums;
  }

  ElementType type_;
  ProjectionShape shape_;
  Kind kind_;
  int32_t capacity_;
  DeviceValues weight_;
  DeviceValues packed_;
  DeviceValues input_;
  DeviceValues bias_;
  DeviceValues sums_;
  DeviceValues scale_in_;
  DeviceValues scale_out_;
};

// Everything that adding to the residual stream reads and writes.
struct ResidualBuffers {
  explicit ResidualBuffers(const ProjectionProblem& problem)
      : width(problem.shape().outputs),
        capacity(problem.capacity()),
        values(ElementType::kFloat32, RandomValues(Elements(capacity, width), 7)),
        scaled(problem.type(), Poison(Elements(ChunkCount(width) * 32, capacity))),
        sums(ElementType::kFloat32, Poison(Elements(TileCount(width), capacity))),
        norm(ElementType::kFloat32, RandomValues(width, 8)),
        scale(ElementType::kFloat32, RandomValues(capacity, 9)) {}

  void Attach(ProjectionArgs* args) const {
    args->output = ProjectionOutput::kResidual;
    args->residual.residual = {values.floats(),  scaled.data(), sums.floats(),
                               TileCount(width), width,         capacity};
    args->residual.norm_weight = norm.floats();
    args->residual.scale = scale.floats();
  }

  int32_t width;
  int32_t capacity;
  DeviceValues values;
  DeviceValues scaled;
  DeviceValues sums;
  DeviceValues norm;
  DeviceValues scale;
};

inline void TestResidual(const ProjectionProblem& problem, const RunProjection& run) {
  const ResidualBuffers buffers(problem);
  const int32_t width = buffers.width;
  const int32_t rows = problem.shape().rows;
  ProjectionArgs args = problem.Args();
  buffers.Attach(&args);
  RunOnStream([&](cudaStream_t stream) { return run(args, stream); });
  const std::vector<double> products = problem.Products();
  const std::vector<double> got = buffers.values.Read();
  const std::vector<double> got_scaled = buffers.scaled.Read();
  const std::vector<double> got_sums = buffers.sums.Read();
  std::vector<double> actual, expected, scaled, expected_scaled, sums, expected_sums;
  for (int32_t row = 0; row < rows; ++row) {
    for (int32_t tile = 0; tile < TileCount(width); ++tile) {
      double squares = 0.0;
      for (int32_t i = tile * 16; i < std::min(width, tile * 16 + 16); ++i) {
        const size_t at = Elements(row, width) + i;
        const double x = buffers.values.rounded()[at] + products[at];
        actual.push_back(got[at]);
        expected.push_back(x);
        scaled.push_back(got_scaled[problem.Blocked(row, i)]);
        expected_scaled.push_back(x * buffers.norm.rounded()[i] * buffers.scale.rounded()[row]);
        squares += x * x;
      }
      sums.push_back(got_sums[Elements(row, TileCount(width)) + tile]);
      expected_sums.push_back(squares);
    }
  }
  CheckClose(actual, expected, kSumTolerance, "values");
  CheckClose(scaled, expected_scaled, StoredTolerance(problem.type()), "scaled values");
  CheckClose(sums, expected_sums, kSumTolerance, "sums of squares by tile");
  const auto beyond = static_cast<int64_t>(Elements(rows, width));
  EXPECT_TRUE(
      std::equal(got.begin() + beyond, got.end(), buffers.values.rounded().begin() + beyond))
      << "rows beyond the last keep what they had";
  problem.ExpectWrittenScales();
}

inline void TestActivation(ElementType type, const ProjectionShape& shape, ActivationKind kind,
                           bool gated, const RunProjection& run) {
  SCOPED_TRACE(testing::Message() << ShapeName(shape) << (gated ? ", gated" : ""));
  const ProjectionProblem problem(type, shape, {.paired = gated});
  const int32_t width = gated ? shape.outputs / 2 : shape.outputs;
  const DeviceValues values(type, Poison(Elements(ChunkCount(width) * 32, problem.capacity())));
  ProjectionArgs args = problem.Args();
  args.output = gated ? ProjectionOutput::kGatedActivation : ProjectionOutput::kActivation;
  args.activation.values = values.data();
  args.activation.kind = kind;
  RunOnStream([&](cudaStream_t stream) { return run(args, stream); });
  const std::vector<double> products = problem.Products();
  const std::vector<double> got = values.Read();
  std::vector<double> actual, expected;
  for (int32_t row = 0; row < shape.rows; ++row) {
    const double* of_row = &products[Elements(row, shape.outputs)];
    for (int32_t i = 0; i < width; ++i) {
      const double activated = ExactActivation(kind, of_row[i]);
      expected.push_back(gated ? activated * of_row[width + i] : activated);
      actual.push_back(got[problem.Blocked(row, i)]);
    }
  }
  CheckClose(actual, expected, StoredTolerance(type), "activations");
}

// parts: 3 with keys and values, 1 for queries alone.
struct HeadsShape {
  int32_t heads;
  int32_t head_dim;
  int32_t parts;
};

inline void TestQueryKeyValue(ElementType type, const HeadsShape& shape, int32_t inputs,
                              int32_t rows, const RunProjection& run) {
  const int32_t inner = shape.heads * shape.head_dim;
  const ProjectionShape whole{shape.parts * inner, inputs, rows};
  SCOPED_TRACE(ShapeName(whole));
  const ProjectionProblem problem(type, whole, {});
  const KvLayout layout(2, shape.heads, shape.head_dim);
  constexpr int32_t kStride = 3;
  const int32_t blocks = rows * kStride;
  const DeviceValues pool(type, Poison(blocks * layout.BlockStride()));
  const DeviceValues query(ElementType::kFloat32, Poison(Elements(problem.capacity(), inner)));
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
  RunOnStream([&](cudaStream_t stream) { return run(args, stream); });
  const std::vector<double> products = problem.Products();
  const std::vector<double> got_query = query.Read();
  const std::vector<double> got_pool = pool.Read();
  std::vector<double> actual, expected, cache, expected_cache;
  for (int32_t row = 0; row < rows; ++row) {
    const double* of_row = &products[Elements(row, whole.outputs)];
    for (int32_t i = 0; i < inner; ++i) {
      expected.push_back(of_row[i]);
      actual.push_back(got_query[Elements(row, inner) + i]);
    }
    if (infos[row].flags == 0 || shape.parts == 1) continue;
    const int64_t block = table[infos[row].slot * kStride + infos[row].position / 16];
    for (int32_t i = 0; i < 2 * inner; ++i) {
      const int32_t head = i % inner / shape.head_dim;
      expected_cache.push_back(of_row[inner + i]);
      cache.push_back(got_pool[block * layout.BlockStride() + layout.LayerStride() +
                               (i < inner ? 0 : layout.ValueOffset()) + head * layout.HeadStride() +
                               infos[row].position % 16 * shape.head_dim + i % shape.head_dim]);
    }
  }
  CheckClose(actual, expected, kSumTolerance, "queries");
  CheckClose(cache, expected_cache, StoredTolerance(type), "keys and values");
  const auto written =
      std::ranges::count_if(got_pool, [](double value) { return !std::isnan(value); });
  EXPECT_EQ(static_cast<size_t>(written), expected_cache.size()) << "nothing else is written";
}

inline void TestLogits(ElementType type, const ProjectionShape& shape, const RunProjection& run,
                       bool write_all = false) {
  SCOPED_TRACE(ShapeName(shape));
  const ProjectionProblem problem(type, shape, {});
  const int32_t tiles = TileCount(shape.outputs);
  const std::vector<int32_t> eos = {1, std::min(17, shape.outputs - 1)};
  std::vector<RowInfo> infos(shape.rows);
  for (int32_t row = 0; row < shape.rows; ++row) {
    infos[row].flags = RowInfo::kActive | (row % 2 == 1 ? RowInfo::kBanEos : 0) |
                       (row % 3 == 0 ? RowInfo::kSample : 0);
  }
  const DeviceRecords<RowInfo> device_infos(infos);
  const DeviceRecords<int32_t> device_eos(eos);
  const DeviceRecords<LogitsPart> parts(
      std::vector<LogitsPart>(Elements(problem.capacity(), tiles)));
  const DeviceValues logits(ElementType::kFloat32,
                            Poison(Elements(problem.capacity(), shape.outputs)));
  ProjectionArgs args = problem.Args();
  args.output = ProjectionOutput::kLogits;
  args.row_infos = device_infos.data();
  args.logits.parts = parts.data();
  args.logits.logits = logits.floats();
  args.logits.eos_tokens = device_eos.data();
  args.logits.eos_count = static_cast<int32_t>(eos.size());
  args.logits.write_all = write_all;
  RunOnStream([&](cudaStream_t stream) { return run(args, stream); });
  const std::vector<double> products = problem.Products();
  const std::vector<double> got_logits = logits.Read();
  const std::vector<LogitsPart> got = parts.Read();
  std::vector<double> actual, expected, actual_logits, expected_logits;
  for (int32_t row = 0; row < shape.rows; ++row) {
    const double* of_row = &products[Elements(row, shape.outputs)];
    const bool written = write_all || (infos[row].flags & RowInfo::kSample) != 0;
    for (int32_t i = 0; i < shape.outputs; ++i) {
      const double logit = got_logits[Elements(row, shape.outputs) + i];
      if (!written) {
        ASSERT_TRUE(std::isnan(logit)) << "a greedy row's logits: " << row << " " << i;
        continue;
      }
      actual_logits.push_back(logit);
      expected_logits.push_back(of_row[i]);
    }
    for (int32_t tile = 0; tile < tiles; ++tile) {
      const LogitsPart& part = got[Elements(row, tiles) + tile];
      double best = -INFINITY;
      double max = -INFINITY;
      const int32_t end = std::min(shape.outputs, tile * 16 + 16);
      for (int32_t i = tile * 16; i < end; ++i) {
        max = std::max(max, of_row[i]);
        const bool banned = row % 2 == 1 && std::ranges::find(eos, i) != eos.end();
        if (!banned) best = std::max(best, of_row[i]);
      }
      double sum = 0.0;
      for (int32_t i = tile * 16; i < end; ++i) sum += std::exp(of_row[i] - max);
      actual.insert(actual.end(), {part.best, part.max, part.sum_exp});
      expected.insert(expected.end(), {best, max, sum});
      ASSERT_NEAR(of_row[part.best_index], best, 1e-4) << row << " " << tile;
    }
  }
  CheckClose(actual, expected, kSumTolerance, "parts");
  CheckClose(actual_logits, expected_logits, kSumTolerance, "logits");
}

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_PROJECTION_TEST_UTIL_H_
