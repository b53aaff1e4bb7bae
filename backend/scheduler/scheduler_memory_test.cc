// Takes the whole process's memory away, so it is a program of its own.
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "backend/core/notifier.h"
#include "backend/core/status.h"
#include "backend/request/token_sink.h"
#include "backend/scheduler/loop_harness.h"
#include "backend/scheduler/request_queue.h"
#include "backend/scheduler/sequence_table.h"
#include "backend/testing/fake_engine.h"
#include "backend/testing/recording_sink.h"
#include "backend/testing/test_heap.h"
#include "backend/testing/test_request.h"

namespace seq2seq {
namespace {

constexpr int64_t kMs = 1'000'000;

class WithoutMemory {
 public:
  WithoutMemory() { GetTestHeap().exhausted = true; }
  ~WithoutMemory() { GetTestHeap().exhausted = false; }
};

// Throws when it gets a token; the rest is a RecordingSink's.
class ThrowingSink final : public TokenSink {
 public:
  explicit ThrowingSink(std::shared_ptr<SinkRecord> record) : sink_(std::move(record)) {}
  void Append(int32_t, float) override { throw std::runtime_error("no room for a token"); }
  void Finish(FinishReason reason) override { sink_.Finish(reason); }
  void Fail(Error error) override { sink_.Fail(std::move(error)); }
  bool IsCancelled() override { return sink_.IsCancelled(); }

 private:
  RecordingSink sink_;
};

void ExpectRefused(RequestQueue& queue) {
  TestRequest late;
  EXPECT_EQ(queue.Push(late.pending).error().code, ErrorCode::kUnavailable);
  ASSERT_NE(late.pending, nullptr);
  late.pending->sink->Fail({ErrorCode::kUnavailable, "refused"});
}

TEST(SequenceTableMemoryTest, ARequestThatCanNotBeAdmittedFailsAloneAndTakesNothing) {
  const EngineInfo info = FakeEngineOptions{}.info;
  SequenceTable table(info, 1);
  TestRequest failed;
  {
    const WithoutMemory guard;
    table.Admit(std::move(failed.pending));
  }
  ASSERT_TRUE(failed.record->error());
  EXPECT_EQ(failed.record->error()->code, ErrorCode::kUnavailable);
  EXPECT_EQ(failed.record->error()->message, "out of memory");
  EXPECT_EQ(failed.record->ends(), 1);
  EXPECT_FALSE(failed.record->destroyed_unanswered());
  EXPECT_TRUE(table.empty());
  EXPECT_TRUE(table.CheckIntegrity());
  // Every sequence is still there to be used.
  std::vector<std::unique_ptr<TestRequest>> others;
  for (int32_t i = 0; i < info.max_slots + 1; ++i) {
    ASSERT_TRUE(table.HasRoom());
    others.push_back(std::make_unique<TestRequest>());
    table.Admit(std::move(others.back()->pending));
  }
  EXPECT_FALSE(table.HasRoom());
  EXPECT_EQ(table.pool().used(), 3 * (info.max_slots + 1));
  table.FailAll({ErrorCode::kUnavailable, "the test is over"});
  table.Settle();
  EXPECT_TRUE(table.empty());
  EXPECT_TRUE(table.CheckIntegrity());
}

TEST(SequenceTableMemoryTest, AllAreFailedWithoutMemory) {
  SequenceTable table(FakeEngineOptions{}.info, 1);
  TestRequest requests[2];
  for (TestRequest& request : requests) table.Admit(std::move(request.pending));
  const Error error{ErrorCode::kInternal, "a text that is too long to be kept within a string"};
  {
    const WithoutMemory guard;
    table.FailAll(error);
    table.Settle();
  }
  for (const TestRequest& request : requests) {
    EXPECT_EQ(request.record->error()->code, ErrorCode::kInternal);
    EXPECT_EQ(request.record->error()->message, "out of memory");
    EXPECT_EQ(request.record->ends(), 1);
  }
  EXPECT_TRUE(table.CheckIntegrity());
}

TEST(RequestQueueMemoryTest, ASweepThatHasNoMemoryTakesNothingOut) {
  RequestQueue queue(8);
  Notifier bell;
  queue.AddListener(&bell, 10, 4);
  TestRequest requests[3];
  for (TestRequest& request : requests) ASSERT_TRUE(queue.Push(request.pending));
  requests[0].record->Cancel();
  requests[2].record->Cancel();
  bool thrown = false;
  try {
    const WithoutMemory guard;
    queue.Sweep(0);
  } catch (const std::bad_alloc&) {
    thrown = true;
  }
  EXPECT_TRUE(thrown);
  EXPECT_EQ(queue.size(), 3U);
  for (const TestRequest& request : requests) EXPECT_FALSE(request.record->ended());
  queue.Sweep(kMs);
  EXPECT_EQ(requests[0].record->error()->code, ErrorCode::kCancelled);
  EXPECT_FALSE(requests[1].record->ended());
  EXPECT_EQ(requests[2].record->error()->code, ErrorCode::kCancelled);
}

TEST(RequestQueueMemoryTest, TheLastListenerLeavesWithoutMemory) {
  RequestQueue queue(8);
  Notifier bell;
  queue.AddListener(&bell, 10, 4);
  TestRequest requests[3];
  for (TestRequest& request : requests) ASSERT_TRUE(queue.Push(request.pending));
  {
    const WithoutMemory guard;
    queue.RemoveListener(&bell);
  }
  for (const TestRequest& request : requests) {
    ASSERT_TRUE(request.record->error());
    EXPECT_EQ(request.record->error()->code, ErrorCode::kUnavailable);
    EXPECT_EQ(request.record->ends(), 1);
  }
  EXPECT_EQ(queue.size(), 0U);
}

TEST(SchedulerLoopMemoryTest, WithoutMemoryAStepFailsAllAndTheEngineIsDrained) {
  FakeEngineOptions options = ManualEngine();
  options.info.max_slots = 1;
  options.info.max_steps_in_flight = 2;
  LoopHarness harness(options);
  TestRequest& running = harness.Push({.max_new_tokens = 12});
  harness.Run();
  harness.CompleteEncodes();
  TestRequest& ahead = harness.Push();
  TestRequest& queued = harness.Push();
  harness.Run();
  ASSERT_EQ(harness.queue().size(), 1U);
  ASSERT_TRUE(harness.engine().CompleteStep());
  {
    const WithoutMemory guard;  // the sink needs some for the token
    harness.Run();
  }
  LoopHarness::ExpectFailed(running, ErrorCode::kInternal);
  LoopHarness::ExpectFailed(ahead, ErrorCode::kInternal);
  LoopHarness::ExpectFailed(queued, ErrorCode::kUnavailable);
  ExpectRefused(harness.queue());
  EXPECT_FALSE(harness.loop().Drained());  // a step and an encode are still with the engine
  harness.Drain();
  EXPECT_TRUE(harness.loop().Drained());
}

TEST(SchedulerLoopMemoryTest, AnExceptionIsReportedAsAFailureOfTheEngineOnce) {
  LoopHarness harness;
  TestRequest& other = harness.Push();
  TestRequest broken;
  // The sink that goes ends its record: another takes its place.
  broken.record = std::make_shared<SinkRecord>();
  broken.pending->sink = std::make_unique<ThrowingSink>(broken.record);
  ASSERT_TRUE(harness.queue().Push(broken.pending));
  harness.Run();
  harness.CompleteEncodes();
  harness.CompleteStep();
  LoopHarness::ExpectFailed(other, ErrorCode::kInternal);
  LoopHarness::ExpectFailed(broken, ErrorCode::kInternal);
  EXPECT_EQ(broken.record->ends(), 1);
  EXPECT_NE(other.record->error()->message.find("no room for a token"), std::string::npos);
  harness.Run();
  const std::vector<Error> failures = harness.observer().engine_failures();
  ASSERT_EQ(failures.size(), 1U);
  EXPECT_NE(failures[0].message.find("no room for a token"), std::string::npos);
  ExpectRefused(harness.queue());
}

}  // namespace
}  // namespace seq2seq
