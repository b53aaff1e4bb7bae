#include "backend/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

namespace seq2seq::cpu {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int32_t> {};

TEST_P(ThreadPoolTest, RunsEveryChunkOnce) {
  auto pool = ThreadPool::Create(GetParam());
  ASSERT_TRUE(pool);
  for (int32_t chunks : {0, 1, 2, 3, 7, 64, 1000}) {
    std::vector<std::atomic<int32_t>> runs(chunks);
    std::atomic<bool> thread_in_range = true;
    (*pool)->Run(chunks, [&](int32_t chunk, int32_t thread) {
      ++runs[chunk];
      if (thread < 0 || thread >= GetParam()) thread_in_range = false;
    });
    for (const auto& count : runs) EXPECT_EQ(count, 1);
    EXPECT_TRUE(thread_in_range);
  }
}

// A loop reads what the loop before wrote, on whichever thread: thousands of times, with sleeps
// between some so that workers go to sleep in the kernel as well.
TEST_P(ThreadPoolTest, LoopsSeeTheResultsOfTheLoopsBefore) {
  auto pool = ThreadPool::Create(GetParam());
  ASSERT_TRUE(pool);
  std::vector<int64_t> from(32), to(32);
  std::iota(from.begin(), from.end(), 0);
  constexpr int32_t kLoops = 5000;
  for (int32_t loop = 0; loop < kLoops; ++loop) {
    (*pool)->Run(32, [&](int32_t chunk, int32_t) { to[chunk] = from[(chunk + 1) % 32] + 1; });
    std::swap(from, to);
    if (loop % 1000 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  for (int32_t i = 0; i < 32; ++i) EXPECT_EQ(from[i], (i + kLoops) % 32 + kLoops);
}

TEST_P(ThreadPoolTest, CanBeMadeAndLeftWithoutWork) {
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(ThreadPool::Create(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 3, 8));

TEST(ThreadPoolOptionsTest, RefusesCountsOutOfRange) {
  for (int32_t threads : {-1, 0, ThreadPool::kMaxThreads + 1}) {
    const auto pool = ThreadPool::Create(threads);
    ASSERT_FALSE(pool);
    EXPECT_EQ(pool.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(pool.error().message.find("cpu_threads"), std::string::npos);
    EXPECT_NE(pool.error().message.find(std::to_string(threads)), std::string::npos);
  }
}

}  // namespace
}  // namespace seq2seq::cpu
