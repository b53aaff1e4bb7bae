// Which of several libraries is taken.
#include "backend/cuda/cublas_lt.h"

#include <gtest/gtest.h>

#include <string>

namespace seq2seq {
namespace {

constexpr const char* kMissing = "./backend/cuda/libno_cublas_lt.so";
constexpr const char* kPartial = "./backend/cuda/libpartial_cublas_lt.so";
constexpr const char* kWhole = "./backend/cuda/libfake_cublas_lt.so";

TEST(CublasLtTest, TakesTheFirstThatHasEveryFunction) {
  const char* places[] = {kMissing, kPartial, kWhole};
  const auto lt = CublasLt::Load(places);
  ASSERT_TRUE(lt) << lt.error().message;
  EXPECT_NE((*lt)->matmul, nullptr);
  EXPECT_EQ((*lt)->destroy(nullptr), 0);
}

TEST(CublasLtTest, SaysWhatIsWrongWithEach) {
  const char* places[] = {kMissing, kPartial};
  const auto lt = CublasLt::Load(places);
  ASSERT_FALSE(lt);
  EXPECT_EQ(lt.error().code, ErrorCode::kUnsupported);
  for (const char* part : {"cuBLASLt", kMissing, kPartial, "cublasLtMatmulAlgoCheck"}) {
    EXPECT_NE(lt.error().message.find(part), std::string::npos) << lt.error().message;
  }
}

}  // namespace
}  // namespace seq2seq
