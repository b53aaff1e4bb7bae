// Takes the whole process's memory away, so it is a program of its own.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <utility>

#include "backend/triton/send_schedule.h"

namespace {
bool exhausted = false;
}  // namespace

[[gnu::noinline]] void* operator new(size_t size) {
  if (!exhausted) {
    if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  }
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

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

  exhausted = true;
  schedule.OnSent(std::move(sending), /*closed=*/false, 0);
  const bool ready = schedule.Append(stream, 2, 0);
  schedule.Finish(stream, FinishReason::kLength, 0);
  exhausted = false;

  EXPECT_TRUE(ready);
  ASSERT_EQ(schedule.TakeReady(0), stream);
  EXPECT_EQ(stream->TakeBatch().end, StreamEnd::kFinished);
}

}  // namespace
}  // namespace seq2seq
