// Takes the whole process's memory away, so it is a program of its own.
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "backend/testing/test_heap.h"
#include "backend/triton/send_schedule.h"

namespace seq2seq {
namespace {

TEST(SendScheduleMemoryTest, AStreamThatCanNotCoolGoesOn) {
  auto stream = std::make_shared<OutgoingStream>(nullptr, 0);
  StreamSettings settings;
  settings.max_new_tokens = 3;
  settings.interval_ns = 1000;
  stream->Configure(settings);
  SendSchedule schedule;
  ASSERT_TRUE(schedule.Append(stream, 1, 0));
  std::shared_ptr<OutgoingStream> sending = schedule.TakeReady(0);
  sending->TakeBatch();

  GetTestHeap().exhausted = true;
  schedule.OnSent(std::move(sending), /*closed=*/false, 0);
  const bool ready = schedule.Append(stream, 2, 0);
  schedule.Finish(stream, FinishReason::kLength, 0);
  GetTestHeap().exhausted = false;

  EXPECT_TRUE(ready);
  ASSERT_EQ(schedule.TakeReady(0), stream);
  EXPECT_EQ(stream->TakeBatch().end, StreamEnd::kFinished);
}

}  // namespace
}  // namespace seq2seq
