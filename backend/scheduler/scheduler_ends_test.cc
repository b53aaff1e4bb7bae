// Ends before the end: cancels, deadlines, engine failures and shutdown, in every state that a
// request can be in. LoopHarness checks that each ends once and that everything comes back.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "backend/scheduler/loop_harness.h"
#include "backend/scheduler/result_applier.h"

namespace seq2seq {
namespace {

constexpr int64_t kMs = 1'000'000;

enum class Stage {
  kQueued,    // not pulled: the blocks are taken
  kAdmitted,  // pulled, another source is being encoded
  kEncoding,
  kEncoded,   // waits for a slot
  kBound,     // its first step is running
  kDecoding,  // has tokens, a step is running
};

const char* StageName(Stage stage) {
  switch (stage) {
    case Stage::kQueued:
      return "Queued";
    case Stage::kAdmitted:
      return "Admitted";
    case Stage::kEncoding:
      return "Encoding";
    case Stage::kEncoded:
      return "Encoded";
    case Stage::kBound:
      return "Bound";
    case Stage::kDecoding:
      return "Decoding";
  }
  return "";
}

struct Param {
  Stage stage;
  int32_t steps_in_flight;
};

// Brings one request, the subject, to a stage. Others are there only where the stage needs them.
class EndsTest : public testing::TestWithParam<Param> {
 protected:
  static FakeEngineOptions Options() {
    FakeEngineOptions options = ManualEngine();
    options.info.max_slots = 1;
    options.info.total_blocks = 40;
    options.info.max_steps_in_flight = GetParam().steps_in_flight;
    options.info.max_encode_items = 1;
    return options;
  }

  TestRequest& Subject(int64_t timeout_ns = 0) {
    const TestRequestSpec spec{.first_id = 100, .max_new_tokens = 12, .timeout_ns = timeout_ns};
    TestRequest* subject = nullptr;
    switch (GetParam().stage) {
      case Stage::kQueued:
        Other(36 * 4);  // and 2 cross blocks: 38 of 40
        return *(subject_ = subject = &PushAndRun(spec));
      case Stage::kAdmitted:
        harness_.Push({.first_id = 50, .max_new_tokens = 8});
        return *(subject_ = subject = &PushAndRun(spec));
      case Stage::kEncoding:
        return *(subject_ = subject = &PushAndRun(spec));
      case Stage::kEncoded:
        Other(40);
        subject = &PushAndRun(spec);
        break;
      case Stage::kBound:
      case Stage::kDecoding:
        subject = &PushAndRun(spec);
        break;
    }
    harness_.CompleteEncodes();
    if (GetParam().stage == Stage::kDecoding) {
      harness_.CompleteStep();
      harness_.CompleteStep();
    }
    return *(subject_ = subject);
  }

  TestRequest& PushAndRun(const TestRequestSpec& spec) {
    TestRequest& request = harness_.Push(spec);
    harness_.Run();
    return request;
  }
  void Other(int32_t max_new_tokens) {
    PushAndRun({.first_id = 50, .max_new_tokens = max_new_tokens});
    harness_.CompleteEncodes();
  }

  void ExpectTokensArePrefix() const {
    const std::vector<int32_t> whole = subject_->Output({});
    const std::vector<int32_t> tokens = subject_->record->tokens();
    const size_t expected = GetParam().stage == Stage::kDecoding ? 2 : 0;
    ASSERT_EQ(tokens.size(), expected);
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), whole.begin()));
  }
  bool HasSlot() const {
    return GetParam().stage == Stage::kBound || GetParam().stage == Stage::kDecoding;
  }

  LoopHarness harness_{Options()};
  TestRequest* subject_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Stages, EndsTest,
                         testing::Values(Param{Stage::kQueued, 1}, Param{Stage::kAdmitted, 1},
                                         Param{Stage::kEncoding, 1}, Param{Stage::kEncoded, 1},
                                         Param{Stage::kBound, 1}, Param{Stage::kDecoding, 1},
                                         Param{Stage::kQueued, 2}, Param{Stage::kEncoded, 2},
                                         Param{Stage::kBound, 2}, Param{Stage::kDecoding, 2}),
                         [](const auto& info) {
                           return std::string(StageName(info.param.stage)) +
                                  std::to_string(info.param.steps_in_flight);
                         });

TEST_P(EndsTest, CancelEndsItAtOnceAndDecodingWithinTwoSteps) {
  TestRequest& subject = Subject();
  const int64_t launched = harness_.engine().steps_launched();
  subject.record->Cancel();
  harness_.clock().AdvanceMs(1);
  harness_.Run();  // a tick: no step has ended
  LoopHarness::ExpectFailed(subject, ErrorCode::kCancelled);
  ExpectTokensArePrefix();
  if (HasSlot()) {
    EXPECT_EQ(harness_.engine().steps_launched(), launched);
    harness_.ExpectGauges(1, 0, 2 + 3);  // the steps in flight still name it
    harness_.Drain();
    EXPECT_EQ(harness_.engine().steps_launched(), launched);
  }
  harness_.Drain();
  ExpectTokensArePrefix();  // tokens of steps in flight were dropped
}

TEST_P(EndsTest, TheSlotAndBlocksOfACancelledOneAreUsedAgain) {
  Subject().record->Cancel();
  harness_.clock().AdvanceMs(1);
  harness_.Run();
  harness_.Drain();
  harness_.ExpectIdle();
  TestRequest& next = harness_.Push({.first_id = 200, .max_new_tokens = 38 * 4});
  harness_.Run();
  harness_.ExpectGauges(0, 1, 40);
  harness_.Drain();
  harness_.ExpectServed(next, FinishReason::kLength);
}

TEST_P(EndsTest, ADeadlineEndsItByWhetherItRan) {
  TestRequest& subject = Subject(10 * kMs);
  harness_.clock().AdvanceNs(10 * kMs - 1);
  harness_.Run();
  EXPECT_FALSE(subject.record->ended());
  harness_.clock().AdvanceMs(2);
  harness_.Run();
  ASSERT_TRUE(subject.record->ended());
  if (HasSlot()) {
    EXPECT_EQ(subject.record->finish_reason(), FinishReason::kTimeout);
  } else {
    LoopHarness::ExpectFailed(subject, ErrorCode::kUnavailable);
    const std::string text = subject.record->error()->message;
    EXPECT_NE(text.find("waited 11999 us"), std::string::npos) << text;
    EXPECT_NE(text.find("timeout is 10000 us"), std::string::npos) << text;
  }
  harness_.Drain();
  ExpectTokensArePrefix();
}

TEST_P(EndsTest, ALostDeviceFailsEverythingHeldAndLeavesTheQueue) {
  TestRequest& subject = Subject();
  harness_.engine().LoseDevice();
  harness_.Run();
  const bool held = GetParam().stage != Stage::kQueued;
  LoopHarness::ExpectFailed(subject, held ? ErrorCode::kInternal : ErrorCode::kUnavailable);
  harness_.ExpectIdle();
  EXPECT_TRUE(harness_.loop().Idle());
  TestRequest late;
  EXPECT_EQ(harness_.queue().Push(late.pending).error().code, ErrorCode::kUnavailable);
  ASSERT_NE(late.pending, nullptr);
  late.pending->sink->Fail({ErrorCode::kUnavailable, "refused"});
}

TEST_P(EndsTest, StopFailsEverythingAndWaitsForTheEngine) {
  TestRequest& subject = Subject();
  harness_.loop().Stop();
  LoopHarness::ExpectFailed(subject, ErrorCode::kUnavailable);
  ExpectTokensArePrefix();
  EXPECT_FALSE(harness_.loop().Drained());
  while (harness_.engine().encodes_in_flight() + harness_.engine().steps_in_flight() > 0) {
    harness_.Run();
    EXPECT_FALSE(harness_.loop().Drained());
    if (!harness_.engine().CompleteStep()) harness_.engine().CompleteEncodes(1);
    harness_.Run();
  }
  EXPECT_TRUE(harness_.loop().Drained());
  harness_.ExpectIdle();
}

TEST(EngineFaultTest, AFailedEncodeEndsItsOwnRequestAlone) {
  LoopHarness harness;
  harness.engine().FailNthEncode(1);
  TestRequest& first = harness.Push();
  TestRequest& second = harness.Push({.first_id = 40});
  TestRequest& third = harness.Push({.first_id = 60});
  harness.Run();
  harness.CompleteEncodes();
  LoopHarness::ExpectFailed(second, ErrorCode::kInternal);
  harness.ExpectGauges(2, 0, 6);
  EXPECT_EQ(harness.observer().source_tokens(), 10);
  harness.Drain();
  harness.ExpectServed(first, FinishReason::kLength);
  harness.ExpectServed(third, FinishReason::kLength);
}

TEST(EngineFaultTest, ARefusedEncodeEndsItsOwnRequestsAlone) {
  LoopHarness harness;
  TestRequest& running = harness.Push();
  harness.Run();
  harness.CompleteEncodes();
  harness.engine().RefuseStartEncodes(1);
  TestRequest& refused = harness.Push({.first_id = 40});
  harness.Run();
  LoopHarness::ExpectFailed(refused, ErrorCode::kInternal);
  harness.ExpectGauges(1, 0, 3);
  harness.CompleteStep();
  TestRequest& next = harness.Push({.first_id = 60});
  harness.Run();
  harness.Drain();
  harness.ExpectServed(running, FinishReason::kLength);
  harness.ExpectServed(next, FinishReason::kLength);
}

TEST(EngineFaultTest, AFailedStepFailsAllWithTheReason) {
  for (int32_t steps_in_flight : {1, 2}) {
    FakeEngineOptions options = ManualEngine();
    options.info.max_steps_in_flight = steps_in_flight;
    LoopHarness harness(options);
    harness.engine().FailNthStep(1);
    TestRequest& first = harness.Push();
    TestRequest& second = harness.Push({.first_id = 40});
    harness.Run();
    harness.CompleteEncodes();
    TestRequest& encoding = harness.Push({.first_id = 60});
    harness.Run();
    harness.CompleteStep();
    EXPECT_EQ(first.record->appends(), 1);
    harness.CompleteStep();
    for (TestRequest* request : {&first, &second, &encoding}) {
      LoopHarness::ExpectFailed(*request, ErrorCode::kInternal);
      EXPECT_NE(request->record->error()->message.find("step 1 failed"), std::string::npos);
    }
    harness.ExpectIdle();
  }
}

TEST(EngineFaultTest, ARefusedLaunchFailsAll) {
  LoopHarness harness;
  TestRequest& request = harness.Push();
  harness.Run();
  harness.engine().RefuseLaunches(1);
  harness.CompleteEncodes();
  LoopHarness::ExpectFailed(request, ErrorCode::kInternal);
  harness.ExpectIdle();
  TestRequest late;
  EXPECT_EQ(harness.queue().Push(late.pending).error().code, ErrorCode::kUnavailable);
  late.pending->sink->Fail({ErrorCode::kUnavailable, "refused"});
}

TEST(EngineFaultTest, AnIdleLossIsNoticedToo) {
  LoopHarness harness;
  harness.Run();
  EXPECT_TRUE(harness.observer().engine_failures().empty());
  harness.engine().LoseDevice();
  harness.Run();
  harness.Run();
  TestRequest late;
  EXPECT_EQ(harness.queue().Push(late.pending).error().code, ErrorCode::kUnavailable);
  late.pending->sink->Fail({ErrorCode::kUnavailable, "refused"});
  EXPECT_EQ(harness.observer().engine_failures(),
            std::vector<Error>{harness.engine().Health().error()});
}

TEST(EngineFaultTest, AnotherInstanceServesOn) {
  LoopHarness one;
  LoopHarness two(ManualEngine(), one);
  TestRequest& lost = one.Push();
  one.Run();
  one.engine().LoseDevice();
  TestRequest& saved = one.Push({.first_id = 40});
  one.Run();
  LoopHarness::ExpectFailed(lost, ErrorCode::kInternal);
  EXPECT_FALSE(saved.record->ended());
  two.Run();
  two.Drain();
  two.ExpectServed(saved, FinishReason::kLength);
}

TEST(EngineFaultTest, AResultThatDoesNotFitThePlanIsAFailure) {
  // The scheduler must survive a broken engine: here one that answers for another slot.
  StepResult result;
  Sequence sequence;
  auto record = std::make_shared<SinkRecord>();
  sequence.sink = std::make_unique<RecordingSink>(record);
  sequence.slot = 3;
  sequence.request.max_new_tokens = 5;
  Sequence* const rows[] = {&sequence};
  EXPECT_EQ(ApplyStep({.result = result, .rows = rows}).error().code, ErrorCode::kInternal);
  result.rows.push_back({.slot = 2});
  EXPECT_FALSE(ApplyStep({.result = result, .rows = rows}));
  result.rows[0] = {.slot = 3, .token_count = 1};
  EXPECT_FALSE(ApplyStep({.result = result, .rows = rows}));
  EXPECT_EQ(record->appends(), 0);
  result.tokens = {7};
  result.logprobs = {0.0F};
  EXPECT_EQ(ApplyStep({.result = result, .rows = rows}), 1);
  sequence.Finish(FinishReason::kLength);
}

}  // namespace
}  // namespace seq2seq
