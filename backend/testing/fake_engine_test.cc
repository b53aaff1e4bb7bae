#include "backend/testing/fake_engine.h"

#include <chrono>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "backend/testing/fake_engine_factory.h"
#include "backend/testing/fake_tokens.h"

namespace seq2seq {
namespace {

using std::chrono::seconds;

// A caller that can keep the rules or break one of them. Two sequences of 5 source tokens (2 cross
// blocks each), prefix 1, at most 4 new tokens (1 self block).
class FakeEngineTest : public testing::Test {
 protected:
  FakeEngineTest() {
    done_.reserve(16);
    result_.Reserve(4);
    plan_.Reserve(4);
  }

  static FakeEngineOptions Manual(int32_t steps_in_flight = 1) {
    FakeEngineOptions options;
    options.manual = true;
    options.info.max_steps_in_flight = steps_in_flight;
    return options;
  }

  EncodeItem Item(int n) const {
    return {.ticket = static_cast<uint64_t>(n), .source_ids = source_, .cross_blocks = cross_[n]};
  }
  BindRecord Bind(int n, SlotId slot) const {
    return {.slot = slot,
            .pending_tokens = prefix_,
            .position = 0,
            .generated = 0,
            .min_new_tokens = 0,
            .max_new_tokens = 4,
            .sampling = {},
            .source_length = 5,
            .cross_blocks = cross_[n],
            .self_blocks = self_[n]};
  }
  void Encode(FakeEngine& engine, int n) {
    const EncodeItem item = Item(n);
    ASSERT_TRUE(engine.StartEncode({&item, 1}));
    engine.CompleteEncodes();
    done_.clear();
    engine.PollEncoded(&done_);
    ASSERT_EQ(done_.size(), 1U);
  }
  void Launch(FakeEngine& engine) {
    ASSERT_TRUE(engine.Launch(plan_));
    ++plan_.step;
    plan_.unbind.clear();
    plan_.bind.clear();
  }
  void ExpectViolation(const FakeEngine& engine, const std::string& words) {
    ASSERT_EQ(engine.violations().size(), 1U) << words;
    EXPECT_NE(engine.violations()[0].find(words), std::string::npos) << engine.violations()[0];
  }

  std::vector<int32_t> source_ = {10, 11, 12, 13, 14};
  std::vector<int32_t> prefix_ = {0};
  std::vector<BlockId> cross_[2] = {{0, 1}, {2, 3}};
  std::vector<BlockId> self_[2] = {{4}, {5}};
  std::vector<EncodeDone> done_;
  StepPlan plan_;
  StepResult result_;
};

TEST(FakeTokensTest, EchoesUntilTheSourceSaysStop) {
  const FakeTokenRule rule;
  const std::vector<int32_t> source = {7, 8, 1};
  EXPECT_EQ(FakeOutput(rule, source, 0, 9), (std::vector<int32_t>{7, 8, 1}));
  EXPECT_EQ(FakeOutput(rule, source, 4, 9), (std::vector<int32_t>{7, 8, 2, 7, 8, 1}));
  EXPECT_EQ(FakeOutput(rule, source, 0, 2), (std::vector<int32_t>{7, 8}));
  const std::vector<int32_t> endless = {7, 8};
  EXPECT_EQ(FakeOutput(rule, endless, 0, 5), (std::vector<int32_t>{7, 8, 7, 8, 7}));
  EXPECT_EQ(FakeOutput({.eos_after = 3}, endless, 0, 5), (std::vector<int32_t>{7, 8, 7, 1}));
}

TEST(FakeTokensTest, HashDependsOnSourceAndIndexAndNeverIsEos) {
  const FakeTokenRule rule{.kind = FakeTokenRule::Kind::kHash, .vocab_size = 50};
  const std::vector<int32_t> one = {7, 8};
  const std::vector<int32_t> other = {8, 7};
  const std::vector<int32_t> tokens = FakeOutput(rule, one, 0, 500);
  EXPECT_EQ(tokens.size(), 500U);
  EXPECT_NE(tokens, FakeOutput(rule, other, 0, 500));
  for (int32_t token : tokens) {
    EXPECT_GE(token, 0);
    EXPECT_LT(token, 50);
  }
}

TEST_F(FakeEngineTest, RunsTwoSequencesAndReportsTheirEnds) {
  FakeEngine engine(Manual(), nullptr);
  Encode(engine, 0);
  plan_.bind = {Bind(0, 2)};
  plan_.rows = {2};
  Launch(engine);
  EXPECT_FALSE(engine.PollStep(&result_));
  ASSERT_TRUE(engine.CompleteStep());
  ASSERT_TRUE(engine.PollStep(&result_));
  EXPECT_EQ(result_.tokens, (std::vector<int32_t>{10}));
  Encode(engine, 1);
  plan_.bind = {Bind(1, 0)};
  plan_.bind[0].sampling.return_logprobs = true;
  plan_.rows = {0, 2};
  for (int step = 0; step < 3; ++step) {
    Launch(engine);
    engine.CompleteStep();
    ASSERT_TRUE(engine.PollStep(&result_));
    EXPECT_EQ(result_.tokens, (std::vector<int32_t>{10 + step, 11 + step}));
    EXPECT_EQ(result_.logprobs, (std::vector<float>{FakeLogprob(step), 0.0F}));
  }
  EXPECT_EQ(result_.rows[0].stop, StopReason::kNone);
  EXPECT_EQ(result_.rows[1].stop, StopReason::kLength);
  plan_.unbind = {2};
  plan_.rows = {0};
  Launch(engine);
  engine.CompleteStep();
  ASSERT_TRUE(engine.PollStep(&result_));
  EXPECT_EQ(result_.rows[0].stop, StopReason::kLength);
  EXPECT_EQ(engine.violations(), std::vector<std::string>{});
}

TEST_F(FakeEngineTest, MasksASlotThatEndedInAStepNotYetSeen) {
  FakeEngineOptions options = Manual(2);
  options.tokens.eos_after = 0;
  FakeEngine engine(options, nullptr);
  Encode(engine, 0);
  plan_.bind = {Bind(0, 0)};
  plan_.rows = {0};
  Launch(engine);
  Launch(engine);
  engine.CompleteStep();
  engine.CompleteStep();
  ASSERT_TRUE(engine.PollStep(&result_));
  EXPECT_EQ(result_.rows[0].stop, StopReason::kEos);
  ASSERT_TRUE(engine.PollStep(&result_));
  EXPECT_EQ(result_.rows[0].token_count, 0);
  EXPECT_EQ(engine.violations(), std::vector<std::string>{});
  Launch(engine);
  ExpectViolation(engine, "the sequence has ended");
}

TEST_F(FakeEngineTest, ResumesAPausedSequenceInAnotherSlot) {
  FakeEngine engine(Manual(), nullptr);
  Encode(engine, 0);
  plan_.bind = {Bind(0, 0)};
  plan_.rows = {0};
  Launch(engine);
  engine.CompleteStep();
  ASSERT_TRUE(engine.PollStep(&result_));
  BindRecord back = Bind(0, 3);
  back.position = 1;
  back.generated = 1;
  back.pending_tokens = result_.tokens;
  const std::vector<int32_t> last = result_.tokens;
  back.pending_tokens = last;
  plan_.unbind = {0};
  plan_.bind = {back};
  plan_.rows = {3};
  Launch(engine);
  engine.CompleteStep();
  ASSERT_TRUE(engine.PollStep(&result_));
  EXPECT_EQ(result_.tokens, (std::vector<int32_t>{11}));
  EXPECT_EQ(engine.violations(), std::vector<std::string>{});
}

TEST_F(FakeEngineTest, NoticesABoundSlotBoundAgain) {
  FakeEngine engine(Manual(), nullptr);
  Encode(engine, 0);
  Encode(engine, 1);
  plan_.bind = {Bind(0, 0), Bind(1, 0)};
  plan_.rows = {0};
  Launch(engine);
  ExpectViolation(engine, "bound already");
}

TEST_F(FakeEngineTest, NoticesRowsOfFreeSlotsAndEmptyUnbinds) {
  FakeEngine engine(Manual(), nullptr);
  plan_.rows = {1};
  Launch(engine);
  ExpectViolation(engine, "is not bound");
  engine.CompleteStep();
  engine.PollStep(&result_);
  plan_.unbind = {3};
  Launch(engine);
  EXPECT_EQ(engine.violations().size(), 3U);
}

TEST_F(FakeEngineTest, NoticesSharedAndMiscountedBlocks) {
  {
    FakeEngine engine(Manual(), nullptr);
    Encode(engine, 0);
    plan_.bind = {Bind(0, 0)};
    plan_.rows = {0};
    Launch(engine);
    cross_[1] = {4, 6};  // 4 is sequence 0's, whose step is running
    Encode(engine, 1);
    ExpectViolation(engine, "block 4 is in use by a launched step");
  }
  FakeEngine engine(Manual(), nullptr);
  cross_[0] = {0};
  Encode(engine, 0);
  ExpectViolation(engine, "number of cross blocks is 1, allowed is 2");
}

TEST_F(FakeEngineTest, NoticesTooManyInFlight) {
  FakeEngine engine(Manual(), nullptr);
  const EncodeItem first = Item(0);
  const EncodeItem second = Item(1);
  ASSERT_TRUE(engine.StartEncode({&first, 1}));
  ASSERT_TRUE(engine.StartEncode({&second, 1}));
  ExpectViolation(engine, "encodes in flight is 2, allowed is 1");
  engine.CompleteEncodes();
  engine.PollEncoded(&done_);
  plan_.bind = {Bind(0, 0)};
  plan_.rows = {0};
  Launch(engine);
  Launch(engine);
  EXPECT_EQ(engine.violations().size(), 2U);
}

TEST_F(FakeEngineTest, FailsOneEncodeOrTheWholeDevice) {
  FakeEngine engine(Manual(2), nullptr);
  engine.FailEncode(1);
  const std::vector<EncodeItem> both = {Item(0), Item(1)};
  ASSERT_TRUE(engine.StartEncode(both));
  EXPECT_EQ(engine.CompleteEncodes(), 2);
  engine.PollEncoded(&done_);
  ASSERT_EQ(done_.size(), 2U);
  EXPECT_TRUE(done_[0].status);
  EXPECT_FALSE(done_[1].status);
  EXPECT_TRUE(engine.Health());
  engine.FailNthStep(0);
  plan_.bind = {Bind(0, 0)};
  plan_.rows = {0};
  Launch(engine);
  Launch(engine);
  engine.CompleteStep();
  for (int step = 0; step < 2; ++step) {
    ASSERT_TRUE(engine.PollStep(&result_));
    EXPECT_FALSE(result_.status);
    EXPECT_TRUE(result_.rows.empty());
  }
  EXPECT_EQ(engine.Health().error().code, ErrorCode::kUnavailable);
  EXPECT_FALSE(engine.Launch(plan_));
  EXPECT_FALSE(engine.StartEncode(both));
}

TEST_F(FakeEngineTest, ThreadsRingTheNotifier) {
  Notifier notifier;
  FakeEngineOptions options;
  options.step_delay = std::chrono::microseconds(100);
  FakeEngine engine(options, &notifier);
  const EncodeItem item = Item(0);
  ASSERT_TRUE(engine.StartEncode({&item, 1}));
  ASSERT_TRUE(notifier.WaitFor(seconds(20)));
  engine.PollEncoded(&done_);
  ASSERT_EQ(done_.size(), 1U);
  plan_.bind = {Bind(0, 0)};
  plan_.rows = {0};
  for (int step = 0; step < 4; ++step) {
    Launch(engine);
    ASSERT_TRUE(notifier.WaitFor(seconds(20)));
    ASSERT_TRUE(engine.PollStep(&result_));
    EXPECT_EQ(result_.tokens, (std::vector<int32_t>{10 + step}));
  }
  EXPECT_EQ(engine.violations(), std::vector<std::string>{});
}

TEST(FakeEngineFactoryTest, KeepsViolationsOfEnginesThatAreGone) {
  FakeEngineFactory factory({});
  Notifier notifier;
  EngineOptions options;
  options.max_active_sequences = 2;
  options.kv_cache_bytes = 10 * FakeEngineFactory::kBytesPerBlock;
  auto engine = factory.Create(options, &notifier);
  ASSERT_TRUE(engine);
  EXPECT_EQ((*engine)->info().max_slots, 2);
  EXPECT_EQ((*engine)->info().total_blocks, 10);
  StepPlan plan;
  ASSERT_TRUE((*engine)->Launch(plan));
  engine->reset();
  EXPECT_EQ(factory.violations(), (std::vector<std::string>{"a step without rows"}));
  factory.FailCreate(Error{ErrorCode::kUnsupported, "none here"});
  EXPECT_EQ(factory.Create(options, &notifier).error().message, "none here");
}

}  // namespace
}  // namespace seq2seq
