// Projections against sums in double on the same rounded inputs.
#include "backend/kernels/projection.h"

#include <algorithm>
#include <future>
#include <tuple>

#include "backend/kernels/kernel_test_util.h"
#include "backend/kernels/operand_layout.h"

namespace seq2seq::kernels {
namespace {

struct Shape {
  int32_t outputs;
  int32_t inputs;
  int32_t rows;
};

constexpr int32_t kSumParts = 5;
constexpr int32_t kSumStride = 8;
constexpr float kEpsilon = 1e-6F;
constexpr float kOutputScale = 0.7F;

// A problem with everything that the kinds of output need, and the product in double.
class Problem {
 public:
  Problem(ElementType type, const Shape& shape, bool normed, bool paired)
      : type_(type),
        shape_(shape),
        capacity_((shape.rows + 7) / 8 * 8 + 8),
        normed_(normed),
        paired_(paired),
        weight_(type, RandomValues(size_t(shape.outputs) * shape.inputs, 1,
                                   1.0 / std::sqrt(shape.inputs))),
        packed_(type, std::vector<double>(PackedElements(shape.outputs + 16, shape.inputs), 0.0)),
        input_(type, BlockedInput()),
        bias_(ElementType::kFloat32, RandomValues(shape.outputs, 3)),
        sums_(ElementType::kFloat32, std::vector<double>(size_t(kSumStride) * capacity_, 0.0)),
        scale_in_(ElementType::kFloat32, std::vector<double>(capacity_, 0.5)),
        scale_out_(ElementType::kFloat32, Poison(capacity_)) {
    std::vector<double> sums = RandomValues(size_t(kSumStride) * capacity_, 4);
    for (size_t i = 0; i < sums.size(); ++i) {
      sums[i] = i % kSumStride < kSumParts ? sums[i] * sums[i] + 0.1 : 0.0;
    }
    sums_.Write(sums);
    Pack();
    Multiply();
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
    args.factor.output_scale = kOutputScale;
    if (normed_) {
      args.factor.sum_squares = sums_.floats();
      args.factor.sum_stride = kSumStride;
      args.factor.parts = kSumParts;
      args.factor.inverse_width = 1.0F / static_cast<float>(shape_.inputs);
      args.factor.epsilon = kEpsilon;
      args.factor.scale_in = scale_in_.floats();
      args.factor.scale_out = scale_out_.floats();
    }
    return args;
  }

  void Run(const ProjectionArgs& args, size_t shared_limit = LaunchContext().shared_limit) const {
    RunOnStream([&](cudaStream_t stream) {
      return LaunchProjection(type_, args, {.stream = stream, .shared_limit = shared_limit});
    });
  }

  double Product(int32_t row, int32_t output) const {
    return products_[size_t(row) * shape_.outputs + output];
  }
  int32_t capacity() const { return capacity_; }
  size_t Blocked(int32_t row, int32_t k) const { return BlockedPlace(type_, row, k, capacity_); }
  std::string Name(const char* kind) const {
    return std::string(TypeName(type_)) + " " + kind + " " + std::to_string(shape_.outputs) +
           " x " + std::to_string(shape_.inputs) + ", " + std::to_string(shape_.rows) + " rows";
  }

 private:
  std::vector<double> BlockedInput() const {
    std::vector<double> values(size_t(ChunkCount(shape_.inputs)) * 32 * capacity_, 0.0);
    const std::vector<double> random = RandomValues(size_t(shape_.rows) * shape_.inputs, 2);
    for (int32_t row = 0; row < shape_.rows; ++row) {
      for (int32_t k = 0; k < shape_.inputs; ++k) {
        values[Blocked(row, k)] = random[size_t(row) * shape_.inputs + k];
      }
    }
    return values;
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
                    size_t(args.rows) * shape_.inputs * ElementBytes(type_);
      args.half = 1;
      return LaunchPack(args, {stream});
    });
  }

  void Multiply() {
    products_.resize(size_t(shape_.rows) * shape_.outputs);
    for (int32_t row = 0; row < shape_.rows; ++row) {
      double factor = kOutputScale;
      if (normed_) {
        double sum = 0.0;
        for (int p = 0; p < kSumParts; ++p) sum += sums_.rounded()[size_t(row) * kSumStride + p];
        factor *= 1.0 / std::sqrt(sum / shape_.inputs + kEpsilon) / 0.5;
      }
      for (int32_t output = 0; output < shape_.outputs; ++output) {
        double sum = 0.0;
        for (int32_t k = 0; k < shape_.inputs; ++k) {
          sum += weight_.rounded()[size_t(output) * shape_.inputs + k] *
                 input_.rounded()[Blocked(row, k)];
        }
        products_[size_t(row) * shape_.outputs + output] =
            sum * factor + (paired_ ? 0.0 : bias_.rounded()[output]);
      }
    }
  }

  ElementType type_;
  Shape shape_;
  int32_t capacity_;
  bool normed_;
  bool paired_;
  DeviceValues weight_;
  DeviceValues packed_;
  DeviceValues input_;
  DeviceValues bias_;
  DeviceValues sums_;
  DeviceValues scale_in_;
  DeviceValues scale_out_;
  std::vector<double> products_;
};

// Products keep float32 sums, so the rounding of half formats shows in stored halves only.
double SumTolerance(ElementType) { return 1e-5; }

void TestResidual(ElementType type, const Shape& shape,
                  size_t shared_limit = LaunchContext().shared_limit) {
  const Problem problem(type, shape, false, false);
  const int32_t width = shape.outputs;
  const size_t blocked = size_t(ChunkCount(width)) * 32 * problem.capacity();
  const int32_t tiles = TileCount(width);
  DeviceValues values(ElementType::kFloat32, RandomValues(size_t(problem.capacity()) * width, 7));
  DeviceValues scaled(type, Poison(blocked));
  DeviceValues sums(ElementType::kFloat32, Poison(size_t(tiles) * problem.capacity()));
  DeviceValues norm(ElementType::kFloat32, RandomValues(width, 8));
  DeviceValues scale(ElementType::kFloat32, RandomValues(problem.capacity(), 9));
  ProjectionArgs args = problem.Args();
  args.output = ProjectionOutput::kResidual;
  args.residual.residual = {values.floats(), scaled.data(), sums.floats(),
                            tiles,           width,         problem.capacity()};
  args.residual.norm_weight = norm.floats();
  args.residual.scale = scale.floats();
  problem.Run(args, shared_limit);
  const std::vector<double> got = values.Read();
  const std::vector<double> got_scaled = scaled.Read();
  const std::vector<double> got_sums = sums.Read();
  std::vector<double> actual, expected, actual_scaled, expected_scaled, actual_sum, expected_sum;
  for (int32_t row = 0; row < shape.rows; ++row) {
    double squares = 0.0;
    double parts = 0.0;
    for (int32_t i = 0; i < width; ++i) {
      const size_t at = size_t(row) * width + i;
      const double x = values.rounded()[at] + problem.Product(row, i);
      expected.push_back(x);
      actual.push_back(got[at]);
      expected_scaled.push_back(x * norm.rounded()[i] * scale.rounded()[row]);
      actual_scaled.push_back(got_scaled[problem.Blocked(row, i)]);
      squares += x * x;
    }
    for (int32_t t = 0; t < tiles; ++t) parts += got_sums[size_t(row) * tiles + t];
    actual_sum.push_back(parts);
    expected_sum.push_back(squares);
  }
  CheckClose(actual, expected, SumTolerance(type), problem.Name("residual"));
  CheckClose(actual_scaled, expected_scaled, Tolerance(type), problem.Name("residual, scaled"));
  CheckClose(actual_sum, expected_sum, 1e-5, problem.Name("residual, squares"));
}

void TestActivation(ElementType type, const Shape& shape, ActivationKind kind, bool gated) {
  const Problem problem(type, shape, true, gated);
  const int32_t width = gated ? shape.outputs / 2 : shape.outputs;
  DeviceValues values(type, Poison(size_t(ChunkCount(width)) * 32 * problem.capacity()));
  ProjectionArgs args = problem.Args();
  args.output = gated ? ProjectionOutput::kGatedActivation : ProjectionOutput::kActivation;
  args.activation.values = values.data();
  args.activation.kind = kind;
  problem.Run(args);
  const std::vector<double> got = values.Read();
  std::vector<double> actual, expected;
  for (int32_t row = 0; row < shape.rows; ++row) {
    for (int32_t i = 0; i < width; ++i) {
      const double activated = ExactActivation(kind, problem.Product(row, i));
      expected.push_back(gated ? activated * problem.Product(row, width + i) : activated);
      actual.push_back(got[problem.Blocked(row, i)]);
    }
  }
  CheckClose(actual, expected, Tolerance(type), problem.Name(gated ? "gated" : "activation"));
}

// parts: 3 with keys and values, 1 for queries alone.
void TestQueryKeyValue(ElementType type, int32_t heads, int32_t head_dim, int32_t rows,
                       int32_t parts = 3) {
  const int32_t inner = heads * head_dim;
  const Problem problem(type, {parts * inner, 64, rows}, true, false);
  const KvLayout layout(2, heads, head_dim);
  constexpr int32_t kStride = 3;
  const int32_t blocks = rows * kStride;
  DeviceValues pool(type, Poison(blocks * layout.BlockStride()));
  DeviceValues query(ElementType::kFloat32, Poison(size_t(problem.capacity()) * inner));
  std::vector<RowInfo> infos(rows);
  std::vector<int32_t> table(size_t(rows) * kStride);
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
  problem.Run(args);
  const std::vector<double> got_query = query.Read();
  const std::vector<double> got_pool = pool.Read();
  std::vector<double> actual, expected, actual_cache, expected_cache;
  size_t written = 0;
  for (const double value : got_pool) written += std::isnan(value) ? 0 : 1;
  size_t active = 0;
  for (int32_t row = 0; row < rows; ++row) {
    for (int32_t i = 0; i < inner; ++i) {
      expected.push_back(problem.Product(row, i));
      actual.push_back(got_query[size_t(row) * inner + i]);
    }
    if (infos[row].flags == 0 || parts == 1) continue;
    ++active;
    const int64_t block = table[infos[row].slot * kStride + infos[row].position / 16];
    for (int32_t i = 0; i < 2 * inner; ++i) {
      const int32_t head = i % inner / head_dim;
      const int64_t at = block * layout.BlockStride() + layout.LayerStride() +
                         (i < inner ? 0 : layout.ValueOffset()) + head * layout.HeadStride() +
                         infos[row].position % 16 * head_dim + i % head_dim;
      expected_cache.push_back(problem.Product(row, inner + i));
      actual_cache.push_back(got_pool[at]);
    }
  }
  CheckClose(actual, expected, SumTolerance(type), problem.Name("query"));
  CheckClose(actual_cache, expected_cache, Tolerance(type), problem.Name("key and value"));
  Check(written == active * 2 * inner, problem.Name("writes nothing else"));
}

void TestLogits(ElementType type, int32_t vocabulary, int32_t rows, bool write_all = false) {
  const Problem problem(type, {vocabulary, 64, rows}, true, false);
  const int32_t tiles = TileCount(vocabulary);
  const std::vector<int32_t> eos = {1, 17};
  std::vector<RowInfo> infos(rows);
  for (int32_t row = 0; row < rows; ++row) {
    infos[row].flags = RowInfo::kActive | (row % 2 == 1 ? RowInfo::kBanEos : 0) |
                       (row % 3 == 0 ? RowInfo::kSample : 0);
  }
  const DeviceRecords<RowInfo> device_infos(infos);
  const DeviceRecords<int32_t> device_eos(eos);
  const DeviceRecords<LogitsPart> parts(
      std::vector<LogitsPart>(size_t(problem.capacity()) * tiles));
  DeviceValues logits(ElementType::kFloat32, Poison(size_t(problem.capacity()) * vocabulary));
  ProjectionArgs args = problem.Args();
  args.output = ProjectionOutput::kLogits;
  args.row_infos = device_infos.data();
  args.logits.parts = parts.data();
  args.logits.logits = logits.floats();
  args.logits.eos_tokens = device_eos.data();
  args.logits.eos_count = 2;
  args.logits.write_all = write_all;
  problem.Run(args);
  const std::vector<LogitsPart> got = parts.Read();
  const std::vector<double> got_logits = logits.Read();
  std::vector<double> actual, expected, actual_logits, expected_logits;
  for (int32_t row = 0; row < rows; ++row) {
    const bool sampled = write_all || (infos[row].flags & RowInfo::kSample) != 0;
    for (int32_t i = 0; i < vocabulary; ++i) {
      const double logit = got_logits[size_t(row) * vocabulary + i];
      if (!sampled) {
        Check(std::isnan(logit), "logits of a greedy row stay unwritten");
        continue;
      }
      actual_logits.push_back(logit);
      expected_logits.push_back(problem.Product(row, i));
    }
    for (int32_t t = 0; t < tiles; ++t) {
      const LogitsPart& part = got[size_t(row) * tiles + t];
      double best = -INFINITY;
      double max = -INFINITY;
      for (int32_t i = t * 16; i < std::min(vocabulary, t * 16 + 16); ++i) {
        const double logit = problem.Product(row, i);
        max = std::max(max, logit);
        const bool banned = row % 2 == 1 && (i == 1 || i == 17);
        if (!banned) best = std::max(best, logit);
      }
      double sum = 0.0;
      for (int32_t i = t * 16; i < std::min(vocabulary, t * 16 + 16); ++i) {
        sum += std::exp(problem.Product(row, i) - max);
      }
      actual.insert(actual.end(), {part.best, part.max, part.sum_exp});
      expected.insert(expected.end(), {best, max, sum});
      Check(std::abs(problem.Product(row, part.best_index) - best) < 1e-4, "index of the best");
    }
  }
  CheckClose(actual, expected, 1e-5, problem.Name("logits, parts"));
  CheckClose(actual_logits, expected_logits, 1e-5, problem.Name("logits"));
}

// A matrix whose stored format is not the model's is packed as if it had been cast before.
void TestPackCasts(ElementType from, ElementType to, bool paired) {
  constexpr int32_t kRows = 24;
  constexpr int32_t kColumns = 40;
  const DeviceValues source(from, RandomValues(kRows * kColumns, 21));
  const DeviceValues cast(to, source.rounded());
  const std::vector<double> zeros(PackedElements(2 * kRows, kColumns), 0.0);
  const DeviceValues packed(to, zeros);
  const DeviceValues expected(to, zeros);
  const auto pack = [&](const DeviceValues& values, ElementType type, const DeviceValues& out) {
    PackArgs args;
    args.source = values.data();
    args.source_type = type;
    args.rows = kRows;
    args.columns = kColumns;
    args.packed = out.data();
    args.packed_type = to;
    args.paired = paired;
    args.half = paired ? 1 : 0;
    args.first_output = paired ? 0 : 8;
    RunOnStream([&](cudaStream_t stream) { return LaunchPack(args, {stream}); });
  };
  pack(source, from, packed);
  pack(cast, to, expected);
  EXPECT_EQ(packed.Read(), expected.Read());
  std::vector<double> sorted = packed.Read();
  std::vector<double> all = cast.rounded();
  all.resize(sorted.size(), 0.0);
  std::ranges::sort(sorted);
  std::ranges::sort(all);
  EXPECT_EQ(sorted, all) << "every number once, the rest zeros";
}

class ProjectionTest : public testing::TestWithParam<ElementType> {};

class ResidualTest : public testing::TestWithParam<std::tuple<ElementType, Shape>> {};

TEST_P(ResidualTest, MatchesDoublePrecision) {
  TestResidual(std::get<0>(GetParam()), std::get<1>(GetParam()));
}

// Rows: below, at and above 8, 16, 32 and 64, where the kernels change; outputs and inputs that
// tiles and chunks don't divide.
constexpr Shape kShapes[] = {{64, 96, 1},   {16, 12, 3},    {200, 416, 7},  {48, 40, 8},
                             {48, 40, 9},   {32, 256, 16},  {32, 256, 17},  {96, 64, 31},
                             {96, 64, 33},  {160, 416, 64}, {160, 416, 65}, {104, 72, 130},
                             {3328, 64, 34}};
constexpr Shape kLargeShapes[] = {{1536, 1536, 1},   {512, 3584, 16}, {200, 1536, 7},
                                  {1536, 1536, 64},  {512, 1536, 30}, {64, 7168, 33},
                                  {1536, 1536, 200}, {3328, 512, 64}, {3328, 512, 1}};

// Compute capabilities 8.6 and 8.9 give a block 99 KB of shared memory; 16 warps would stage 160.
constexpr size_t kSmallDevice = 99 << 10;
class SmallDeviceTest : public testing::TestWithParam<std::tuple<ElementType, Shape>> {};

TEST_P(SmallDeviceTest, MatchesDoublePrecision) {
  TestResidual(std::get<0>(GetParam()), std::get<1>(GetParam()), kSmallDevice);
}

std::string ShapeName(const testing::TestParamInfo<std::tuple<ElementType, Shape>>& info) {
  const auto& [type, shape] = info.param;
  return std::string(TypeName(type)) + "_" + std::to_string(shape.outputs) + "x" +
         std::to_string(shape.inputs) + "_" + std::to_string(shape.rows) + "rows";
}

INSTANTIATE_TEST_SUITE_P(Shapes, ResidualTest,
                         testing::Combine(testing::ValuesIn(kElementTypes),
                                          testing::ValuesIn(kShapes)),
                         ShapeName);
INSTANTIATE_TEST_SUITE_P(LargeShapes, ResidualTest,
                         testing::Combine(testing::ValuesIn(kElementTypes),
                                          testing::ValuesIn(kLargeShapes)),
                         ShapeName);

// Inputs of which less is staged than there would be room for elsewhere.
INSTANTIATE_TEST_SUITE_P(
    LargeShapes, SmallDeviceTest,
    testing::Combine(testing::Values(ElementType::kFloat16, ElementType::kBfloat16),
                     testing::Values(Shape{64, 10240, 1}, Shape{64, 6000, 9}, Shape{3328, 2200, 2},
                                     Shape{3328, 2200, 16}, Shape{64, 7168, 30})),
    ShapeName);

// Launches of a kernel with little shared memory must not take from others' allowance.
TEST(LargeProjectionThreadsTest, LaunchesOfSeveralThreadsDoNotLimitEachOther) {
  constexpr int kThreads = 4;
  constexpr int kLaunches = 2000;
  const auto launch = [](int32_t inputs) {
    const Problem problem(ElementType::kBfloat16, {16, inputs, 1}, false, false);
    const DeviceValues values(ElementType::kFloat32, std::vector<double>(16 * 16, 0.0));
    const DeviceValues scaled(ElementType::kBfloat16, std::vector<double>(32 * 16, 0.0));
    const DeviceValues sums(ElementType::kFloat32, std::vector<double>(16, 0.0));
    const DeviceValues ones(ElementType::kFloat32, std::vector<double>(16, 1.0));
    ProjectionArgs args = problem.Args();
    args.residual.residual = {values.floats(),   scaled.data(), sums.floats(), 1, 16,
                              problem.capacity()};
    args.residual.norm_weight = args.residual.scale = ones.floats();
    RunOnStream([&](cudaStream_t stream) {
      for (int i = 0; i < kLaunches; ++i) {
        const cudaError_t error = LaunchProjection(ElementType::kBfloat16, args, {stream});
        if (error != cudaSuccess) return error;
      }
      return cudaSuccess;
    });
  };
  std::vector<std::future<void>> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.push_back(std::async(std::launch::async, launch, i % 2 == 0 ? 2080 : 7168));
  }
  for (std::future<void>& thread : threads) EXPECT_NO_THROW(thread.get());
}

TEST_P(ProjectionTest, Activation) {
  TestActivation(GetParam(), {96, 64, 5}, ActivationKind::kRelu, false);
  TestActivation(GetParam(), {96, 64, 17}, ActivationKind::kGelu, false);
  TestActivation(GetParam(), {40, 72, 1}, ActivationKind::kSilu, false);
  TestActivation(GetParam(), {104, 64, 70}, ActivationKind::kGeluTanh, false);
}

TEST_P(ProjectionTest, GatedActivation) {
  TestActivation(GetParam(), {192, 64, 9}, ActivationKind::kGeluTanh, true);
  TestActivation(GetParam(), {48, 16, 4}, ActivationKind::kSilu, true);
  TestActivation(GetParam(), {80, 96, 1}, ActivationKind::kRelu, true);
  TestActivation(GetParam(), {208, 64, 67}, ActivationKind::kGelu, true);
}

TEST_P(ProjectionTest, QueryKeyValue) {
  TestQueryKeyValue(GetParam(), 6, 16, 12);
  TestQueryKeyValue(GetParam(), 3, 64, 1);
  TestQueryKeyValue(GetParam(), 2, 24, 71);
}

TEST_P(ProjectionTest, QueryAlone) {
  TestQueryKeyValue(GetParam(), 6, 16, 12, 1);
  TestQueryKeyValue(GetParam(), 2, 24, 71, 1);
}

TEST_P(ProjectionTest, Logits) {
  TestLogits(GetParam(), 211, 6);
  TestLogits(GetParam(), 40, 20);
  TestLogits(GetParam(), 17, 1, true);
  TestLogits(GetParam(), 211, 66, true);
}

TEST_P(ProjectionTest, LargeLogits) {
  TestLogits(GetParam(), 16'003, 5);
  TestLogits(GetParam(), 16'003, 18);
}

TEST_P(ProjectionTest, LargeGatedActivation) {
  TestActivation(GetParam(), {7168, 512, 64}, ActivationKind::kGeluTanh, true);
  TestActivation(GetParam(), {7168, 512, 130}, ActivationKind::kGeluTanh, true);
}

TEST_P(ProjectionTest, PackCasts) {
  for (const ElementType from : kElementTypes) {
    TestPackCasts(from, GetParam(), false);
    TestPackCasts(from, GetParam(), true);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ProjectionTest, testing::ValuesIn(kElementTypes), TypeParamName);

}  // namespace
}  // namespace seq2seq::kernels
