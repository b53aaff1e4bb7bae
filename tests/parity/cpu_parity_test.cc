// The CPU engine against Hugging Face transformers, on every checkpoint under
// tests/data/checkpoints.
//
// expected.json holds what transformers generated; nothing in it comes from this project.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backend/core/notifier.h"
#include "backend/cpu/cpu_engine_factory.h"
#include "backend/cpu/decoder.h"
#include "backend/cpu/encoder.h"
#include "backend/cpu/weights.h"
#include "backend/engine/engine_factory.h"
#include "backend/model/checkpoint.h"
#include "backend/testing/engine_driver.h"

namespace seq2seq {
namespace {

constexpr float kLogitTolerance = 1e-3F;

std::vector<std::filesystem::path> CheckpointFolders() {
  std::vector<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::directory_iterator("tests/data/checkpoints")) {
    if (std::filesystem::exists(entry.path() / "expected.json")) folders.push_back(entry.path());
  }
  std::ranges::sort(folders);
  return folders;
}

std::vector<float> DecodeFloats(const std::string& base64) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (char c : base64) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(kDigits.find(c));
    count += 6;
    if (count >= 8) bytes.push_back(static_cast<char>(bits >> (count -= 8) & 0xff));
  }
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

class CpuParityTest : public testing::TestWithParam<std::filesystem::path> {
 protected:
  void SetUp() override {
    auto checkpoint = Checkpoint::Load(GetParam());
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    checkpoint_ = *checkpoint;
    std::ifstream file(GetParam() / "expected.json");
    expected_ = nlohmann::json::parse(file);
  }

  // Row `row` of the batch without its padding.
  std::vector<int32_t> Source(size_t row) const {
    std::vector<int32_t> ids = expected_.at("input_ids").at(row);
    while (!ids.empty() && ids.back() == checkpoint_->generation().pad_token_id) ids.pop_back();
    return ids;
  }

  // What generate() returned for a row: after the start token, without the padding behind its EOS.
  std::vector<int32_t> Generated(const char* key, size_t row) const {
    const std::vector<int32_t> ids = expected_.at(key).at(row);
    const auto& eos = checkpoint_->generation().eos_token_ids;
    const auto end = std::find_first_of(ids.begin() + 1, ids.end(), eos.begin(), eos.end());
    return {ids.begin() + 1, end == ids.end() ? end : end + 1};
  }

  void ExpectTokens(const char* key, int32_t max_length) {
    const size_t rows = expected_.at("input_ids").size();
    Notifier notifier;
    EngineOptions options;
    options.max_active_sequences = static_cast<int32_t>(rows);
    options.max_source_tokens = 512;
    options.max_decoder_tokens = 512;
    options.cpu_threads = 2;
    auto engine = MakeCpuEngineFactory(checkpoint_)->Create(options, &notifier);
    ASSERT_TRUE(engine) << engine.error().message;
    std::vector<DriverRequest> requests;
    for (size_t row = 0; row < rows; ++row) {
      DriverRequest& request = requests.emplace_back();
      request.source = Source(row);
      request.prefix = {checkpoint_->generation().decoder_start_token_id};
      request.max_new_tokens = max_length - 1;
    }
    EngineDriver driver(engine->get(), &notifier);
    auto sequences = driver.Generate(requests);
    ASSERT_TRUE(sequences) << sequences.error().message;
    for (size_t row = 0; row < rows; ++row) {
      EXPECT_EQ((*sequences)[row].tokens, Generated(key, row)) << key << ", row " << row;
    }
  }

  std::shared_ptr<const Checkpoint> checkpoint_;
  nlohmann::json expected_;
};

TEST_P(CpuParityTest, GreedyTokens) { ExpectTokens("greedy", expected_.value("max_length", 90)); }

TEST_P(CpuParityTest, GreedyTokensUpToLengthSix) {
  if (expected_.contains("greedy_max_length_6")) ExpectTokens("greedy_max_length_6", 6);
}

TEST_P(CpuParityTest, TeacherForcedLogits) {
  const std::vector<float> truth =
      DecodeFloats(expected_.at("tf_logits_row0_b64_f32").get<std::string>());
  const std::vector<int32_t> source = Source(0);
  const std::vector<int32_t> target = expected_.at("tf_decoder_input_ids").at(0);
  const auto length = static_cast<int32_t>(target.size());
  ASSERT_EQ(truth.size(), target.size() * checkpoint_->spec().vocab_size);

  auto weights = cpu::Weights::Make(*checkpoint_, std::nullopt);
  ASSERT_TRUE(weights) << weights.error().message;
  auto pool = cpu::ThreadPool::Create(2);
  ASSERT_TRUE(pool) << pool.error().message;
  const cpu::Compute compute{cpu::FindKernels(cpu::BestKernelLevel()), pool->get()};
  auto kv = cpu::KvPool::Create(checkpoint_->spec(), int64_t{1} << 26);
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
  EXPECT_GE(CheckpointFolders().size(), 6U);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, CpuParityTest, testing::ValuesIn(CheckpointFolders()),
                         [](const auto& info) {
                           std::string name = info.param.filename();
                           for (char& c : name) {
                             if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace seq2seq
