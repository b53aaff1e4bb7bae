#include "backend/engine/built_in_engines.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "backend/core/notifier.h"
#include "backend/testing/tiny_checkpoint.h"

namespace seq2seq {
namespace {

class BuiltInEnginesTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path directory =
        std::filesystem::path(testing::TempDir()) / "built_in_engines_test_model";
    ASSERT_TRUE(WriteTinyCheckpoint(directory, {}));
    const auto checkpoint = Checkpoint::Load(directory);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    engines_ = MakeBuiltInEngines(*checkpoint);
    options_.max_active_sequences = 2;
    options_.max_source_tokens = 32;
    options_.max_decoder_tokens = 32;
  }

  std::unique_ptr<EngineFactory> engines_;
  EngineOptions options_;
  Notifier notifier_;
};

TEST_F(BuiltInEnginesTest, MakesCpuEngines) {
  const auto engine = engines_->Create(options_, &notifier_);
  ASSERT_TRUE(engine) << engine.error().message;
  EXPECT_EQ((*engine)->info().max_slots, 2);
}

// True on every machine: none has that many GPUs, this one may have no GPU, or the build no CUDA.
TEST_F(BuiltInEnginesTest, AGpuThatDoesNotExistIsRefusedInWords) {
  options_.kind = EngineKind::kCuda;
  options_.device_id = 100000;
  const auto engine = engines_->Create(options_, &notifier_);
  ASSERT_FALSE(engine);
  if (HasCudaEngine()) {
    EXPECT_NE(engine.error().message.find("GPU"), std::string::npos) << engine.error().message;
  } else {
    EXPECT_EQ(engine.error().message, "this library was built without CUDA");
  }
}

}  // namespace
}  // namespace seq2seq
