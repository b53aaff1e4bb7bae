// A SchedulerLoop with everything around it, driven by hand: no threads, no real time.
#ifndef SEQ2SEQ_BACKEND_SCHEDULER_LOOP_HARNESS_H_
#define SEQ2SEQ_BACKEND_SCHEDULER_LOOP_HARNESS_H_

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "backend/scheduler/request_queue.h"
#include "backend/scheduler/scheduler_loop.h"
#include "backend/testing/fake_clock.h"
#include "backend/testing/fake_engine.h"
#include "backend/testing/recording_observer.h"
#include "backend/testing/test_request.h"

namespace seq2seq {

inline FakeEngineOptions ManualEngine() {
  FakeEngineOptions options;
  options.manual = true;
  return options;
}

// Blocks of 4 tokens, 64 of them, 4 slots, unless the options say otherwise. The default request
// takes 2 cross blocks and 1 self block. When it is destroyed it stops the loop, lets the engine
// finish and checks what must hold after every test.
class LoopHarness {
 public:
  explicit LoopHarness(FakeEngineOptions options = ManualEngine(), size_t queue_capacity = 100)
      : options_(options),
        engine_(options, &notifier_),
        own_queue_(queue_capacity),
        queue_(&own_queue_),
        loop_(Context()) {}
  // A second instance on the queue of `other`, which must outlive this one.
  LoopHarness(FakeEngineOptions options, LoopHarness& other)
      : options_(options),
        engine_(options, &notifier_),
        own_queue_(0),
        queue_(other.queue_),
        loop_(Context()) {}

  ~LoopHarness() {
    loop_.Stop();
    Drain();
    EXPECT_TRUE(loop_.Drained());
    EXPECT_TRUE(loop_.Idle());
    EXPECT_EQ(engine_.violations(), std::vector<std::string>{});
    EXPECT_EQ(observer_.repeated_gauges(), 0);
    ExpectIdle();
    for (const auto& request : requests_) {
      EXPECT_EQ(request->record->ends(), 1);
      EXPECT_EQ(request->record->late_calls(), 0);
      EXPECT_FALSE(request->record->destroyed_unanswered());
    }
  }

  TestRequest& Push(TestRequestSpec spec = {}) {
    spec.arrival_ns = clock_.NowNs();
    requests_.push_back(std::make_unique<TestRequest>(spec));
    const Status pushed = queue_->Push(requests_.back()->pending);
    EXPECT_TRUE(pushed) << pushed.error().message;
    return *requests_.back();
  }

  void Run() { loop_.RunOnce(); }
  void CompleteEncodes() {
    EXPECT_GT(engine_.CompleteEncodes(), 0);
    Run();
  }
  void CompleteStep() {
    EXPECT_TRUE(engine_.CompleteStep());
    Run();
  }
  // Until nothing is with the engine and nothing is left to do.
  void Drain() {
    for (int i = 0; i < 10'000; ++i) {
      const bool worked = engine_.CompleteEncodes() > 0 || engine_.CompleteStep();
      Run();
      if (!worked && loop_.Idle()) return;
    }
    ADD_FAILURE() << "the loop never became idle";
  }

  void ExpectGauges(int32_t active, int32_t waiting, int32_t blocks) const {
    EXPECT_EQ(observer_.gauges().active_sequences, active);
    EXPECT_EQ(observer_.gauges().waiting_sequences, waiting);
    EXPECT_EQ(observer_.gauges().kv_blocks_used, blocks);
    EXPECT_EQ(observer_.gauges().kv_blocks_total, options_.info.total_blocks);
    EXPECT_TRUE(loop_.CheckIntegrity());
  }
  void ExpectIdle() const {
    ExpectGauges(0, 0, 0);
    const Status integrity = loop_.CheckIntegrity();
    EXPECT_TRUE(integrity) << integrity.error().message;
  }
  void ExpectServed(const TestRequest& request, FinishReason reason) const {
    EXPECT_EQ(request.record->tokens(), request.Output(options_.tokens));
    EXPECT_EQ(request.record->finish_reason(), reason);
  }
  static void ExpectFailed(const TestRequest& request, ErrorCode code) {
    ASSERT_TRUE(request.record->error());
    EXPECT_EQ(request.record->error()->code, code) << request.record->error()->message;
    EXPECT_TRUE(request.record->destroyed());
  }

  FakeClock& clock() { return clock_; }
  FakeEngine& engine() { return engine_; }
  RequestQueue& queue() { return *queue_; }
  SchedulerLoop& loop() { return loop_; }
  const RecordingObserver& observer() const { return observer_; }
  LaunchedStep last_step() const { return engine_.launched_steps().back(); }

 private:
  SchedulerContext Context() {
    return {.engine = &engine_,
            .notifier = &notifier_,
            .queue = queue_,
            .clock = &clock_,
            .observer = &observer_};
  }

  const FakeEngineOptions options_;
  FakeClock clock_;
  Notifier notifier_;
  FakeEngine engine_;
  RecordingObserver observer_;
  RequestQueue own_queue_;
  RequestQueue* queue_;
  std::vector<std::unique_ptr<TestRequest>> requests_;
  SchedulerLoop loop_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_SCHEDULER_LOOP_HARNESS_H_
