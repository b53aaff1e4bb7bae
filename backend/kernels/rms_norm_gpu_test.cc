// RmsNorm on a device beside the formula in double precision on the host.
//
// Tolerances: the residual is one float addition, so it must match to the bit. The output may
// differ from the reference by half a unit in the last place of its type (it is rounded once), plus
// kFloatError for the float arithmetic before that: a tree of float additions over at most 8,200
// squares, a square root, a division and two products.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "backend/kernels/element_type.h"
#include "backend/kernels/rms_norm.h"

namespace seq2seq::kernels {
namespace {

constexpr double kFloatError = 2e-6;

struct DeviceFree {
  void operator()(void* memory) const { EXPECT_EQ(cudaFree(memory), cudaSuccess); }
};
using DeviceMemory = std::unique_ptr<std::byte, DeviceFree>;

DeviceMemory ToDevice(const std::vector<std::byte>& host) {
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, host.size()), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(memory, host.data(), host.size(), cudaMemcpyHostToDevice), cudaSuccess);
  return DeviceMemory(static_cast<std::byte*>(memory));
}

std::vector<std::byte> ToHost(const std::byte* device, size_t bytes) {
  std::vector<std::byte> host(bytes);
  EXPECT_EQ(cudaMemcpy(host.data(), device, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
  return host;
}

size_t SizeOf(ElementType type) { return type == ElementType::kFloat32 ? 4 : 2; }

// Half a unit in the last place, relative to the value, for normal numbers.
double RoundingOf(ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
      return std::ldexp(1.0, -24);
    case ElementType::kFloat16:
      return std::ldexp(1.0, -11);
    case ElementType::kBfloat16:
      return std::ldexp(1.0, -8);
  }
  return 0.0;
}

// Half the distance between subnormal numbers.
double SmallestOf(ElementType type) {
  return type == ElementType::kFloat16 ? std::ldexp(1.0, -25) : 1e-37;
}

void Encode(float value, ElementType type, std::byte* to) {
  if (type == ElementType::kFloat32) {
    std::memcpy(to, &value, sizeof(value));
  } else if (type == ElementType::kFloat16) {
    const _Float16 half = static_cast<_Float16>(value);
    std::memcpy(to, &half, sizeof(half));
  } else {
    const auto upper = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
    std::memcpy(to, &upper, sizeof(upper));
  }
}

float Decode(const std::byte* from, ElementType type) {
  if (type == ElementType::kFloat32) {
    float value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  if (type == ElementType::kFloat16) {
    _Float16 half;
    std::memcpy(&half, from, sizeof(half));
    return static_cast<float>(half);
  }
  uint16_t upper;
  std::memcpy(&upper, from, sizeof(upper));
  return std::bit_cast<float>(static_cast<uint32_t>(upper) << 16);
}

// `count` random numbers, stored as `type`, behind `offset` elements of padding.
std::vector<std::byte> RandomStored(int count, int offset, ElementType type, float scale,
                                    uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<std::byte> stored((count + offset) * SizeOf(type));
  for (int i = 0; i < count + offset; ++i) Encode(normal(random), type, &stored[i * SizeOf(type)]);
  return stored;
}

struct Shape {
  int rows;
  int width;
  // Elements by which every operand is shifted off its allocation's alignment.
  int offset;
  bool with_delta;
};

using Case = std::tuple<Shape, ElementType, ElementType>;

class RmsNormGpuTest : public testing::TestWithParam<Case> {};

TEST_P(RmsNormGpuTest, MatchesDoublePrecision) {
  const auto [shape, weight_type, activation_type] = GetParam();
  const int count = shape.rows * shape.width;
  const size_t size = SizeOf(activation_type);
  const auto residual = RandomStored(count, shape.offset, ElementType::kFloat32, 3.0f, 1);
  const auto delta = RandomStored(count, shape.offset, activation_type, 1.0f, 2);
  const auto weight = RandomStored(shape.width, shape.offset, weight_type, 1.0f, 3);
  const DeviceMemory residual_device = ToDevice(residual);
  const DeviceMemory delta_device = ToDevice(delta);
  const DeviceMemory weight_device = ToDevice(weight);
  const DeviceMemory output_device =
      ToDevice(std::vector<std::byte>(delta.size(), std::byte{0xff}));

  RmsNormParams params;
  params.residual = reinterpret_cast<float*>(residual_device.get()) + shape.offset;
  params.delta = shape.with_delta ? delta_device.get() + shape.offset * size : nullptr;
  params.weight = weight_device.get() + shape.offset * SizeOf(weight_type);
  params.output = output_device.get() + shape.offset * size;
  params.rows = shape.rows;
  params.width = shape.width;
  params.weight_type = weight_type;
  params.activation_type = activation_type;
  ASSERT_EQ(RmsNorm(params, nullptr), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const auto new_residual = ToHost(residual_device.get(), residual.size());
  const auto output = ToHost(output_device.get(), delta.size());

  for (int row = 0; row < shape.rows; ++row) {
    std::vector<float> sums(shape.width);
    double squares = 0.0;
    for (int i = 0; i < shape.width; ++i) {
      const int at = shape.offset + row * shape.width + i;
      sums[i] = Decode(&residual[at * 4], ElementType::kFloat32);
      if (shape.with_delta) sums[i] += Decode(&delta[at * size], activation_type);
      ASSERT_EQ(Decode(&new_residual[at * 4], ElementType::kFloat32), sums[i]) << row << " " << i;
      squares += static_cast<double>(sums[i]) * sums[i];
    }
    const double root = std::sqrt(squares / shape.width + params.epsilon);
    for (int i = 0; i < shape.width; ++i) {
      const int at = shape.offset + row * shape.width + i;
      const double factor = Decode(&weight[(shape.offset + i) * SizeOf(weight_type)], weight_type);
      const double expected = sums[i] / root * factor;
      const double tolerance = std::abs(expected) * (RoundingOf(activation_type) + kFloatError) +
                               SmallestOf(activation_type);
      ASSERT_NEAR(Decode(&output[at * size], activation_type), expected, tolerance)
          << row << " " << i;
    }
  }
}

constexpr ElementType kTypes[] = {ElementType::kFloat32, ElementType::kFloat16,
                                  ElementType::kBfloat16};

// Widths around one warp and one block, models' widths, one that no vector divides, and one too
// wide for registers with vectors (more than 16,384) and without (more than 2,048).
INSTANTIATE_TEST_SUITE_P(
    ShapesAndTypes, RmsNormGpuTest,
    testing::Combine(testing::Values(Shape{1, 1, 0, true}, Shape{3, 32, 0, true},
                                     Shape{5, 250, 0, true}, Shape{7, 512, 0, true},
                                     Shape{2, 512, 0, false}, Shape{4, 512, 1, true},
                                     Shape{64, 1536, 0, true}, Shape{3, 4099, 0, true},
                                     Shape{3, 4099, 0, false}, Shape{2, 8192, 0, true}),
                     testing::ValuesIn(kTypes), testing::ValuesIn(kTypes)),
    [](const testing::TestParamInfo<Case>& info) { return std::to_string(info.index); });

INSTANTIATE_TEST_SUITE_P(WiderThanRegisters, RmsNormGpuTest,
                         testing::Values(Case{Shape{2, 20480, 0, true}, ElementType::kFloat16,
                                              ElementType::kFloat16}));

TEST(RmsNormAliasTest, OutputMayOverwriteDelta) {
  constexpr int kWidth = 512;
  const auto residual = RandomStored(kWidth, 0, ElementType::kFloat32, 3.0f, 1);
  const auto delta = RandomStored(kWidth, 0, ElementType::kBfloat16, 1.0f, 2);
  const auto weight = RandomStored(kWidth, 0, ElementType::kBfloat16, 1.0f, 3);
  std::vector<std::vector<std::byte>> outputs;
  for (const bool in_place : {false, true}) {
    const DeviceMemory residual_device = ToDevice(residual);
    const DeviceMemory delta_device = ToDevice(delta);
    const DeviceMemory weight_device = ToDevice(weight);
    const DeviceMemory other_device = ToDevice(delta);
    RmsNormParams params;
    params.residual = reinterpret_cast<float*>(residual_device.get());
    params.delta = delta_device.get();
    params.weight = weight_device.get();
    params.output = in_place ? delta_device.get() : other_device.get();
    params.rows = 1;
    params.width = kWidth;
    params.weight_type = params.activation_type = ElementType::kBfloat16;
    ASSERT_EQ(RmsNorm(params, nullptr), cudaSuccess);
    outputs.push_back(ToHost(static_cast<std::byte*>(params.output), delta.size()));
  }
  EXPECT_EQ(outputs[0], outputs[1]);
}

// An infinity would spread to everything after it.
TEST(RmsNormRangeTest, Float16Saturates) {
  constexpr int kWidth = 16;
  std::vector<std::byte> residual(kWidth * 4);
  std::vector<std::byte> weight(kWidth * 4);
  for (int i = 0; i < kWidth; ++i) {
    Encode(i % 2 == 0 ? 1.0f : -1.0f, ElementType::kFloat32, &residual[i * 4]);
    Encode(1e5f, ElementType::kFloat32, &weight[i * 4]);
  }
  const DeviceMemory residual_device = ToDevice(residual);
  const DeviceMemory weight_device = ToDevice(weight);
  const DeviceMemory output_device = ToDevice(std::vector<std::byte>(kWidth * 2));
  RmsNormParams params;
  params.residual = reinterpret_cast<float*>(residual_device.get());
  params.weight = weight_device.get();
  params.output = output_device.get();
  params.rows = 1;
  params.width = kWidth;
  params.activation_type = ElementType::kFloat16;
  ASSERT_EQ(RmsNorm(params, nullptr), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const auto output = ToHost(output_device.get(), kWidth * 2);
  for (int i = 0; i < kWidth; ++i) {
    EXPECT_EQ(Decode(&output[i * 2], ElementType::kFloat16), i % 2 == 0 ? 65504.0f : -65504.0f);
  }
}

}  // namespace
}  // namespace seq2seq::kernels
