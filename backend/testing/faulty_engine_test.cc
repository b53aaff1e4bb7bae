#include "backend/testing/faulty_engine.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/testing/fake_clock.h"
#include "backend/testing/fake_engine.h"

namespace seq2seq {
namespace {

class FaultyEngineTest : public ::testing::Test {
 protected:
  void Create(const EngineFaults& faults, int32_t steps_in_flight = 1) {
    FakeEngineOptions options;
    options.manual = true;
    options.info.max_steps_in_flight = steps_in_flight;
    auto fake = std::make_unique<FakeEngine>(options, nullptr);
    fake_ = fake.get();
    engine_ = std::make_unique<FaultyEngine>(std::move(fake), faults, &clock_);
  }

  // Encodes one source into cross block 0.
  Status Encode(uint64_t ticket, const std::vector<int32_t>& source) {
    source_ = source;
    const EncodeItem item{.ticket = ticket, .source_ids = source_, .cross_blocks = cross_};
    if (Status started = engine_->StartEncode({&item, 1}); !started) return started;
    fake_->CompleteEncodes();
    std::vector<EncodeDone> done;
    done.reserve(fake_->info().max_encode_items);
    engine_->PollEncoded(&done);
    EXPECT_EQ(done.size(), 1U);
    return done.at(0).status;
  }

  Status Launch(uint64_t step) {
    StepPlan plan;
    plan.step = step;
    if (step == 1) {
      plan.bind.push_back({.slot = 0,
                           .pending_tokens = prefix_,
                           .position = 0,
                           .generated = 0,
                           .min_new_tokens = 0,
                           .max_new_tokens = 4,
                           .sampling = {},
                           .source_length = static_cast<int32_t>(source_.size()),
                           .cross_blocks = cross_,
                           .self_blocks = self_});
    }
    plan.rows = {0};
    return engine_->Launch(plan);
  }

  FakeClock clock_;
  FakeEngine* fake_ = nullptr;
  std::unique_ptr<FaultyEngine> engine_;
  std::vector<int32_t> source_;
  const std::vector<int32_t> prefix_ = {0};
  const std::vector<BlockId> cross_ = {0};
  const std::vector<BlockId> self_ = {1};
};

TEST_F(FaultyEngineTest, KeepsResultsBack) {
  Create({.step_delay_ns = 5'000'000});
  ASSERT_TRUE(Encode(1, {7, 8}));
  ASSERT_TRUE(Launch(1));
  fake_->CompleteStep();
  StepResult result;
  result.Reserve(fake_->info().max_slots);
  EXPECT_FALSE(engine_->PollStep(&result));
  clock_.AdvanceMs(4);
  EXPECT_FALSE(engine_->PollStep(&result));
  clock_.AdvanceMs(1);
  ASSERT_TRUE(engine_->PollStep(&result));
  EXPECT_EQ(result.tokens, std::vector<int32_t>{7});
  EXPECT_EQ(fake_->violations(), std::vector<std::string>{});
}

TEST_F(FaultyEngineTest, DelaysStepsInFlightOneAfterTheOther) {
  Create({.step_delay_ns = 5'000'000}, 2);
  ASSERT_TRUE(Encode(1, {7, 8, 9}));
  ASSERT_TRUE(Launch(1));
  ASSERT_TRUE(Launch(2));
  fake_->CompleteStep();
  fake_->CompleteStep();
  StepResult result;
  result.Reserve(fake_->info().max_slots);
  clock_.AdvanceMs(5);
  EXPECT_TRUE(engine_->PollStep(&result));
  clock_.AdvanceMs(4);
  EXPECT_FALSE(engine_->PollStep(&result));
  clock_.AdvanceMs(1);
  EXPECT_TRUE(engine_->PollStep(&result));
  EXPECT_EQ(fake_->violations(), std::vector<std::string>{});
}

TEST_F(FaultyEngineTest, FailsTheStepAndStaysFailed) {
  Create({.fail_step = 2});
  ASSERT_TRUE(Encode(1, {7, 8}));
  ASSERT_TRUE(Launch(1));
  fake_->CompleteStep();
  StepResult result;
  ASSERT_TRUE(engine_->PollStep(&result));
  EXPECT_TRUE(result.status);
  EXPECT_TRUE(engine_->Health());
  ASSERT_TRUE(Launch(2));
  fake_->CompleteStep();
  ASSERT_TRUE(engine_->PollStep(&result));
  ASSERT_FALSE(result.status);
  EXPECT_EQ(result.status.error().code, ErrorCode::kInternal);
  EXPECT_TRUE(result.tokens.empty());
  ASSERT_FALSE(engine_->Health());
  EXPECT_EQ(engine_->Health().error().code, ErrorCode::kUnavailable);
  EXPECT_FALSE(Launch(3));
}

TEST_F(FaultyEngineTest, FailsOnlySourcesWithTheToken) {
  Create({.fail_encode_token = 9});
  const Status failed = Encode(1, {7, 9});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kInternal);
  EXPECT_TRUE(Encode(2, {7, 8}));
  EXPECT_TRUE(engine_->Health());
}

TEST_F(FaultyEngineTest, ReadsTheEnvironment) {
  setenv("SEQ2SEQ_TEST_STEP_DELAY_MS", "20", 1);
  setenv("SEQ2SEQ_TEST_FAIL_STEP", "3", 1);
  setenv("SEQ2SEQ_TEST_FAIL_ENCODE_TOKEN", "", 1);
  setenv("SEQ2SEQ_TEST_TRAP_STEP", "7", 1);
  const Result<EngineFaults> faults = EngineFaultsFromEnvironment();
  ASSERT_TRUE(faults);
  EXPECT_EQ(faults->step_delay_ns, 20'000'000);
  EXPECT_EQ(faults->fail_step, 3);
  EXPECT_FALSE(faults->fail_encode_token);
  EXPECT_EQ(faults->trap_step, 7);
  setenv("SEQ2SEQ_TEST_FAIL_STEP", "third", 1);
  EXPECT_FALSE(EngineFaultsFromEnvironment());
}

}  // namespace
}  // namespace seq2seq
