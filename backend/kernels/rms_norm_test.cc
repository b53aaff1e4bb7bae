// What holds with and without a GPU: arguments are checked, and a launch that cannot be made is an
// error.

#include "backend/kernels/rms_norm.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "backend/kernels/element_type.h"

namespace seq2seq::kernels {
namespace {

constexpr int kRows = 2;
constexpr int kWidth = 16;

// Never dereferenced: every call that is given these is refused before a launch.
float* SomewhereOnTheDevice() { return reinterpret_cast<float*>(0x1000); }

RmsNormParams ValidParams() {
  RmsNormParams params;
  params.residual = SomewhereOnTheDevice();
  params.delta = SomewhereOnTheDevice();
  params.weight = SomewhereOnTheDevice();
  params.output = SomewhereOnTheDevice();
  params.rows = kRows;
  params.width = kWidth;
  return params;
}

struct BadArgument {
  std::string name;
  void (*spoil)(RmsNormParams&);
};

class RmsNormArgumentTest : public testing::TestWithParam<BadArgument> {};

TEST_P(RmsNormArgumentTest, IsRefused) {
  RmsNormParams params = ValidParams();
  GetParam().spoil(params);
  EXPECT_EQ(RmsNorm(params, nullptr), cudaErrorInvalidValue);
}

template <typename Pointer>
Pointer Shifted(Pointer pointer, int bytes) {
  return reinterpret_cast<Pointer>(reinterpret_cast<uintptr_t>(pointer) + bytes);
}

INSTANTIATE_TEST_SUITE_P(
    All, RmsNormArgumentTest,
    testing::ValuesIn(std::vector<BadArgument>{
        {"NullResidual", [](RmsNormParams& p) { p.residual = nullptr; }},
        {"NullWeight", [](RmsNormParams& p) { p.weight = nullptr; }},
        {"NullOutput", [](RmsNormParams& p) { p.output = nullptr; }},
        {"NegativeRows", [](RmsNormParams& p) { p.rows = -1; }},
        {"ZeroWidth", [](RmsNormParams& p) { p.width = 0; }},
        {"NegativeWidth", [](RmsNormParams& p) { p.width = -16; }},
        {"NegativeEpsilon", [](RmsNormParams& p) { p.epsilon = -1e-6f; }},
        {"NanEpsilon",
         [](RmsNormParams& p) { p.epsilon = std::numeric_limits<float>::quiet_NaN(); }},
        {"InfiniteEpsilon",
         [](RmsNormParams& p) { p.epsilon = std::numeric_limits<float>::infinity(); }},
        {"UnknownWeightType",
         [](RmsNormParams& p) { p.weight_type = static_cast<ElementType>(7); }},
        {"UnknownActivationType",
         [](RmsNormParams& p) { p.activation_type = static_cast<ElementType>(-1); }},
        {"MisalignedResidual", [](RmsNormParams& p) { p.residual = Shifted(p.residual, 2); }},
        {"MisalignedWeight", [](RmsNormParams& p) { p.weight = Shifted(p.weight, 2); }},
        {"MisalignedDelta", [](RmsNormParams& p) { p.delta = Shifted(p.delta, 1); }},
        {"MisalignedHalfOutput",
         [](RmsNormParams& p) {
           p.activation_type = ElementType::kFloat16;
           p.output = Shifted(p.output, 1);
         }},
    }),
    [](const testing::TestParamInfo<BadArgument>& info) { return info.param.name; });

TEST(RmsNormTest, ZeroRowsNeedNoDevice) {
  RmsNormParams params = ValidParams();
  params.rows = 0;
  EXPECT_EQ(RmsNorm(params, nullptr), cudaSuccess);
}

TEST(RmsNormTest, ZeroRowsAreStillChecked) {
  RmsNormParams params = ValidParams();
  params.rows = 0;
  params.weight = nullptr;
  EXPECT_EQ(RmsNorm(params, nullptr), cudaErrorInvalidValue);
}

TEST(RmsNormTest, LaunchSaysWhetherThereIsADevice) {
  int devices = 0;
  const bool has_device = cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
  float* memory = SomewhereOnTheDevice();
  if (has_device) {
    ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&memory), 3 * kRows * kWidth * sizeof(float)),
              cudaSuccess);
  }
  RmsNormParams params = ValidParams();
  params.residual = memory;
  params.weight = params.delta = memory + kRows * kWidth;
  params.output = memory + 2 * kRows * kWidth;
  const cudaError_t launched = RmsNorm(params, nullptr);
  if (has_device) {
    EXPECT_EQ(launched, cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaFree(memory), cudaSuccess);
  } else {
    EXPECT_TRUE(launched == cudaErrorNoDevice || launched == cudaErrorInsufficientDriver)
        << cudaGetErrorName(launched);
  }
}

}  // namespace
}  // namespace seq2seq::kernels
