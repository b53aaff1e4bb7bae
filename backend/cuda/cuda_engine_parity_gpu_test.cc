// The CUDA engine against Hugging Face transformers, on checkpoints with an expected.json and on
// the pronunciation model in models/g2p_t5.
//
// In float32 every token must be equal: expected.json has no choice that is nearer than 1e-3. Half
// precision may choose otherwise where two tokens are close: all but 3 % of the tokens, and all but
// 1 % of the words, must be equal.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "backend/cuda/cuda_engine_test_util.h"
#include "backend/testing/golden_checkpoint.h"

namespace seq2seq {
namespace {

using Ids = std::vector<int32_t>;

constexpr float kLogprobTolerance = 1e-3F;
constexpr double kHalfTokens = 0.97;
constexpr double kHalfWords = 0.99;

std::vector<std::filesystem::path> Folders() { return GoldenFolders("tests/data/checkpoints"); }

// Folders of the environment's, separated by colons, beside those in the repository.
std::vector<std::filesystem::path> MoreFolders() {
  std::vector<std::filesystem::path> folders;
  const char* list = std::getenv("SEQ2SEQ_PARITY_CHECKPOINTS");
  std::istringstream text(list == nullptr ? "" : list);
  for (std::string folder; std::getline(text, folder, ':');) folders.emplace_back(folder);
  return folders;
}

CudaEngineOptions OptionsFor(const GoldenCheckpoint& golden) {
  CudaEngineOptions options;
  options.max_source_tokens = 1;
  for (const GoldenCase& each : golden.cases) {
    options.max_active_sequences =
        std::max(options.max_active_sequences, static_cast<int32_t>(each.requests.size()));
    for (const DriverRequest& request : each.requests) {
      options.max_source_tokens =
          std::max(options.max_source_tokens, static_cast<int32_t>(request.source.size()));
      options.max_decoder_tokens = std::max(options.max_decoder_tokens, request.max_new_tokens + 1);
    }
  }
  return options;
}

struct Count {
  int64_t equal = 0;
  int64_t all = 0;

  void Add(const Ids& got, const Ids& truth) {
    for (size_t i = 0; i < truth.size(); ++i) {
      equal += i < got.size() && got[i] == truth[i] ? 1 : 0;
    }
    all += static_cast<int64_t>(std::max(got.size(), truth.size()));
  }
};

class Float32ParityTest : public testing::TestWithParam<std::filesystem::path> {
 protected:
  GoldenCheckpoint golden_ = ValueOf(LoadGoldenCheckpoint(GetParam()));
  DrivenEngine engine_{LoadWeights(*golden_.checkpoint, DType::kFloat32), OptionsFor(golden_)};
};

TEST_P(Float32ParityTest, EveryTokenOfEveryBatch) {
  for (const GoldenCase& each : golden_.cases) {
    const std::vector<DriverSequence> got = engine_.Generate(each.requests);
    for (size_t row = 0; row < got.size(); ++row) {
      EXPECT_EQ(got[row].tokens, each.tokens[row]) << each.name << ", row " << row;
    }
  }
}

TEST_P(Float32ParityTest, EveryRowAlone) {
  const GoldenCase& batch = golden_.cases[0];
  for (size_t row = 0; row < batch.requests.size(); ++row) {
    EXPECT_EQ(engine_.Generate({batch.requests[row]})[0].tokens, batch.tokens[row]) << row;
  }
}

// The answer's first half forced as a prefix: a bind of several pending tokens takes as many
// passes.
TEST_P(Float32ParityTest, AForcedPrefixContinuesAsTheWholeAnswer) {
  const GoldenCase& batch = golden_.cases[0];
  std::vector<DriverRequest> requests = batch.requests;
  for (size_t row = 0; row < requests.size(); ++row) {
    const auto forced = static_cast<int64_t>(batch.tokens[row].size() / 2);
    requests[row].prefix.insert(requests[row].prefix.end(), batch.tokens[row].begin(),
                                batch.tokens[row].begin() + forced);
    requests[row].max_new_tokens -= static_cast<int32_t>(forced);
  }
  const std::vector<DriverSequence> got = engine_.Generate(requests);
  for (size_t row = 0; row < requests.size(); ++row) {
    const Ids rest(batch.tokens[row].begin() + static_cast<int64_t>(batch.tokens[row].size() / 2),
                   batch.tokens[row].end());
    EXPECT_EQ(got[row].tokens, rest) << row;
  }
}

TEST_P(Float32ParityTest, LogProbabilitiesAreThoseOfTheLogits) {
  const DriverSequence got = engine_.Generate({golden_.cases[0].requests[0]})[0];
  const auto vocabulary = static_cast<size_t>(golden_.checkpoint->spec().vocab_size);
  const size_t steps = std::min(got.tokens.size(), golden_.target.size());
  for (size_t i = 0; i < steps; ++i) {
    const float* logits = &golden_.logits[i * vocabulary];
    const float max = *std::max_element(logits, logits + vocabulary);
    double sum = 0.0;
    for (size_t v = 0; v < vocabulary; ++v) sum += std::exp(static_cast<double>(logits[v]) - max);
    EXPECT_NEAR(got.logprobs[i], logits[got.tokens[i]] - max - std::log(sum), kLogprobTolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Float32ParityTest, testing::ValuesIn(Folders()),
                         [](const auto& info) { return TestNameOf(info.param); });

TEST(ParityDataTest, CoversEveryT5Variant) {
  // A folder that is not found would pass every test above.
  EXPECT_GE(Folders().size(), 6U);
}

using FolderAndType = std::tuple<std::filesystem::path, DType>;
class MoreParityTest : public testing::TestWithParam<FolderAndType> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MoreParityTest);

TEST_P(MoreParityTest, NearlyEveryToken) {
  const auto& [folder, dtype] = GetParam();
  const GoldenCheckpoint golden = ValueOf(LoadGoldenCheckpoint(folder));
  DrivenEngine engine(LoadWeights(*golden.checkpoint, dtype), OptionsFor(golden));
  Count count;
  for (const GoldenCase& each : golden.cases) {
    const std::vector<DriverSequence> got = engine.Generate(each.requests);
    for (size_t row = 0; row < got.size(); ++row) count.Add(got[row].tokens, each.tokens[row]);
  }
  RecordProperty("equal", std::to_string(count.equal) + " of " + std::to_string(count.all));
  const double allowed = dtype == DType::kFloat32 ? 1.0 : kHalfTokens;
  EXPECT_GE(static_cast<double>(count.equal), allowed * static_cast<double>(count.all));
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, MoreParityTest,
                         testing::Combine(testing::ValuesIn(MoreFolders()),
                                          testing::Values(DType::kFloat32, DType::kFloat16,
                                                          DType::kBFloat16)),
                         [](const testing::TestParamInfo<FolderAndType>& info) {
                           return TestNameOf(std::get<0>(info.param)) + "_" +
                                  std::string(DTypeName(std::get<1>(info.param)));
                         });

// A word of models/g2p_t5/testdata/golden.tsv and the ids that transformers generates for it.
struct Word {
  DriverRequest request;
  Ids tokens;
};

std::vector<Word> GoldenWords() {
  std::vector<Word> words;
  std::ifstream file("models/g2p_t5/testdata/golden.tsv");
  for (std::string line; std::getline(file, line);) {
    std::istringstream text(line);
    std::string letters;
    text >> letters;
    Word& word = words.emplace_back();
    // The tokenizer's ids: a letter each, then EOS.
    for (const char c : letters) word.request.source.push_back(c - 'a' + 5);
    word.request.source.push_back(1);
    word.request.max_new_tokens = 40;
    if (!std::ranges::all_of(letters, [](char c) { return c >= 'a' && c <= 'z'; })) {
      words.pop_back();
      continue;
    }
    for (int32_t id = 0; text >> id;) word.tokens.push_back(id);
  }
  return words;
}

class PronunciationTest : public testing::TestWithParam<DType> {};

TEST_P(PronunciationTest, WordsAreSpokenAsTransformersDoes) {
  const std::vector<Word> words = GoldenWords();
  ASSERT_GE(words.size(), 400U);
  const auto checkpoint = ValueOf(Checkpoint::Load("models/g2p_t5/checkpoint"));
  CudaEngineOptions options;
  options.max_active_sequences = 96;  // the projections of many rows run, too
  options.max_source_tokens = 64;
  options.max_decoder_tokens = 64;
  DrivenEngine engine(LoadWeights(*checkpoint, GetParam()), options);
  size_t equal = 0;
  for (size_t first = 0; first < words.size(); first += 96) {
    const size_t end = std::min(words.size(), first + 96);
    std::vector<DriverRequest> requests;
    for (size_t i = first; i < end; ++i) requests.push_back(words[i].request);
    const std::vector<DriverSequence> got = engine.Generate(requests);
    for (size_t i = first; i < end; ++i) {
      equal += got[i - first].tokens == words[i].tokens ? 1 : 0;
    }
  }
  RecordProperty("equal", std::to_string(equal) + " of " + std::to_string(words.size()));
  const double allowed = GetParam() == DType::kFloat32 ? 1.0 : kHalfWords;
  EXPECT_GE(static_cast<double>(equal), allowed * static_cast<double>(words.size()));
}

INSTANTIATE_TEST_SUITE_P(Types, PronunciationTest,
                         testing::Values(DType::kFloat32, DType::kFloat16, DType::kBFloat16),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

}  // namespace
}  // namespace seq2seq
