// Serving: who joins when, in which order, and what it holds meanwhile. Ends that come otherwise
// are in scheduler_ends_test.cc.
#include "backend/scheduler/scheduler_loop.h"

#include <vector>

#include <gtest/gtest.h>

#include "backend/scheduler/loop_harness.h"

namespace seq2seq {
namespace {

FakeEngineOptions Engine(int32_t slots, int32_t blocks, int32_t steps_in_flight = 1) {
  FakeEngineOptions options = ManualEngine();
  options.info.max_slots = slots;
  options.info.total_blocks = blocks;
  options.info.max_steps_in_flight = steps_in_flight;
  return options;
}

TEST(SchedulerLoopTest, ServesOneRequestAndAccountsForEachBlock) {
  LoopHarness harness;
  harness.ExpectGauges(0, 0, 0);
  TestRequest& request = harness.Push({.prefix_tokens = 3, .max_new_tokens = 3});
  harness.Run();
  harness.ExpectGauges(0, 1, 4);  // 5 source tokens: 2 blocks; 3 + 3 - 1 decoder positions: 2
  EXPECT_EQ(harness.engine().encodes_started(), 1);
  EXPECT_EQ(harness.engine().steps_launched(), 0);
  harness.CompleteEncodes();
  harness.ExpectGauges(1, 0, 4);
  EXPECT_EQ(harness.observer().source_tokens(), 5);
  ASSERT_EQ(harness.engine().steps_launched(), 1);
  const BindCopy bind = harness.last_step().bind.at(0);
  EXPECT_EQ(bind.pending_tokens, (std::vector<int32_t>{0, 0, 0}));
  EXPECT_EQ(bind.source_length, 5);
  EXPECT_EQ(bind.cross_blocks.size(), 2U);
  EXPECT_EQ(bind.self_blocks.size(), 2U);
  for (int token = 1; token <= 2; ++token) {
    harness.CompleteStep();
    EXPECT_EQ(request.record->appends(), token);
    harness.ExpectGauges(1, 0, 4);
  }
  harness.CompleteStep();
  harness.ExpectServed(request, FinishReason::kLength);
  EXPECT_TRUE(request.record->destroyed());
  EXPECT_EQ(harness.observer().generated_tokens(), 3);
  EXPECT_EQ(harness.engine().steps_launched(), 3);
  harness.ExpectIdle();
  EXPECT_TRUE(harness.loop().Idle());
}

TEST(SchedulerLoopTest, EndsAtEosWhichMinNewTokensPutsOff) {
  FakeEngineOptions options = ManualEngine();
  options.tokens.eos_after = 2;
  LoopHarness harness(options);
  TestRequest& soon = harness.Push({.max_new_tokens = 9});
  TestRequest& later = harness.Push({.first_id = 30, .max_new_tokens = 9, .min_new_tokens = 5});
  TestRequest& both = harness.Push({.first_id = 50, .max_new_tokens = 3});
  harness.Run();
  harness.Drain();
  harness.ExpectServed(soon, FinishReason::kEos);
  harness.ExpectServed(later, FinishReason::kEos);
  harness.ExpectServed(both, FinishReason::kEos);
  EXPECT_EQ(soon.record->tokens(), (std::vector<int32_t>{10, 11, 1}));
  EXPECT_EQ(later.record->tokens().size(), 6U);
}

// A prefix of 9 tokens takes 3 steps of 4 tokens, of which the last brings a token.
class LongPrefixTest : public testing::TestWithParam<int32_t> {};

TEST_P(LongPrefixTest, BringsItsTokensLaterAndHoldsNobodyUp) {
  FakeEngineOptions options = Engine(4, 64, GetParam());
  options.prefix_tokens_a_step = 4;
  LoopHarness harness(options);
  TestRequest& prefixed = harness.Push({.prefix_tokens = 9, .max_new_tokens = 2});
  TestRequest& one = harness.Push({.first_id = 30, .prefix_tokens = 5, .max_new_tokens = 1});
  TestRequest& other = harness.Push({.first_id = 50, .max_new_tokens = 6});
  harness.Run();
  harness.CompleteEncodes();
  for (int step = 1; step <= 3; ++step) {
    EXPECT_EQ(prefixed.record->appends(), 0);
    harness.CompleteStep();
    EXPECT_EQ(other.record->appends(), step);
  }
  EXPECT_EQ(prefixed.record->appends(), 1);
  harness.Drain();
  harness.ExpectServed(prefixed, FinishReason::kLength);
  harness.ExpectServed(one, FinishReason::kLength);
  harness.ExpectServed(other, FinishReason::kLength);
}

INSTANTIATE_TEST_SUITE_P(StepsInFlight, LongPrefixTest, testing::Values(1, 2));

TEST(SchedulerLoopTest, LogprobsGoOnlyToWhoAsked) {
  LoopHarness harness;
  TestRequest& without = harness.Push({.max_new_tokens = 2});
  TestRequest& with = harness.Push({.max_new_tokens = 2, .return_logprobs = true});
  harness.Run();
  harness.Drain();
  EXPECT_EQ(without.record->logprobs(), (std::vector<float>{0.0F, 0.0F}));
  EXPECT_EQ(with.record->logprobs(), (std::vector<float>{FakeLogprob(0), FakeLogprob(1)}));
}

TEST(SchedulerLoopTest, NewcomersJoinMidRunAndLeaveAtOnce) {
  LoopHarness harness;
  TestRequest& first = harness.Push({.max_new_tokens = 6});
  harness.Run();
  harness.CompleteEncodes();
  harness.CompleteStep();
  TestRequest& second = harness.Push({.first_id = 40, .max_new_tokens = 2});
  harness.Run();  // a step is running: the encode goes beside it
  EXPECT_EQ(harness.engine().encodes_in_flight(), 1);
  EXPECT_EQ(harness.engine().steps_in_flight(), 1);
  harness.CompleteEncodes();
  harness.ExpectGauges(1, 1, 7);  // 2 + 2 and 2 + 1 blocks
  harness.CompleteStep();
  harness.ExpectGauges(2, 0, 7);
  EXPECT_EQ(harness.last_step().rows.size(), 2U);
  harness.CompleteStep();
  harness.CompleteStep();
  harness.ExpectServed(second, FinishReason::kLength);
  harness.ExpectGauges(1, 0, 4);
  EXPECT_EQ(harness.last_step().rows.size(), 1U);
  EXPECT_EQ(harness.last_step().unbind.size(), 1U);
  EXPECT_FALSE(first.record->ended());
  harness.Drain();
  harness.ExpectServed(first, FinishReason::kLength);
}

TEST(SchedulerLoopTest, ASlotIsUnboundAndBoundAgainInOnePlan) {
  LoopHarness harness(Engine(1, 64));
  TestRequest& first = harness.Push({.max_new_tokens = 2});
  TestRequest& second = harness.Push({.first_id = 40, .max_new_tokens = 2});
  harness.Run();
  harness.CompleteEncodes();
  harness.ExpectGauges(1, 1, 6);
  harness.CompleteStep();
  harness.CompleteStep();
  EXPECT_TRUE(first.record->ended());
  EXPECT_EQ(harness.last_step().unbind, (std::vector<SlotId>{0}));
  ASSERT_EQ(harness.last_step().bind.size(), 1U);
  EXPECT_EQ(harness.last_step().bind[0].slot, 0);
  harness.Drain();
  harness.ExpectServed(second, FinishReason::kLength);
}

TEST(SchedulerLoopTest, JoinsInOrderOfArrival) {
  LoopHarness harness(Engine(1, 64));
  std::vector<TestRequest*> requests;
  for (int i = 0; i < 6; ++i) requests.push_back(&harness.Push({.first_id = 10 + 10 * i}));
  harness.Run();
  harness.Drain();
  for (TestRequest* request : requests) harness.ExpectServed(*request, FinishReason::kLength);
  std::vector<std::vector<uint64_t>> batches = harness.engine().encode_batches();
  std::vector<uint64_t> order;
  for (const auto& batch : batches) order.insert(order.end(), batch.begin(), batch.end());
  EXPECT_EQ(order, (std::vector<uint64_t>{1, 2, 3, 4, 5, 6}));
}

TEST(SchedulerLoopTest, TheLargeOneIsNotStarvedBySmallOnes) {
  LoopHarness harness(Engine(4, 12));
  TestRequest& running = harness.Push({.max_new_tokens = 4});                      // 3 blocks
  TestRequest& large = harness.Push({.source_tokens = 16, .max_new_tokens = 24});  // 4 + 6 blocks
  TestRequest& small = harness.Push({.first_id = 60, .max_new_tokens = 1});
  harness.Run();
  harness.CompleteEncodes();
  harness.ExpectGauges(1, 0, 3);  // 9 are free: the large one waits, and the small one behind it
  EXPECT_EQ(harness.queue().size(), 2U);
  for (int i = 0; i < 4; ++i) harness.CompleteStep();
  harness.ExpectServed(running, FinishReason::kLength);
  harness.ExpectGauges(0, 1, 10);
  EXPECT_EQ(harness.queue().size(), 1U);
  harness.Drain();
  harness.ExpectServed(large, FinishReason::kLength);
  harness.ExpectServed(small, FinishReason::kLength);
}

TEST(SchedulerLoopTest, TheQueueKeepsWhoCanNotBeTakenInYet) {
  LoopHarness harness(Engine(2, 64), 3);
  for (int i = 0; i < 3; ++i) harness.Push();
  harness.Run();
  // Two for the slots and one ahead of them; the rest stays, so that the bound bounds.
  harness.ExpectGauges(0, 3, 9);
  for (int i = 0; i < 3; ++i) harness.Push();
  harness.Run();
  EXPECT_EQ(harness.queue().size(), 3U);
  TestRequest refused;
  EXPECT_EQ(harness.queue().Push(refused.pending).error().code, ErrorCode::kUnavailable);
  refused.pending->sink->Fail({ErrorCode::kUnavailable, "refused"});
  harness.Drain();
}

TEST(SchedulerLoopTest, EncodesWithinTheEnginesLimits) {
  FakeEngineOptions options = Engine(8, 200);
  options.info.max_encode_items = 3;
  options.info.max_encode_tokens = 20;
  LoopHarness harness(options);
  for (int32_t length : {5, 5, 5, 5, 12, 9, 30, 2}) harness.Push({.source_tokens = length});
  harness.Run();
  // Batches: 5 5 5 (items), 5 12 (tokens), 9 (30 goes alone, and nobody passes it), 30, 2.
  harness.Drain();
  const auto batches = harness.engine().encode_batches();
  EXPECT_EQ(batches, (std::vector<std::vector<uint64_t>>{{1, 2, 3}, {4, 5}, {6}, {7}, {8}}));
}

TEST(SchedulerLoopTest, AtMostOneEncodeBatchBetweenTwoSteps) {
  FakeEngineOptions options = Engine(8, 200);
  options.info.max_encode_items = 1;
  options.info.max_encodes_in_flight = 2;
  LoopHarness harness(options);
  for (int i = 0; i < 6; ++i) harness.Push({.max_new_tokens = 20});
  harness.Run();
  harness.Run();
  EXPECT_EQ(harness.engine().encodes_started(), 2);  // nobody runs: no reason to hold back
  EXPECT_EQ(harness.engine().CompleteEncodes(1), 1);
  harness.Run();
  EXPECT_EQ(harness.engine().steps_launched(), 1);
  EXPECT_EQ(harness.engine().encodes_started(), 3);
  harness.CompleteEncodes();
  harness.Run();
  EXPECT_EQ(harness.engine().encodes_started(), 3);  // until the next step
  harness.CompleteStep();
  EXPECT_EQ(harness.engine().steps_launched(), 2);
  EXPECT_EQ(harness.engine().encodes_started(), 4);
  harness.Drain();
}

TEST(SchedulerLoopTest, SourcesGatherWhileEverySlotIsTaken) {
  FakeEngineOptions options = Engine(16, 400);  // 4 ahead, gathering 2
  options.info.max_encode_items = 16;
  options.info.max_encode_tokens = 1000;
  LoopHarness harness(options);
  std::vector<TestRequest*> running;
  for (int i = 0; i < 16; ++i) running.push_back(&harness.Push({.max_new_tokens = 30}));
  harness.Run();
  harness.CompleteEncodes();
  harness.ExpectGauges(16, 0, 16 * 10);
  for (int i = 0; i < 12; ++i) harness.Push({.max_new_tokens = 1});
  harness.Run();
  EXPECT_EQ(harness.engine().encode_batches().back().size(), 4U);  // all 4 that are ahead
  harness.CompleteEncodes();
  harness.ExpectGauges(16, 4, 16 * 10 + 4 * 3);
  running[0]->record->Cancel();
  harness.Run();
  harness.CompleteStep();  // one of the four joins; one source alone waits for another
  EXPECT_EQ(harness.engine().encode_batches().size(), 2U);
  running[1]->record->Cancel();
  harness.Run();
  harness.CompleteStep();
  ASSERT_EQ(harness.engine().encode_batches().size(), 3U);
  EXPECT_GE(harness.engine().encode_batches().back().size(), 2U);
  harness.Drain();
}

TEST(SchedulerLoopTest, TwoStepsInFlightMaskTheEndAndReturnBlocksLate) {
  FakeEngineOptions options = Engine(2, 64, 2);
  options.tokens.eos_after = 1;
  LoopHarness harness(options);
  TestRequest& request = harness.Push({.max_new_tokens = 4});
  harness.Run();
  harness.CompleteEncodes();
  EXPECT_EQ(harness.engine().steps_in_flight(), 2);
  harness.CompleteStep();  // the first token; the third step follows the second
  EXPECT_EQ(harness.engine().steps_in_flight(), 2);
  harness.CompleteStep();  // EOS, while the third step still names the sequence
  harness.ExpectServed(request, FinishReason::kEos);
  harness.ExpectGauges(1, 0, 3);
  EXPECT_EQ(harness.engine().steps_in_flight(), 1);
  harness.CompleteStep();
  harness.ExpectIdle();
  EXPECT_EQ(harness.engine().steps_launched(), 3);
  EXPECT_EQ(harness.observer().generated_tokens(), 2);
}

TEST(SchedulerLoopTest, NoStepIsLaunchedPastMaxNewTokens) {
  LoopHarness harness(Engine(2, 64, 2));
  TestRequest& request = harness.Push({.max_new_tokens = 3});
  TestRequest& one = harness.Push({.first_id = 50, .max_new_tokens = 1});
  harness.Run();
  harness.Drain();
  harness.ExpectServed(request, FinishReason::kLength);
  harness.ExpectServed(one, FinishReason::kLength);
  ASSERT_EQ(harness.engine().steps_launched(), 3);
  EXPECT_EQ(harness.engine().launched_steps()[1].rows.size(), 1U);
}

TEST(SchedulerLoopTest, ALoopThatGoesLeavesTheQueue) {
  Notifier notifier;
  FakeEngine engine(ManualEngine(), &notifier);
  FakeClock clock;
  RecordingObserver observer;
  RequestQueue queue(1);
  {
    const SchedulerLoop never_run({.engine = &engine,
                                   .notifier = &notifier,
                                   .queue = &queue,
                                   .clock = &clock,
                                   .observer = &observer});
  }
  TestRequest late;
  const Status pushed = queue.Push(late.pending);
  ASSERT_FALSE(pushed);
  EXPECT_EQ(pushed.error().code, ErrorCode::kUnavailable);
  late.pending->sink->Fail({ErrorCode::kUnavailable, "refused"});
}

TEST(SchedulerLoopTest, TwoInstancesShareAQueue) {
  LoopHarness one(Engine(1, 6));
  LoopHarness two(Engine(1, 20), one);
  TestRequest& large = one.Push({.source_tokens = 16, .max_new_tokens = 24});  // only for `two`
  TestRequest& small = one.Push({.first_id = 60});
  one.Run();
  one.ExpectGauges(0, 1, 3);
  two.Run();
  two.ExpectGauges(0, 1, 10);
  TestRequest& third = one.Push({.first_id = 70});
  two.Run();  // pulled ahead by whoever comes first
  two.ExpectGauges(0, 2, 13);
  one.Drain();
  two.Drain();
  for (TestRequest* request : {&large, &small, &third}) {
    one.ExpectServed(*request, FinishReason::kLength);
  }
}

TEST(SchedulerLoopTest, NothingIsPulledAheadWhileAnotherInstanceIsFree) {
  LoopHarness one(Engine(1, 64));
  LoopHarness two(Engine(1, 64), one);
  two.Run();  // finds nothing, has a slot
  one.Push();
  TestRequest& second = one.Push({.first_id = 60});
  one.Run();
  one.ExpectGauges(0, 1, 3);
  two.Run();
  two.ExpectGauges(0, 1, 3);
  two.Drain();
  one.ExpectServed(second, FinishReason::kLength);
}

}  // namespace
}  // namespace seq2seq
