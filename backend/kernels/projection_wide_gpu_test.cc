// The projections of many rows, each kernel that can do them. projection_gpu_test.cc has the other
// kernels and LaunchProjection's choice.
#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "backend/kernels/projection_kernels.h"
#include "backend/kernels/projection_test_util.h"
#include "backend/kernels/tensor_map.h"

namespace seq2seq::kernels {
namespace {

enum class Kernel : uint8_t { kPortable, kWarpgroup };

using Case = std::tuple<Kernel, ElementType, ProjectionShape>;

class WideTest : public testing::TestWithParam<Case> {
 protected:
  static ElementType type() { return std::get<1>(GetParam()); }
  static ProjectionShape shape() { return std::get<2>(GetParam()); }

  static cudaError_t Launch(const ProjectionArgs& args, cudaStream_t stream) {
    return std::get<0>(GetParam()) == Kernel::kWarpgroup
               ? LaunchWarpgroupProjection(type(), args, {stream})
               : LaunchWideProjection(type(), args, {stream});
  }
};

class ProjectionWideGpuTest : public WideTest {};

TEST_P(ProjectionWideGpuTest, AddsToTheResidualStream) {
  TestResidual(ProjectionProblem(type(), shape(), {}), Launch);
}

TEST_P(ProjectionWideGpuTest, Activates) {
  ProjectionShape even = shape();
  even.outputs = (even.outputs + 1) / 2 * 2;
  for (const bool gated : {false, true}) {
    TestActivation(type(), even, ActivationKind::kSilu, gated, Launch);
  }
}

TEST_P(ProjectionWideGpuTest, WritesQueriesAndTheCache) {
  // Heads of 16 whatever the outputs, up to a cache of a tolerable size.
  constexpr int32_t kMostHeads = 6;
  for (const int32_t parts : {1, 3}) {
    const int32_t heads = std::clamp(shape().outputs / (16 * parts), 1, kMostHeads);
    TestQueryKeyValue(type(), {heads, 16, parts}, shape().inputs, shape().rows, Launch);
  }
}

// A row's result depends on nothing but the row: not on the other rows, not on timing.
TEST_P(ProjectionWideGpuTest, RowsAreIndependentToTheBit) {
  ProjectionProblem problem(type(), shape(), {});
  const int32_t width = shape().outputs;
  const int32_t kept = shape().rows - 1;
  std::vector<std::vector<double>> results;
  for (int run = 0; run < 3; ++run) {
    const ResidualBuffers buffers(problem);
    ProjectionArgs args = problem.Args();
    buffers.Attach(&args);
    RunOnStream([&](cudaStream_t stream) { return Launch(args, stream); });
    const std::vector<double> values = buffers.values.Read();
    results.emplace_back(values.begin() + static_cast<int64_t>(kept) * width,
                         values.begin() + static_cast<int64_t>(kept + 1) * width);
    if (run == 1) problem.ReplaceOthers(kept);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

class LogitsWideGpuTest : public WideTest {};

TEST_P(LogitsWideGpuTest, SumsUpLogits) { TestLogits(type(), shape(), Launch); }

std::string CaseName(const testing::TestParamInfo<Case>& info) {
  const auto& [kernel, type, shape] = info.param;
  return std::string(kernel == Kernel::kPortable ? "Portable" : "Warpgroup") + "_" +
         TypeName(type) + "_" + ShapeName(shape);
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
constexpr ProjectionShape kShapes[] = {{16, 32, 33},   {200, 72, 64},  {136, 200, 65},
                                       {72, 520, 130}, {48, 104, 200}, {136, 136, 300}};
constexpr ProjectionShape kLargeShapes[] = {
    {1536, 520, 64}, {3080, 136, 100}, {136, 3592, 192}, {4232, 72, 256}};
// As many outputs as only a vocabulary has.
constexpr ProjectionShape kVocabularies[] = {{16400, 64, 100}, {16400, 64, 200}};

template <typename Shapes>
auto Cases(const Shapes& shapes) {
  return testing::Combine(testing::ValuesIn(Kernels()), testing::ValuesIn(kHalfTypes),
                          testing::ValuesIn(shapes));
}

INSTANTIATE_TEST_SUITE_P(Small, ProjectionWideGpuTest, Cases(kShapes), CaseName);
INSTANTIATE_TEST_SUITE_P(Large, ProjectionWideGpuTest, Cases(kLargeShapes), CaseName);
INSTANTIATE_TEST_SUITE_P(Small, LogitsWideGpuTest, Cases(kShapes), CaseName);
INSTANTIATE_TEST_SUITE_P(Large, LogitsWideGpuTest, Cases(kVocabularies), CaseName);

}  // namespace
}  // namespace seq2seq::kernels
