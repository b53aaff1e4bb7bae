#include "backend/cpu/weights.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/core/status.h"
#include "backend/model/checkpoint.h"
#include "backend/testing/memory_checkpoint.h"
#include "backend/testing/tiny_checkpoint.h"

namespace seq2seq::cpu {
namespace {

// The embedding [2000, 16] fills many pages, so that giving pages back would show.
TEST(WeightsTest, ACheckpointCanBePackedAgainWhateverItsAlignment) {
  TinyCheckpointOptions options;
  options.vocab_size = 2000;
  const std::filesystem::path directory =
      std::filesystem::path(testing::TempDir()) / "weights_test_model";
  ASSERT_TRUE(WriteTinyCheckpoint(directory, options));
  const std::vector<StoredTensor> stored = TinyTensors(options);
  ASSERT_EQ(stored.front().name, "shared.weight");
  const std::vector<float> embedding = StoredValues(stored.front());
  // One of four lengths of the header in a row lets floats begin where floats should.
  for (size_t padding = 0; padding < 4; ++padding) {
    SCOPED_TRACE(padding);
    ASSERT_TRUE(WriteSafetensors(directory / "model.safetensors", stored, padding));
    auto checkpoint = Checkpoint::Load(directory);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    for (int time = 0; time < 2; ++time) {
      auto weights = Weights::Make(**checkpoint, std::nullopt);
      ASSERT_TRUE(weights) << weights.error().message;
      std::vector<float> packed;
      for (int32_t row = 0; row < options.vocab_size; ++row) {
        std::vector<float> values(options.d_model);
        (*weights)->decoder().embedding.CopyRow(row, values.data());
        packed.insert(packed.end(), values.begin(), values.end());
      }
      EXPECT_TRUE(packed == embedding) << "packed for the " << time + 1 << ". time";
    }
  }
}

struct Refusal {
  const char* name;
  void (*change)(MemoryCheckpointOptions*);
  const char* words;
};

class WeightsRefusalTest : public testing::TestWithParam<Refusal> {};

TEST_P(WeightsRefusalTest, NamesWhatIsNotComputed) {
  MemoryCheckpointOptions options;
  options.spec.vocab_size = 10;
  options.spec.d_model = 8;
  options.spec.head_dim = 4;
  options.spec.encoder = {.layers = 1, .heads = 2, .d_ff = 8};
  options.spec.decoder = options.spec.encoder;
  options.spec.relative_positions = {.buckets = 8, .max_distance = 20};
  options.spec.max_positions = 12;
  ASSERT_TRUE(Weights::Make(MemoryCheckpoint(options), std::nullopt));
  GetParam().change(&options);
  const auto weights = Weights::Make(MemoryCheckpoint(options), std::nullopt);
  ASSERT_FALSE(weights);
  EXPECT_EQ(weights.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(weights.error().message.find(GetParam().words), std::string::npos)
      << weights.error().message;
}

using Options = MemoryCheckpointOptions;

INSTANTIATE_TEST_SUITE_P(
    Parts, WeightsRefusalTest,
    testing::ValuesIn(std::vector<Refusal>{
        {"LayerNorm", [](Options* o) { o->spec.norm = NormKind::kLayer; }, "other than RMSNorm"},
        {"PostNorm", [](Options* o) { o->spec.norm_placement = NormPlacement::kPost; },
         "behind sub-layers"},
        {"NoFinalNorm", [](Options* o) { o->spec.final_norm = false; }, "no final norm"},
        {"Table", [](Options* o) { o->spec.positions = PositionKind::kTable; },
         "table of positions"},
        {"EmbeddingNorm", [](Options* o) { o->spec.embedding_norm = true; }, "norm of embeddings"},
        {"EmbeddingScale", [](Options* o) { o->spec.embedding_scale = 2.0F; }, "scaled embeddings"},
        {"NormBiases", [](Options* o) { o->biases = true; }, "norms with biases"},
    }),
    [](const testing::TestParamInfo<Refusal>& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace seq2seq::cpu
