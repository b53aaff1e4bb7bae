// Every kernel of every instruction set that this machine runs, against sums in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "backend/core/dtype.h"
#include "backend/cpu/kernels/kernel_table.h"
#include "backend/cpu/packed_matrix.h"
#include "backend/model/tensor_view.h"

namespace seq2seq::cpu {
namespace {

std::vector<KernelLevel> Levels() {
  std::vector<KernelLevel> levels;
  for (KernelLevel level : {KernelLevel::kPortable, KernelLevel::kAvx2, KernelLevel::kAvx512}) {
    if (FindKernels(level) != nullptr) levels.push_back(level);
  }
  return levels;
}

std::string LevelName(const testing::TestParamInfo<KernelLevel>& info) {
  return FindKernels(info.param)->name;
}

std::vector<float> Random(size_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(generator);
  return values;
}

class KernelsTest : public testing::TestWithParam<KernelLevel> {
 protected:
  const KernelTable& kernels_ = *FindKernels(GetParam());
};

struct Shape {
  int32_t rows;
  int32_t depth;
  int32_t columns;
};

// y = x W^T, W as packed. Tolerance: a chain of `depth` fp32 additions of terms below 1 is off by
// less than depth x 2^-24 x depth / 4 in the worst case; the values here stay far below.
void CheckGemm(const KernelTable& kernels, const Shape& shape, DType dtype, bool accumulate) {
  const auto [rows, depth, columns] = shape;
  SCOPED_TRACE(std::string(kernels.name) + " " + std::string(DTypeName(dtype)) + " " +
               std::to_string(rows) + "x" + std::to_string(depth) + "x" + std::to_string(columns));
  const std::vector<float> weight = Random(static_cast<size_t>(columns) * depth, 1);
  const std::vector<TensorView> parts = {
      {reinterpret_cast<const std::byte*>(weight.data()), DType::kFloat32, {columns, depth}}};
  std::vector<std::byte> memory(PackedMatrix::PackedBytes(columns, depth, dtype));
  const auto packed = PackedMatrix::Pack(parts, dtype, "w", memory.data());
  ASSERT_TRUE(packed);
  const size_t x_stride = depth + 3;
  const size_t y_stride = columns + 5;
  const std::vector<float> x = Random(rows * x_stride, 2);
  const std::vector<float> bias = Random(columns, 3);
  const std::vector<float> before = Random(rows * y_stride, 4);
  std::vector<float> y = before;
  GemmArgs args;
  args.x = x.data();
  args.x_stride = x_stride;
  args.rows = rows;
  args.depth = depth;
  args.panels = packed->data();
  args.dtype = dtype;
  args.columns = columns;
  args.bias = accumulate ? nullptr : bias.data();
  args.accumulate = accumulate;
  args.y = y.data();
  args.y_stride = y_stride;
  // In two calls, as threads share the panels.
  args.panel_end = packed->panels() / 2;
  kernels.gemm(args);
  args.panel_begin = args.panel_end;
  args.panel_end = packed->panels();
  kernels.gemm(args);
  std::vector<float> row_weight(depth);
  for (int32_t column = 0; column < columns; ++column) {
    packed->CopyRow(column, row_weight.data());
    for (int32_t row = 0; row < rows; ++row) {
      double sum = accumulate ? before[row * y_stride + column] : bias[column];
      for (int32_t k = 0; k < depth; ++k) sum += double{x[row * x_stride + k]} * row_weight[k];
      ASSERT_NEAR(y[row * y_stride + column], sum, 2e-6 * depth + 1e-6) << row << ", " << column;
    }
  }
  for (int32_t row = 0; row < rows; ++row) {
    for (size_t column = columns; column < y_stride; ++column) {
      ASSERT_EQ(y[row * y_stride + column], before[row * y_stride + column]) << "written beyond";
    }
  }
}

TEST_P(KernelsTest, GemmEqualsSumsInDouble) {
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (int32_t rows = 1; rows <= 26; ++rows) {
      CheckGemm(kernels_, {rows, 33, 97}, dtype, rows % 2 == 0);
    }
    for (const Shape& shape : {Shape{1, 1, 1}, Shape{3, 16, 32}, Shape{2, 64, 31},
                               Shape{64, 512, 64}, Shape{130, 1100, 40}}) {
      CheckGemm(kernels_, shape, dtype, false);
    }
  }
}

// A sequence's tokens must not depend on its company: bit for bit.
TEST_P(KernelsTest, GemmRowsDoNotDependOnOtherRows) {
  constexpr int32_t kRows = 40;
  constexpr int32_t kDepth = 200;
  constexpr int32_t kColumns = 96;
  const std::vector<float> weight = Random(kColumns * kDepth, 1);
  const std::vector<TensorView> parts = {
      {reinterpret_cast<const std::byte*>(weight.data()), DType::kFloat32, {kColumns, kDepth}}};
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    std::vector<std::byte> memory(PackedMatrix::PackedBytes(kColumns, kDepth, dtype));
    const auto packed = PackedMatrix::Pack(parts, dtype, "w", memory.data());
    ASSERT_TRUE(packed);
    const std::vector<float> x = Random(kRows * kDepth, 2);
    std::vector<float> together(kRows * kColumns);
    GemmArgs args;
    args.x = x.data();
    args.x_stride = kDepth;
    args.rows = kRows;
    args.depth = kDepth;
    args.panels = packed->data();
    args.dtype = dtype;
    args.panel_end = packed->panels();
    args.columns = kColumns;
    args.y = together.data();
    args.y_stride = kColumns;
    kernels_.gemm(args);
    for (int32_t rows = 1; rows <= 12; ++rows) {
      std::vector<float> few(kRows * kColumns);
      args.x = x.data() + 5 * kDepth;
      args.rows = rows;
      args.y = few.data();
      kernels_.gemm(args);
      for (int32_t i = 0; i < rows * kColumns; ++i) {
        ASSERT_EQ(few[i], together[5 * kColumns + i]) << rows;
      }
    }
  }
}

TEST_P(KernelsTest, AttendEqualsNaiveAttention) {
  for (const auto& [dim, count, biased] : {std::tuple{64, 1, true},
                                           {64, 32, false},
                                           {64, 77, true},
                                           {16, 40, true},
                                           {4, 33, false},
                                           {20, 65, true},
                                           {128, 100, true}}) {
    SCOPED_TRACE(std::to_string(dim) + ", " + std::to_string(count));
    const size_t value_stride = (dim + 15) / 16 * 16;
    const size_t block_stride = kPanelColumns * (dim + value_stride) + 64;
    // Blocks lie in any order; what a block holds beyond `count` must not matter, not even NaN.
    const std::vector<int32_t> blocks = {4, 0, 2, 3};
    std::vector<float> pool(5 * block_stride, std::numeric_limits<float>::quiet_NaN());
    const std::vector<float> keys = Random(count * dim, 5);
    const std::vector<float> values = Random(count * dim, 6);
    for (int32_t j = 0; j < count; ++j) {
      float* block = pool.data() + blocks[j / kPanelColumns] * block_stride + 16;
      for (int32_t d = 0; d < dim; ++d) {
        block[d * kPanelColumns + j % kPanelColumns] = keys[j * dim + d];
        block[dim * kPanelColumns + (j % kPanelColumns) * value_stride + d] = values[j * dim + d];
      }
    }
    const std::vector<float> query = Random(dim, 7);
    const std::vector<float> bias = Random(count, 8);
    std::vector<float> scores(count + kPanelColumns);
    std::vector<float> output(dim + 16, 42.0F);
    AttendArgs args;
    args.query = query.data();
    args.head_dim = dim;
    args.scale = 0.7F;
    args.bias = biased ? bias.data() : nullptr;
    args.pool = pool.data();
    args.block_stride = block_stride;
    args.blocks = blocks.data();
    args.key_offset = 16;
    args.value_offset = 16 + dim * kPanelColumns;
    args.value_stride = value_stride;
    args.count = count;
    args.scores = scores.data();
    args.output = output.data();
    kernels_.attend(args);
    std::vector<double> weight(count);
    double total = 0.0;
    for (int32_t j = 0; j < count; ++j) {
      double score = 0.0;
      for (int32_t d = 0; d < dim; ++d) score += double{query[d]} * keys[j * dim + d];
      weight[j] = std::exp(0.7F * score + (biased ? bias[j] : 0.0F));
      total += weight[j];
    }
    for (int32_t d = 0; d < dim; ++d) {
      double truth = 0.0;
      for (int32_t j = 0; j < count; ++j) truth += weight[j] / total * values[j * dim + d];
      EXPECT_NEAR(output[d], truth, 1e-5);
    }
    for (int32_t d = dim; d < dim + 16; ++d) EXPECT_EQ(output[d], 42.0F) << "written beyond";
  }
}

TEST_P(KernelsTest, SoftmaxEqualsDouble) {
  for (int32_t count : {1, 5, 16, 31, 100, 513}) {
    std::vector<float> scores = Random(count + kLaneFloats, 9);
    for (float& score : scores) score *= 60.0F;
    const std::vector<float> bias = Random(count, 10);
    const std::vector<float> before = scores;
    const float factor = kernels_.softmax(scores.data(), bias.data(), 0.5F, count);
    double max = -1e30;
    for (int32_t i = 0; i < count; ++i) max = std::max(max, 0.5 * before[i] + bias[i]);
    double total = 0.0;
    for (int32_t i = 0; i < count; ++i) total += std::exp(0.5 * before[i] + bias[i] - max);
    for (int32_t i = 0; i < count; ++i) {
      EXPECT_NEAR(scores[i] * factor, std::exp(0.5 * before[i] + bias[i] - max) / total, 1e-5);
    }
  }
}

TEST_P(KernelsTest, RmsNormEqualsDouble) {
  for (int32_t size : {1, 7, 64, 100, 512}) {
    const std::vector<float> x = Random(size, 11);
    const std::vector<float> weight = Random(size, 12);
    std::vector<float> out(size);
    kernels_.rms_norm(x.data(), weight.data(), 1e-6F, size, out.data());
    double squares = 0.0;
    for (float value : x) squares += double{value} * value;
    const double scale = 1.0 / std::sqrt(squares / size + 1e-6);
    for (int32_t i = 0; i < size; ++i) EXPECT_NEAR(out[i], weight[i] * x[i] * scale, 2e-6);
  }
}

TEST_P(KernelsTest, ActivationsEqualDouble) {
  const auto truth = [](Activation kind, double x) {
    switch (kind) {
      case Activation::kRelu:
        return std::max(x, 0.0);
      case Activation::kGelu:
        return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
      case Activation::kGeluTanh:
        return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
      case Activation::kSilu:
        return x / (1.0 + std::exp(-x));
    }
    return 0.0;
  };
  constexpr int32_t kSize = 1003;
  for (Activation kind :
       {Activation::kRelu, Activation::kGelu, Activation::kGeluTanh, Activation::kSilu}) {
    std::vector<float> x(kSize);
    for (int32_t i = 0; i < kSize; ++i) x[i] = static_cast<float>(i - 500) * 0.1F;
    const std::vector<float> before = x;
    const std::vector<float> up = Random(kSize, 13);
    kernels_.activate(kind, x.data(), nullptr, kSize);
    for (int32_t i = 0; i < kSize; ++i) {
      const double y = truth(kind, before[i]);
      EXPECT_NEAR(x[i], y, 2e-6 * (1.0 + std::abs(y))) << before[i];
    }
    x = before;
    kernels_.activate(kind, x.data(), up.data(), kSize);
    for (int32_t i = 0; i < kSize; ++i) {
      const double y = truth(kind, before[i]) * up[i];
      EXPECT_NEAR(x[i], y, 2e-6 * (1.0 + std::abs(y))) << before[i];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, KernelsTest, testing::ValuesIn(Levels()), LevelName);

}  // namespace
}  // namespace seq2seq::cpu
