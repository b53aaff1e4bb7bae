// LayerNorm and the start of rows against arithmetic in double.
#include "backend/kernels/layer_norm.h"

#include <ostream>

#include "backend/kernels/kernel_test_util.h"
#include "backend/kernels/operand_layout.h"

namespace seq2seq::kernels {
namespace {

constexpr int32_t kTableRows = 9;
constexpr int32_t kOffset = 2;
constexpr float kScale = 3.5F;
constexpr float kEpsilon = 1e-5F;
constexpr int32_t kPositionStride = 4;

// What of a call is there.
struct Form {
  const char* name;
  bool starts;
  bool norms;
  bool has_bias;
  bool writes_back;
  bool has_output;
  bool blocked;

  friend void PrintTo(const Form& form, std::ostream* out) { *out << form.name; }
};

constexpr Form kForms[] = {
    {"pre_norm", false, true, true, false, true, false},
    {"pre_norm_operand", false, true, true, false, true, true},
    {"post_norm", false, true, true, true, true, false},
    {"post_norm_operand_without_bias", false, true, false, true, true, true},
    {"start_with_pre_norm", true, true, true, false, true, true},
    {"start_with_norm_of_embeddings", true, true, true, true, false, false},
    {"start_with_norm_of_embeddings_and_output", true, true, true, true, true, false},
    {"start_without_norm", true, false, false, true, true, true},
};

class LayerNormTest : public testing::TestWithParam<std::tuple<ElementType, Form>> {
 protected:
  void Run(int32_t rows, int32_t width);
};

void LayerNormTest::Run(int32_t rows, int32_t width) {
  const auto [type, form] = GetParam();
  const int32_t capacity = (rows + 7) / 8 * 8;
  const int32_t chunks = (width + 31) / 32;
  // A mean that is large beside the deviation: a variance by differences of squares would be off.
  std::vector<double> inputs = RandomValues(rows * width, 1);
  for (double& value : inputs) value += 40.0;
  const DeviceValues values(ElementType::kFloat32, inputs);
  const DeviceValues weight(ElementType::kFloat32, RandomValues(width, 2));
  const DeviceValues bias(ElementType::kFloat32, RandomValues(width, 3));
  const DeviceValues table(ElementType::kFloat32, RandomValues(kTableRows * width, 4));
  std::vector<int32_t> positions(rows * kPositionStride, -1'000'000);
  for (int32_t row = 0; row < rows; ++row) positions[row * kPositionStride] = row;
  const DeviceRecords<int32_t> device_positions(positions);
  const DeviceValues output(type, Poison(form.blocked ? chunks * capacity * 32 : rows * width));
  LayerNormArgs args;
  args.values = values.floats();
  if (form.starts) {
    args.start = {table.floats(),          kTableRows,     kOffset, kScale,
                  device_positions.data(), kPositionStride};
  }
  if (form.norms) args.weight = weight.floats();
  if (form.has_bias) args.bias = bias.floats();
  args.epsilon = kEpsilon;
  args.rows = rows;
  args.width = width;
  args.write_back = form.writes_back;
  if (form.has_output) args.output = output.data();
  if (form.blocked) args.row_capacity = capacity;
  RunOnStream([&](cudaStream_t stream) { return LaunchLayerNorm(type, args, {stream}); });

  std::vector<double> stream, normed;
  for (int32_t row = 0; row < rows; ++row) {
    std::vector<double> x(width);
    double mean = 0.0;
    for (int32_t k = 0; k < width; ++k) {
      x[k] = values.rounded()[row * width + k];
      if (form.starts) {
        const int32_t position = std::min(row + kOffset, kTableRows - 1);
        x[k] = x[k] * kScale + table.rounded()[position * width + k];
      }
      mean += x[k] / width;
    }
    double variance = 0.0;
    for (const double value : x) variance += (value - mean) * (value - mean) / width;
    for (int32_t k = 0; k < width; ++k) {
      double y = x[k];
      if (form.norms) {
        y = (x[k] - mean) / std::sqrt(variance + kEpsilon) * weight.rounded()[k];
        if (form.has_bias) y += bias.rounded()[k];
      }
      normed.push_back(y);
      stream.push_back(form.writes_back ? y : x[k]);
    }
  }
  const std::string name = std::string(TypeName(type)) + " " + form.name + ", " +
                           std::to_string(rows) + " x " + std::to_string(width);
  CheckClose(values.Read(), stream, Tolerance(ElementType::kFloat32), name + ": residual stream");
  if (!form.has_output) return;
  const std::vector<double> got = output.Read();
  std::vector<double> actual;
  for (int32_t row = 0; row < rows; ++row) {
    for (int32_t k = 0; k < width; ++k) {
      actual.push_back(got[form.blocked ? BlockedPlace(type, row, k, capacity) : row * width + k]);
    }
  }
  CheckClose(actual, normed, Tolerance(type), name + ": output");
  size_t written = 0;
  for (const double value : got) written += std::isnan(value) ? 0 : 1;
  Check(written == normed.size(), name + ": writes nothing else");
}

// Widths below a warp's vectors and around a block's, models' widths, and one too wide for the
// registers; more rows than the table has positions, and as many as have a warp each.
TEST_P(LayerNormTest, MatchesDoublePrecision) {
  for (const int32_t width : {4, 20, 128, 512, 1000, 1028, 2048, 4100, 9000}) {
    Run(1, width);
    Run(11, width);
  }
  for (const int32_t width : {20, 1000}) Run(1030, width);
}

INSTANTIATE_TEST_SUITE_P(TypesAndForms, LayerNormTest,
                         testing::Combine(testing::ValuesIn(kElementTypes),
                                          testing::ValuesIn(kForms)),
                         [](const auto& info) {
                           return std::string(TypeName(std::get<0>(info.param))) + "_" +
                                  std::get<1>(info.param).name;
                         });

// An infinity would spread to everything after it.
TEST(LayerNormRangeTest, Float16Saturates) {
  constexpr int32_t kWidth = 8;
  std::vector<double> alternating;
  for (int32_t k = 0; k < kWidth; ++k) alternating.push_back(k % 2 == 0 ? 1.0 : -1.0);
  const DeviceValues values(ElementType::kFloat32, alternating);
  const DeviceValues weight(ElementType::kFloat32, std::vector<double>(kWidth, 1e5));
  const DeviceValues output(ElementType::kFloat16, Poison(kWidth));
  LayerNormArgs args;
  args.values = values.floats();
  args.weight = weight.floats();
  args.rows = 1;
  args.width = kWidth;
  args.output = output.data();
  RunOnStream(
      [&](cudaStream_t stream) { return LaunchLayerNorm(ElementType::kFloat16, args, {stream}); });
  for (int32_t k = 0; k < kWidth; ++k) {
    EXPECT_EQ(output.Read()[k], k % 2 == 0 ? 65504.0 : -65504.0);
  }
}

TEST(LayerNormRangeTest, WidthsThatNoVectorDividesAreRefused) {
  const DeviceValues values(ElementType::kFloat32, std::vector<double>(8, 1.0));
  LayerNormArgs args;
  args.values = values.floats();
  args.rows = 1;
  args.width = 6;
  cudaStream_t stream = nullptr;
  CheckCuda(cudaStreamCreate(&stream), "stream");
  EXPECT_EQ(LaunchLayerNorm(ElementType::kFloat32, args, {stream}), cudaErrorInvalidValue);
  CheckCuda(cudaStreamDestroy(stream), "stream");
}

}  // namespace
}  // namespace seq2seq::kernels
