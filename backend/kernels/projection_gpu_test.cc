// LaunchProjection, with whatever kernel it chooses, against sums in double on the same rounded
// inputs.
#include "backend/kernels/projection.h"

#include <algorithm>
#include <future>
#include <tuple>

#include "backend/kernels/projection_test_util.h"

namespace seq2seq::kernels {
namespace {

// What LaunchProjection chooses, in number format `type`.
RunProjection Chosen(ElementType type, size_t shared_limit = LaunchContext().shared_limit) {
  return [=](const ProjectionArgs& args, cudaStream_t stream) {
    return LaunchProjection(type, args, {.stream = stream, .shared_limit = shared_limit});
  };
}

void TestChosenActivation(ElementType type, const ProjectionShape& shape, ActivationKind kind,
                          bool gated) {
  TestActivation(type, shape, kind, gated, Chosen(type));
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

using Case = std::tuple<ElementType, ProjectionShape>;

class ResidualTest : public testing::TestWithParam<Case> {};

TEST_P(ResidualTest, MatchesDoublePrecision) {
  const auto& [type, shape] = GetParam();
  TestResidual(ProjectionProblem(type, shape, {.normed = false}), Chosen(type));
}

// Rows: below, at and above 8, 16, 32 and 64, where the kernels change; outputs and inputs that
// tiles and chunks don't divide.
constexpr ProjectionShape kShapes[] = {
    {64, 96, 1},    {16, 12, 3},    {200, 416, 7}, {48, 40, 8},  {48, 40, 9},
    {32, 256, 16},  {32, 256, 17},  {96, 64, 31},  {96, 64, 33}, {160, 416, 64},
    {160, 416, 65}, {104, 72, 130}, {3328, 64, 34}};
constexpr ProjectionShape kLargeShapes[] = {{1536, 1536, 1},   {512, 3584, 16}, {200, 1536, 7},
                                            {1536, 1536, 64},  {512, 1536, 30}, {64, 7168, 33},
                                            {1536, 1536, 200}, {3328, 512, 64}, {3328, 512, 1}};

// Compute capabilities 8.6 and 8.9 give a block 99 KB of shared memory; 16 warps would stage 160.
constexpr size_t kSmallDevice = 99 << 10;
class SmallDeviceTest : public testing::TestWithParam<Case> {};

TEST_P(SmallDeviceTest, MatchesDoublePrecision) {
  const auto& [type, shape] = GetParam();
  TestResidual(ProjectionProblem(type, shape, {.normed = false}), Chosen(type, kSmallDevice));
}

std::string CaseName(const testing::TestParamInfo<Case>& info) {
  const auto& [type, shape] = info.param;
  return std::string(TypeName(type)) + "_" + ShapeName(shape);
}

INSTANTIATE_TEST_SUITE_P(Shapes, ResidualTest,
                         testing::Combine(testing::ValuesIn(kElementTypes),
                                          testing::ValuesIn(kShapes)),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(LargeShapes, ResidualTest,
                         testing::Combine(testing::ValuesIn(kElementTypes),
                                          testing::ValuesIn(kLargeShapes)),
                         CaseName);

// Inputs of which less is staged than there would be room for elsewhere.
INSTANTIATE_TEST_SUITE_P(
    LargeShapes, SmallDeviceTest,
    testing::Combine(testing::Values(ElementType::kFloat16, ElementType::kBfloat16),
                     testing::Values(ProjectionShape{64, 10240, 1}, ProjectionShape{64, 6000, 9},
                                     ProjectionShape{3328, 2200, 2},
                                     ProjectionShape{3328, 2200, 16},
                                     ProjectionShape{64, 7168, 30})),
    CaseName);

// Launches of a kernel with little shared memory must not take from others' allowance.
TEST(LargeProjectionThreadsTest, LaunchesOfSeveralThreadsDoNotLimitEachOther) {
  constexpr int kThreads = 4;
  constexpr int kLaunches = 2000;
  const auto launch = [](int32_t inputs) {
    const ProjectionProblem problem(ElementType::kBfloat16, {16, inputs, 1}, {.normed = false});
    const ResidualBuffers buffers(problem);
    ProjectionArgs args = problem.Args();
    buffers.Attach(&args);
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
  TestChosenActivation(GetParam(), {96, 64, 5}, ActivationKind::kRelu, false);
  TestChosenActivation(GetParam(), {96, 64, 17}, ActivationKind::kGelu, false);
  TestChosenActivation(GetParam(), {40, 72, 1}, ActivationKind::kSilu, false);
  TestChosenActivation(GetParam(), {104, 64, 70}, ActivationKind::kGeluTanh, false);
}

TEST_P(ProjectionTest, GatedActivation) {
  TestChosenActivation(GetParam(), {192, 64, 9}, ActivationKind::kGeluTanh, true);
  TestChosenActivation(GetParam(), {48, 16, 4}, ActivationKind::kSilu, true);
  TestChosenActivation(GetParam(), {80, 96, 1}, ActivationKind::kRelu, true);
  TestChosenActivation(GetParam(), {208, 64, 67}, ActivationKind::kGelu, true);
}

TEST_P(ProjectionTest, QueryKeyValue) {
  TestQueryKeyValue(GetParam(), {6, 16, 3}, 64, 12, Chosen(GetParam()));
  TestQueryKeyValue(GetParam(), {3, 64, 3}, 64, 1, Chosen(GetParam()));
  TestQueryKeyValue(GetParam(), {2, 24, 3}, 64, 71, Chosen(GetParam()));
}

TEST_P(ProjectionTest, QueryAlone) {
  TestQueryKeyValue(GetParam(), {6, 16, 1}, 64, 12, Chosen(GetParam()));
  TestQueryKeyValue(GetParam(), {2, 24, 1}, 64, 71, Chosen(GetParam()));
}

TEST_P(ProjectionTest, Logits) {
  TestLogits(GetParam(), {211, 64, 6}, Chosen(GetParam()));
  TestLogits(GetParam(), {40, 64, 20}, Chosen(GetParam()));
  TestLogits(GetParam(), {17, 64, 1}, Chosen(GetParam()), true);
  TestLogits(GetParam(), {211, 64, 66}, Chosen(GetParam()), true);
}

TEST_P(ProjectionTest, LargeLogits) {
  TestLogits(GetParam(), {16'003, 64, 5}, Chosen(GetParam()));
  TestLogits(GetParam(), {16'003, 64, 18}, Chosen(GetParam()));
}

TEST_P(ProjectionTest, LargeGatedActivation) {
  TestChosenActivation(GetParam(), {7168, 512, 64}, ActivationKind::kGeluTanh, true);
  TestChosenActivation(GetParam(), {7168, 512, 130}, ActivationKind::kGeluTanh, true);
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
