// The scheduler on its own thread, with an engine on threads of its own.
#include "backend/scheduler/scheduler.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "backend/testing/fake_clock.h"
#include "backend/testing/fake_engine.h"
#include "backend/testing/recording_observer.h"
#include "backend/testing/test_request.h"

namespace seq2seq {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

bool IsIdle(const SchedulerGauges& gauges) {
  return gauges.active_sequences == 0 && gauges.waiting_sequences == 0 &&
         gauges.kv_blocks_used == 0;
}

// An instance: engine and scheduler.
struct Instance {
  Instance(const FakeEngineOptions& options, RequestQueue* queue, const Clock* clock)
      : engine(options, &notifier),
        scheduler(std::make_unique<Scheduler>(SchedulerContext{.engine = &engine,
                                                               .notifier = &notifier,
                                                               .queue = queue,
                                                               .clock = clock,
                                                               .observer = &observer})) {}
  Notifier notifier;
  FakeEngine engine;
  RecordingObserver observer;
  std::unique_ptr<Scheduler> scheduler;
};

TEST(SchedulerTest, ServesManyOnItsOwnThread) {
  SteadyClock clock;
  RequestQueue queue(100);
  Instance instance({}, &queue, &clock);
  std::vector<std::unique_ptr<TestRequest>> requests;
  for (int i = 0; i < 50; ++i) {
    requests.push_back(std::make_unique<TestRequest>(
        TestRequestSpec{.first_id = 10 + i, .source_tokens = 1 + i % 20, .max_new_tokens = 1 + i}));
    ASSERT_TRUE(queue.Push(requests.back()->pending));
  }
  for (const auto& request : requests) {
    ASSERT_TRUE(request->record->WaitEnded());
    EXPECT_EQ(request->record->tokens(), request->Output({}));
    EXPECT_EQ(request->record->finish_reason(), FinishReason::kLength);
  }
  EXPECT_TRUE(instance.observer.WaitGauges(IsIdle));
  EXPECT_EQ(instance.observer.generated_tokens(), 50 * 51 / 2);
  EXPECT_EQ(instance.engine.violations(), std::vector<std::string>{});
}

TEST(SchedulerTest, NoticesCancelsAndDeadlinesWhileNoStepEnds) {
  FakeClock clock;
  RequestQueue queue(100);
  FakeEngineOptions options;
  options.manual = true;
  Instance instance(options, &queue, &clock);
  TestRequest cancelled({.arrival_ns = clock.NowNs()});
  TestRequest late({.arrival_ns = clock.NowNs(), .timeout_ns = 1'000'000});
  ASSERT_TRUE(queue.Push(cancelled.pending));
  ASSERT_TRUE(instance.engine.WaitEncodesStarted(1));
  ASSERT_TRUE(queue.Push(late.pending));
  instance.engine.CompleteEncodes();
  ASSERT_TRUE(instance.engine.WaitStepsLaunched(1));
  cancelled.record->Cancel();
  clock.AdvanceMs(5);
  // Nobody rings: the tick must do.
  ASSERT_TRUE(cancelled.record->WaitEnded());
  ASSERT_TRUE(late.record->WaitEnded());
  EXPECT_EQ(cancelled.record->error()->code, ErrorCode::kCancelled);
  EXPECT_EQ(late.record->error()->code, ErrorCode::kUnavailable);
  instance.engine.CompleteEncodes();
  instance.engine.CompleteStep();
  EXPECT_TRUE(instance.observer.WaitGauges(IsIdle));
}

TEST(SchedulerTest, ARetiredOneServesWhatItHolds) {
  SteadyClock clock;
  RequestQueue queue(100);
  FakeEngineOptions options;
  options.manual = true;
  Instance retired(options, &queue, &clock);
  TestRequest held({.max_new_tokens = 2});
  ASSERT_TRUE(queue.Push(held.pending));
  ASSERT_TRUE(retired.engine.WaitEncodesStarted(1));
  Instance other({}, &queue, &clock);
  retired.scheduler->Retire();
  EXPECT_FALSE(retired.scheduler->WaitUntilOver(milliseconds(5)));
  std::vector<std::unique_ptr<TestRequest>> later;
  for (int i = 0; i < 20; ++i) {
    later.push_back(std::make_unique<TestRequest>(TestRequestSpec{.first_id = 40}));
    ASSERT_TRUE(queue.Push(later.back()->pending));
  }
  for (const auto& request : later) ASSERT_TRUE(request->record->WaitEnded());
  retired.engine.CompleteEncodes();
  for (uint64_t step = 1; step <= 2; ++step) {
    ASSERT_TRUE(retired.engine.WaitStepsLaunched(step));
    retired.engine.CompleteStep();
  }
  ASSERT_TRUE(held.record->WaitEnded());
  EXPECT_EQ(held.record->tokens(), held.Output({}));
  EXPECT_TRUE(retired.scheduler->WaitUntilOver(std::chrono::seconds(20)));
  EXPECT_EQ(retired.engine.violations(), std::vector<std::string>{});
}

TEST(SchedulerTest, ShutdownWaitsForTheLaunchedStep) {
  SteadyClock clock;
  RequestQueue queue(100);
  FakeEngineOptions options;
  options.manual = true;
  Instance instance(options, &queue, &clock);
  TestRequest running;
  TestRequest waiting({.first_id = 40, .source_tokens = 200});
  ASSERT_TRUE(queue.Push(running.pending));
  ASSERT_TRUE(instance.engine.WaitEncodesStarted(1));
  instance.engine.CompleteEncodes();
  ASSERT_TRUE(instance.engine.WaitStepsLaunched(1));
  ASSERT_TRUE(queue.Push(waiting.pending));
  ASSERT_TRUE(instance.engine.WaitEncodesStarted(2));
  auto gone = std::async(std::launch::async, [&] { instance.scheduler.reset(); });
  ASSERT_TRUE(running.record->WaitEnded());
  ASSERT_TRUE(waiting.record->WaitEnded());
  EXPECT_EQ(running.record->error()->code, ErrorCode::kUnavailable);
  EXPECT_EQ(waiting.record->error()->code, ErrorCode::kUnavailable);
  // Everyone has been answered, and it still waits for what the engine holds.
  EXPECT_EQ(gone.wait_for(milliseconds(20)), std::future_status::timeout);
  instance.engine.CompleteStep();
  EXPECT_EQ(gone.wait_for(milliseconds(20)), std::future_status::timeout);
  instance.engine.CompleteEncodes();
  EXPECT_EQ(gone.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  TestRequest refused;
  EXPECT_EQ(queue.Push(refused.pending).error().code, ErrorCode::kUnavailable);
}

struct StressParam {
  uint32_t seed;
  bool lose_one;    // an engine is lost on the way
  bool stop_early;  // both schedulers stop while clients push
};

class SchedulerStressTest : public testing::TestWithParam<StressParam> {
 protected:
  static constexpr int kClients = 4;
  static constexpr int kEach = 400;

  static FakeEngineOptions Options(int32_t steps_in_flight, int32_t blocks) {
    FakeEngineOptions options;
    options.info = {.max_slots = 6,
                    .block_tokens = 4,
                    .total_blocks = blocks,
                    .max_encode_items = 3,
                    .max_encode_tokens = 40,
                    .max_encodes_in_flight = steps_in_flight,
                    .max_steps_in_flight = steps_in_flight};
    options.tokens = {.kind = FakeTokenRule::Kind::kHash, .eos_after = 20};
    options.step_delay = microseconds(20);
    options.encode_delay = microseconds(30);
    return options;
  }

  // Pushes requests of all kinds, cancels some before, some after; keeps at most 40 open.
  void Client(uint32_t seed, std::vector<std::unique_ptr<TestRequest>>* requests) {
    std::mt19937 random(seed);
    const auto below = [&random](uint32_t n) { return static_cast<int32_t>(random() % n); };
    for (int i = 0; i < kEach; ++i) {
      TestRequestSpec spec{.first_id = 10 + below(500),
                           .source_tokens = 1 + below(below(10) == 0 ? 60 : 12),
                           .prefix_tokens = 1 + below(3),
                           .max_new_tokens = 1 + below(30),
                           .min_new_tokens = below(4) == 0 ? below(30) : 0,
                           .arrival_ns = clock_.NowNs()};
      if (below(6) == 0) spec.timeout_ns = 1000 * (1 + below(3000));
      requests->push_back(std::make_unique<TestRequest>(spec));
      TestRequest& request = *requests->back();
      if (below(20) == 0) request.record->Cancel();
      if (!queue_.Push(request.pending)) {
        request.pending->sink->Fail({ErrorCode::kUnavailable, "refused"});
      } else if (below(5) == 0) {
        requests->at(static_cast<size_t>(below(i + 1)))->record->Cancel();
      }
      if (i < 40) continue;
      EXPECT_TRUE((*requests)[i - 40]->record->WaitEnded());
    }
  }

  static void CheckEnd(const TestRequest& request) {
    EXPECT_EQ(request.record->ends(), 1);
    EXPECT_EQ(request.record->late_calls(), 0);
    EXPECT_FALSE(request.record->destroyed_unanswered());
    const std::vector<int32_t> whole = request.Output(Options(1, 1).tokens);
    const std::vector<int32_t> tokens = request.record->tokens();
    ASSERT_LE(tokens.size(), whole.size());
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), whole.begin()));
    const auto reason = request.record->finish_reason();
    if (reason == FinishReason::kEos || reason == FinishReason::kLength) {
      EXPECT_EQ(tokens, whole);
      EXPECT_EQ(reason == FinishReason::kEos, whole.back() == 1);
    }
  }

  SteadyClock clock_;
  RequestQueue queue_{64};
};

INSTANTIATE_TEST_SUITE_P(Seeds, SchedulerStressTest,
                         testing::Values(StressParam{11, false, false},
                                         StressParam{12, false, false},
                                         StressParam{13, true, false}, StressParam{14, true, false},
                                         StressParam{15, false, true}, StressParam{16, true, true}),
                         [](const auto& info) { return std::to_string(info.param.seed); });

TEST_P(SchedulerStressTest, EveryRequestEndsOnceAndRightly) {
  const StressParam param = GetParam();
  Instance one(Options(1, 40), &queue_, &clock_);
  Instance two(Options(2, 60), &queue_, &clock_);
  for (int64_t n = 7; n < 1000; n += 41) one.engine.FailNthEncode(n);
  if (param.lose_one) two.engine.FailNthStep(200);
  std::vector<std::vector<std::unique_ptr<TestRequest>>> requests(kClients);
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&, i] { Client(param.seed * 100 + i, &requests[i]); });
  }
  if (param.stop_early) {
    EXPECT_TRUE(one.engine.WaitStepsLaunched(100));
    two.scheduler.reset();
    one.scheduler.reset();
  }
  for (std::thread& client : clients) client.join();
  int served = 0;
  for (const auto& list : requests) {
    for (const auto& request : list) {
      ASSERT_TRUE(request->record->WaitEnded());
      CheckEnd(*request);
      if (request->record->finish_reason()) ++served;
    }
  }
  EXPECT_GT(served, param.stop_early ? 20 : kClients * kEach / 3);
  for (Instance* instance : {&one, &two}) {
    EXPECT_TRUE(instance->observer.WaitGauges(IsIdle));
    EXPECT_EQ(instance->engine.violations(), std::vector<std::string>{});
    EXPECT_EQ(instance->observer.repeated_gauges(), 0);
  }
}

}  // namespace
}  // namespace seq2seq
