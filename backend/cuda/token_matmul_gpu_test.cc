// Products through cuBLASLt against arithmetic in double, with the algorithm of its heuristic and
// with those that Tune() chose for other numbers of tokens.
#include "backend/cuda/token_matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "backend/cuda/cublas_lt.h"
#include "backend/cuda/cuda_stream.h"
#include "backend/cuda/faulty_cublas_lt.h"
#include "backend/kernels/kernel_test_util.h"

namespace seq2seq {
namespace {

using kernels::DeviceValues;
using kernels::ElementType;

constexpr int32_t kOutputs = 136;
constexpr int32_t kInputs = 72;
constexpr int32_t kMostTokens = 300;

using Case = std::tuple<ElementType, bool, bool, bool>;  // accumulate, tuned, with a bias

class TokenMatmulGpuTest : public testing::TestWithParam<Case> {};

TEST_P(TokenMatmulGpuTest, MatchesDoublePrecision) {
  const auto [type, accumulate, tuned, biased] = GetParam();
  const ElementType output_type = accumulate ? ElementType::kFloat32 : type;
  const Result<std::shared_ptr<const CublasLt>> lt = CublasLt::Load();
  ASSERT_TRUE(lt) << lt.error().message;
  const Result<std::unique_ptr<TokenMatmul>> matmul = TokenMatmul::Create(*lt, type);
  ASSERT_TRUE(matmul) << matmul.error().message;
  const Result<CudaStream> stream = CudaStream::Create(StreamPriority::kLow);
  ASSERT_TRUE(stream);
  const DeviceValues weight(type, kernels::RandomValues(kOutputs * kInputs, 1));
  const DeviceValues input(type, kernels::RandomValues(kMostTokens * kInputs, 2));
  const DeviceValues bias(output_type, kernels::RandomValues(kOutputs, 5, 10.0));
  // What a product was tuned with is not what it runs with.
  const DeviceValues other_bias(output_type, kernels::RandomValues(kOutputs, 6, 10.0));
  TokenMatmulArgs args;
  args.weight = weight.data();
  args.input = input.data();
  args.outputs = kOutputs;
  args.inputs = kInputs;
  args.accumulate = accumulate;
  if (biased) args.bias = other_bias.data();
  if (tuned) {
    const DeviceValues scratch(output_type, kernels::RandomValues(kMostTokens * kOutputs, 3));
    args.output = scratch.data();
    for (const int32_t tokens : {256, 64}) {
      args.tokens = tokens;
      const Status status = (*matmul)->Tune(args, stream->get());
      ASSERT_TRUE(status) << status.error().message;
    }
  }
  for (const int32_t tokens : {1, 64, 70, kMostTokens}) {
    const DeviceValues output(output_type, accumulate
                                               ? kernels::RandomValues(tokens * kOutputs, 4, 5.0)
                                               : kernels::Poison(tokens * kOutputs));
    std::vector<double> expected;
    for (int32_t token = 0; token < tokens; ++token) {
      for (int32_t out = 0; out < kOutputs; ++out) {
        double sum = accumulate ? output.rounded()[token * kOutputs + out] : 0.0;
        if (biased) sum += bias.rounded()[out];
        for (int32_t k = 0; k < kInputs; ++k) {
          sum += weight.rounded()[out * kInputs + k] * input.rounded()[token * kInputs + k];
        }
        expected.push_back(sum);
      }
    }
    args.output = output.data();
    args.tokens = tokens;
    if (biased) args.bias = bias.data();
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const Status status = (*matmul)->Run(args, stream->get());
    ASSERT_TRUE(status) << status.error().message;
    ASSERT_EQ(cudaStreamSynchronize(stream->get()), cudaSuccess);
    EXPECT_LE(kernels::RelativeError(output.Read(), expected), kernels::Tolerance(output_type))
        << tokens;
  }
}

// What cuBLASLt proposes may fail on a machine; the others are left.
TEST(TokenMatmulTuneTest, ProposalsThatFailAreLeftOut) {
  FaultyCublasLt lt;
  const Result<CudaStream> stream = CudaStream::Create(StreamPriority::kLow);
  ASSERT_TRUE(stream);
  const DeviceValues weight(ElementType::kBfloat16, kernels::RandomValues(kOutputs * kInputs, 1));
  const DeviceValues input(ElementType::kBfloat16, kernels::RandomValues(256 * kInputs, 2));
  const DeviceValues output(ElementType::kBfloat16, kernels::Poison(256 * kOutputs));
  TokenMatmulArgs args;
  args.weight = weight.data();
  args.input = input.data();
  args.output = output.data();
  args.outputs = kOutputs;
  args.inputs = kInputs;
  args.tokens = 256;
  const auto matmul = TokenMatmul::Create(lt.get(), ElementType::kBfloat16);
  ASSERT_TRUE(matmul) << matmul.error().message;
  lt.FailProducts(1 << 20);
  const Status none = (*matmul)->Tune(args, stream->get());
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("cublasLtMatmul"), std::string::npos) << none.error().message;
  lt.FailProducts(1);
  const Status tuned = (*matmul)->Tune(args, stream->get());
  ASSERT_TRUE(tuned) << tuned.error().message;
  const int64_t heuristics = lt.heuristics();
  ASSERT_TRUE((*matmul)->Run(args, stream->get()));
  EXPECT_EQ(lt.heuristics(), heuristics) << "the product runs as it was tuned";
  ASSERT_EQ(cudaStreamSynchronize(stream->get()), cudaSuccess);
}

INSTANTIATE_TEST_SUITE_P(TypesAndWays, TokenMatmulGpuTest,
                         testing::Combine(testing::Values(ElementType::kFloat32,
                                                          ElementType::kFloat16,
                                                          ElementType::kBfloat16),
                                          testing::Bool(), testing::Bool(), testing::Bool()));

}  // namespace
}  // namespace seq2seq
