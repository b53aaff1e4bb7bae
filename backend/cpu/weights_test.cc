#include "backend/cpu/weights.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "backend/model/checkpoint.h"
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

}  // namespace
}  // namespace seq2seq::cpu
