// What CUDA's errors become.
#include "backend/cuda/cuda_status.h"

#include <gtest/gtest.h>

#include <string>

namespace seq2seq {
namespace {

TEST(CudaStatusTest, NamesWhatFailedAndWhy) {
  EXPECT_TRUE(CudaStatus(cudaSuccess, "anything"));
  const Status status = CudaStatus(cudaErrorInvalidValue, "the launch");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInternal);
  EXPECT_NE(status.error().message.find("the launch"), std::string::npos);
  EXPECT_NE(status.error().message.find("cudaErrorInvalidValue"), std::string::npos);
}

// Of whatever call: events, graphs and streams take memory, too.
TEST(CudaStatusTest, MemoryThatIsNotThereIsTheOptionsFault) {
  const Status status = CudaStatus(cudaErrorMemoryAllocation, "cudaGraphInstantiate");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(status.error().message, "out of memory: cudaGraphInstantiate");
}

}  // namespace
}  // namespace seq2seq
