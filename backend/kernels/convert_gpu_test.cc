// Casts between the number formats, against the host's.
#include "backend/kernels/convert.h"

#include <tuple>

#include "backend/kernels/kernel_test_util.h"

namespace seq2seq::kernels {
namespace {

using Pair = std::tuple<ElementType, ElementType>;

class ConvertTest : public testing::TestWithParam<Pair> {
 protected:
  static std::vector<double> Convert(ElementType from, ElementType to,
                                     const std::vector<double>& values) {
    const DeviceValues source(from, values);
    const DeviceValues destination(to, Poison(values.size()));
    RunOnStream([&](cudaStream_t stream) {
      return LaunchConvert(
          {source.data(), from, destination.data(), to, static_cast<int64_t>(values.size())},
          {stream});
    });
    return destination.Read();
  }
};

TEST_P(ConvertTest, RoundsToNearest) {
  const auto [from, to] = GetParam();
  for (const size_t count : {1, 255, 1000, 300'001}) {
    const std::vector<double> values = RandomValues(count, 5);
    const DeviceValues source(from, values);
    const DeviceValues expected(to, source.rounded());
    EXPECT_EQ(Convert(from, to, values), expected.rounded()) << count;
  }
}

TEST_P(ConvertTest, KeepsWhatTheFormatHolds) {
  const auto [from, to] = GetParam();
  const std::vector<double> values = {0.0, -0.0, 1.0, -2.5, 1.0 / 1024, 240.0, 96.0};
  EXPECT_EQ(Convert(from, to, values), values);
}

// Weights beyond float16's range become its largest numbers, not infinities.
TEST(ConvertToFloat16Test, Saturates) {
  const DeviceValues source(ElementType::kFloat32, {1e6, -1e6, 65504.0, -65504.0, 70000.0});
  const DeviceValues destination(ElementType::kFloat16, Poison(5));
  RunOnStream([&](cudaStream_t stream) {
    return LaunchConvert(
        {source.data(), ElementType::kFloat32, destination.data(), ElementType::kFloat16, 5},
        {stream});
  });
  EXPECT_EQ(destination.Read(),
            (std::vector<double>{65504.0, -65504.0, 65504.0, -65504.0, 65504.0}));
}

INSTANTIATE_TEST_SUITE_P(Pairs, ConvertTest,
                         testing::Combine(testing::ValuesIn(kElementTypes),
                                          testing::ValuesIn(kElementTypes)),
                         [](const testing::TestParamInfo<Pair>& info) {
                           return std::string(TypeName(std::get<0>(info.param))) + "To" +
                                  TypeName(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace seq2seq::kernels
