// Counts allocations of the whole process, so it is a program of its own.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

#include "backend/engine/sampling.h"

namespace {
std::atomic<int64_t> allocations = 0;
}  // namespace

[[gnu::noinline]] void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace seq2seq {
namespace {

TEST(Sampler, DoesNotAllocateWhileChoosing) {
  constexpr int kVocabulary = 3000;
  std::vector<float> logits;
  for (int token = 0; token < kVocabulary; ++token) {
    logits.push_back(static_cast<float>(token * 7919 % 1000) * 0.01F);
  }
  const std::vector<int32_t> banned = {1};
  SamplingOptions options;
  options.return_logprobs = true;
  options.top_k = 2000;
  options.top_p = 0.999F;
  options.min_p = 1e-6F;
  options.typical_p = 0.99F;
  Sampler sampler(kVocabulary);

  const int64_t before = allocations;
  int64_t sum = 0;
  for (const bool do_sample : {false, true}) {
    options.do_sample = do_sample;
    for (uint64_t index = 0; index < 20; ++index) {
      sum += sampler.Choose({logits, banned, options, index}).token;
    }
  }
  EXPECT_EQ(allocations - before, 0);
  EXPECT_GT(sum, 0);
  EXPECT_GT(before, 0);  // the counter counts
}

}  // namespace
}  // namespace seq2seq
