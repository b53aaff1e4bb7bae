#include "backend/cpu/cpu_engine.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "backend/core/notifier.h"
#include "backend/cpu/cpu_engine_factory.h"
#include "backend/engine/engine_factory.h"
#include "backend/model/checkpoint.h"
#include "backend/testing/engine_conformance.h"
#include "backend/testing/engine_driver.h"
#include "backend/testing/tiny_checkpoint.h"

namespace seq2seq {
namespace {

Result<std::unique_ptr<Engine>> MakeCpuEngine(std::shared_ptr<const Checkpoint> checkpoint,
                                              const ConformanceOptions& wanted,
                                              Notifier* notifier) {
  EngineOptions options;
  options.max_active_sequences = wanted.max_slots;
  options.max_source_tokens = wanted.max_source_tokens;
  options.max_decoder_tokens = wanted.max_decoder_tokens;
  options.kv_cache_bytes = wanted.kv_cache_bytes;
  options.cpu_threads = 3;
  return MakeCpuEngineFactory(std::move(checkpoint))->Create(options, notifier);
}

INSTANTIATE_TEST_SUITE_P(Cpu, EngineConformanceTest,
                         testing::Values(EngineMaker{"cpu", MakeCpuEngine}));

class CpuEngineTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path directory =
        std::filesystem::path(testing::TempDir()) / "cpu_engine_test_model";
    ASSERT_TRUE(WriteTinyCheckpoint(directory, {}));
    auto checkpoint = Checkpoint::Load(directory);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    factory_ = MakeCpuEngineFactory(*checkpoint);
    options_.max_active_sequences = 6;
    options_.max_source_tokens = 3000;
    options_.max_decoder_tokens = 200;
    options_.cpu_threads = 3;
    options_.kv_cache_bytes = 8 << 20;
    auto engine = factory_->Create(options_, &notifier_);
    ASSERT_TRUE(engine) << engine.error().message;
    engine_ = std::move(*engine);
    driver_ = std::make_unique<EngineDriver>(engine_.get(), &notifier_);
  }

  DriverSequence Alone(const DriverRequest& request) {
    driver_->Reset();
    auto sequences = driver_->Generate({&request, 1});
    EXPECT_TRUE(sequences) << sequences.error().message;
    driver_->Reset();
    return sequences ? (*sequences)[0] : DriverSequence();
  }

  Notifier notifier_;
  EngineOptions options_;
  std::unique_ptr<EngineFactory> factory_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<EngineDriver> driver_;
};

TEST_F(CpuEngineTest, OptionsThatDoNotFitAreNamed) {
  options_.kv_cache_bytes = 1000;
  auto engine = factory_->Create(options_, &notifier_);
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(engine.error().message.find("kv_cache_bytes"), std::string::npos);
  options_.kv_cache_bytes = std::nullopt;
  options_.cpu_threads = 0;
  engine = factory_->Create(options_, &notifier_);
  ASSERT_FALSE(engine);
  EXPECT_NE(engine.error().message.find("cpu_threads"), std::string::npos);
}

TEST_F(CpuEngineTest, HalfPrecisionWeightsGiveNearlyTheSameLogprobs) {
  const DriverRequest request = TinyRequest(1, 40, 5);
  const DriverSequence truth = Alone(request);
  for (DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    options_.weights_dtype = dtype;
    auto engine = factory_->Create(options_, &notifier_);
    ASSERT_TRUE(engine) << engine.error().message;
    EngineDriver driver(engine->get(), &notifier_);
    auto sequences = driver.Generate({&request, 1});
    ASSERT_TRUE(sequences);
    // Of the first token: later ones may follow another choice.
    ASSERT_EQ((*sequences)[0].tokens[0], truth.tokens[0]);
    EXPECT_NEAR((*sequences)[0].logprobs[0], truth.logprobs[0],
                dtype == DType::kFloat16 ? 5e-3F : 5e-2F);
  }
}

}  // namespace
}  // namespace seq2seq
