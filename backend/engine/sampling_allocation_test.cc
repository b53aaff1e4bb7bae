// Counts allocations of the whole process, so it is a program of its own.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "backend/engine/sampling.h"
#include "backend/testing/test_heap.h"

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

  const int64_t before = GetTestHeap().allocations;
  int64_t sum = 0;
  for (const bool do_sample : {false, true}) {
    options.do_sample = do_sample;
    for (uint64_t index = 0; index < 20; ++index) {
      sum += sampler.Choose({logits, banned, options, index}).token;
    }
  }
  EXPECT_EQ(GetTestHeap().allocations - before, 0);
  EXPECT_GT(sum, 0);
  EXPECT_GT(before, 0);  // the counter counts
}

}  // namespace
}  // namespace seq2seq
