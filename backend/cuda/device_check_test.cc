// What users read whose GPU the build was not made for.
#include "backend/cuda/device_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "backend/kernels/kernel_image.h"

namespace seq2seq {
namespace {

TEST(DeviceCheckTest, AForeignDeviceIsToldWhatItHasAndWhatIsThere) {
  const Error error = ForeignDevice(7, 5, std::vector<int>{800, 890, 900});
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_EQ(error.message,
            "the GPU has compute capability 7.5; this build has kernels for 8.0, 8.9, 9.0 alone");
}

TEST(DeviceCheckTest, TheBuildKnowsWhatItIsFor) {
  const auto built = kernels::KernelArchitectures();
  ASSERT_FALSE(built.empty());
  EXPECT_TRUE(std::ranges::is_sorted(built));
  EXPECT_GE(built.front(), 700);
}

}  // namespace
}  // namespace seq2seq
