// The CPU engine against Hugging Face transformers, on every checkpoint under
// tests/data/checkpoints.
//
// expected.json holds what transformers generated; nothing in it comes from this project.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/core/notifier.h"
#include "backend/cpu/cpu_engine_factory.h"
#include "backend/cpu/decoder.h"
#include "backend/cpu/encoder.h"
#include "backend/cpu/weights.h"
#include "backend/engine/engine_factory.h"
#include "backend/model/checkpoint.h"
#include "backend/testing/engine_driver.h"
#include "backend/testing/golden_checkpoint.h"

namespace seq2seq {
namespace {

constexpr float kLogitTolerance = 1e-3F;

std::vector<std::filesystem::path> Folders() { return GoldenFolders("tests/data/checkpoints"); }

class CpuParityTest : public testing::TestWithParam<std::filesystem::path> {
 protected:
  void SetUp() override {
    auto golden = LoadGoldenCheckpoint(GetParam());
    ASSERT_TRUE(golden) << golden.error().message;
    golden_ = std::move(*golden);
  }

  GoldenCheckpoint golden_;
};

TEST_P(CpuParityTest, GreedyTokensOfEveryBatch) {
  Notifier notifier;
  EngineOptions options;
  options.max_active_sequences = 64;
  options.max_source_tokens = 512;
  options.max_decoder_tokens = 512;
  options.cpu_threads = 2;
  auto engine = MakeCpuEngineFactory(golden_.checkpoint)->Create(options, &notifier);
  ASSERT_TRUE(engine) << engine.error().message;
  EngineDriver driver(engine->get(), &notifier);
  for (const GoldenCase& each : golden_.cases) {
    driver.Reset();
    auto sequences = driver.Generate(each.requests);
    ASSERT_TRUE(sequences) << sequences.error().message;
    for (size_t row = 0; row < each.tokens.size(); ++row) {
      EXPECT_EQ((*sequences)[row].tokens, each.tokens[row]) << each.name << ", row " << row;
    }
  }
}

TEST_P(CpuParityTest, TeacherForcedLogits) {
  const std::vector<float>& truth = golden_.logits;
  const std::vector<int32_t>& source = golden_.cases[0].requests[0].source;
  const std::vector<int32_t>& target = golden_.target;
  const auto length = static_cast<int32_t>(target.size());
  ASSERT_EQ(truth.size(), target.size() * golden_.checkpoint->spec().vocab_size);

  auto weights = cpu::Weights::Make(*golden_.checkpoint, std::nullopt);
  ASSERT_TRUE(weights) << weights.error().message;
  auto pool = cpu::ThreadPool::Create(2);
  ASSERT_TRUE(pool) << pool.error().message;
  const cpu::Compute compute{cpu::FindKernels(cpu::BestKernelLevel()), pool->get()};
  auto kv = cpu::KvPool::Create(golden_.checkpoint->spec(), int64_t{1} << 26);
  ASSERT_TRUE(kv) << kv.error().message;
  auto encoder = cpu::Encoder::Create(
      weights->get(), compute, &*kv, {.max_items = 1, .max_tokens = 512, .max_source_tokens = 512});
  auto decoder = cpu::Decoder::Create(
      weights->get(), compute, &*kv,
      {.max_logits_rows = length, .max_source_tokens = 512, .max_decoder_tokens = 512});
  ASSERT_TRUE(encoder && decoder);

  std::vector<BlockId> blocks(kv->total_blocks());
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<BlockId>(i);
  ASSERT_GE(blocks.size(), 32U);
  const cpu::EncoderSource item{source, std::span(blocks).first(16)};
  (*encoder)->Begin({&item, 1});
  while (!(*encoder)->Advance()) {
  }
  for (int32_t i = 0; i < length; ++i) {
    (*decoder)->Add({.token = target[i],
                     .position = i,
                     .self_blocks = blocks.data() + 16,
                     .cross_blocks = blocks.data(),
                     .source_length = static_cast<int32_t>(source.size()),
                     .logits_row = i});
  }
  (*decoder)->ComputeLogits(length);
  float worst = 0.0F;
  for (int32_t i = 0; i < length; ++i) {
    const std::span<const float> logits = (*decoder)->logits(i);
    for (size_t v = 0; v < logits.size(); ++v) {
      worst = std::max(worst, std::abs(logits[v] - truth[i * logits.size() + v]));
    }
  }
  EXPECT_LE(worst, kLogitTolerance);
  RecordProperty("worst_logit_difference", std::to_string(worst));
}

TEST(CpuParityDataTest, CoversEveryT5Variant) {
  // A glob that finds nothing would pass every test above.
  EXPECT_GE(Folders().size(), 6U);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, CpuParityTest, testing::ValuesIn(Folders()),
                         [](const auto& info) { return TestNameOf(info.param); });

}  // namespace
}  // namespace seq2seq
