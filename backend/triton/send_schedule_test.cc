#include "backend/triton/send_schedule.h"

#include <gtest/gtest.h>

#include <memory>

namespace seq2seq {
namespace {

constexpr int64_t kInterval = 1000;

// Times are plain numbers here; nothing is sent.
class SendScheduleTest : public ::testing::Test {
 protected:
  static std::shared_ptr<OutgoingStream> Stream(bool stream = true, int64_t interval = kInterval) {
    auto made = std::make_shared<OutgoingStream>(nullptr, 0);
    StreamSettings settings;
    settings.max_new_tokens = 10;
    settings.stream = stream;
    settings.interval_ns = interval;
    made->Configure(settings);
    return made;
  }

  // Takes the next stream, expects it to be `stream` and to bring `tokens` tokens, and sends it at
  // once.
  void ExpectSend(const std::shared_ptr<OutgoingStream>& stream, int tokens, int64_t now) {
    const std::shared_ptr<OutgoingStream> taken = schedule_.TakeReady(now);
    ASSERT_EQ(taken, stream);
    const SendBatch batch = taken->TakeBatch();
    EXPECT_EQ(batch.end_token - batch.first, tokens);
    schedule_.OnSent(taken, batch.end != StreamEnd::kOpen, now);
  }

  SendSchedule schedule_;
};

TEST_F(SendScheduleTest, TheFirstTokenGoesAtOnceAndLaterOnesMerge) {
  const auto stream = Stream();
  EXPECT_TRUE(schedule_.Append(stream, 1, 0));
  ExpectSend(stream, 1, 100);
  EXPECT_EQ(schedule_.next_due_ns(), 1100);
  EXPECT_FALSE(schedule_.Append(stream, 2, 0));
  EXPECT_FALSE(schedule_.Append(stream, 3, 0));
  EXPECT_EQ(schedule_.TakeReady(1099), nullptr);
  ExpectSend(stream, 2, 1100);
}

TEST_F(SendScheduleTest, AfterAnIntervalOfSilenceATokenGoesAtOnce) {
  const auto stream = Stream();
  schedule_.Append(stream, 1, 0);
  ExpectSend(stream, 1, 100);
  EXPECT_EQ(schedule_.TakeReady(1100), nullptr);
  EXPECT_EQ(stream->state().place, SendPlace::kIdle);
  EXPECT_FALSE(schedule_.next_due_ns());
  EXPECT_TRUE(schedule_.Append(stream, 2, 0));
  ExpectSend(stream, 1, 1200);
}

TEST_F(SendScheduleTest, TheEndWaitsASecondAtMost) {
  constexpr int64_t kSecond = 1'000'000'000;
  const auto stream = Stream(/*stream=*/true, 60 * kSecond);
  schedule_.Append(stream, 1, 0);
  ExpectSend(stream, 1, 100);
  schedule_.Append(stream, 2, 0);
  EXPECT_EQ(schedule_.TakeReady(30 * kSecond), nullptr);
  EXPECT_TRUE(schedule_.Finish(stream, FinishReason::kEos, 30 * kSecond));
  EXPECT_EQ(schedule_.next_due_ns(), 31 * kSecond);
  EXPECT_EQ(schedule_.TakeReady(31 * kSecond - 1), nullptr);
  ASSERT_EQ(schedule_.TakeReady(31 * kSecond), stream);
  EXPECT_EQ(stream->TakeBatch().end, StreamEnd::kFinished);
}

TEST_F(SendScheduleTest, AnEndDuringASendWaitsASecondAtMost) {
  constexpr int64_t kSecond = 1'000'000'000;
  const auto stream = Stream(/*stream=*/true, 60 * kSecond);
  schedule_.Append(stream, 1, 0);
  const auto sending = schedule_.TakeReady(0);
  ASSERT_EQ(sending, stream);
  sending->TakeBatch();
  EXPECT_FALSE(schedule_.Finish(stream, FinishReason::kEos, 5));
  schedule_.OnSent(sending, /*closed=*/false, 10);
  EXPECT_EQ(schedule_.next_due_ns(), kSecond + 10);
}

TEST_F(SendScheduleTest, TheEndWaitsForTheInterval) {
  const auto stream = Stream();
  schedule_.Append(stream, 1, 0);
  ExpectSend(stream, 1, 100);
  schedule_.Append(stream, 2, 0);
  EXPECT_FALSE(schedule_.Finish(stream, FinishReason::kEos, 200));
  EXPECT_EQ(schedule_.TakeReady(1099), nullptr);
  const auto taken = schedule_.TakeReady(1100);
  ASSERT_EQ(taken, stream);
  const SendBatch batch = taken->TakeBatch();
  EXPECT_EQ(batch.end_token - batch.first, 1);
  EXPECT_EQ(batch.end, StreamEnd::kFinished);
  EXPECT_EQ(batch.reason, FinishReason::kEos);
  EXPECT_EQ(batch.ended_ns, 200);
}

TEST_F(SendScheduleTest, AnErrorDoesNotWait) {
  const auto stream = Stream();
  schedule_.Append(stream, 1, 0);
  ExpectSend(stream, 1, 100);
  EXPECT_TRUE(schedule_.Fail(stream, Error{ErrorCode::kCancelled, "gone"}, 150));
  EXPECT_FALSE(schedule_.next_due_ns());
  const auto taken = schedule_.TakeReady(150);
  ASSERT_EQ(taken, stream);
  EXPECT_EQ(taken->TakeBatch().error, (Error{ErrorCode::kCancelled, "gone"}));
}

TEST_F(SendScheduleTest, AnErrorDuringASendComesRightAfterIt) {
  const auto stream = Stream();
  schedule_.Append(stream, 1, 0);
  const auto taken = schedule_.TakeReady(0);
  taken->TakeBatch();
  EXPECT_FALSE(schedule_.Fail(stream, Error{}, 10));
  schedule_.OnSent(taken, false, 20);
  EXPECT_EQ(schedule_.TakeReady(20), stream);
}

TEST_F(SendScheduleTest, WithoutAnIntervalTokensMergeOnlyWhileASendRuns) {
  const auto stream = Stream(true, 0);
  schedule_.Append(stream, 1, 0);
  const auto taken = schedule_.TakeReady(0);
  EXPECT_EQ(taken->TakeBatch().end_token, 1);
  EXPECT_FALSE(schedule_.Append(stream, 2, 0));
  EXPECT_FALSE(schedule_.Append(stream, 3, 0));
  EXPECT_EQ(schedule_.TakeReady(5), nullptr);  // one place at a time
  schedule_.OnSent(taken, false, 5);
  ExpectSend(stream, 2, 5);
  EXPECT_EQ(stream->state().place, SendPlace::kIdle);
}

TEST_F(SendScheduleTest, OneResponseForEverything) {
  const auto stream = Stream(false);
  EXPECT_FALSE(schedule_.Append(stream, 1, 0));
  EXPECT_FALSE(schedule_.Append(stream, 2, 0));
  EXPECT_TRUE(schedule_.Finish(stream, FinishReason::kLength, 5));
  ExpectSend(stream, 2, 5);
}

TEST_F(SendScheduleTest, AnEndWithoutTokensIsSent) {
  const auto stream = Stream();
  EXPECT_TRUE(schedule_.Finish(stream, FinishReason::kTimeout, 5));
  ExpectSend(stream, 0, 5);
  EXPECT_EQ(stream->state().place, SendPlace::kClosed);
}

TEST_F(SendScheduleTest, NothingHappensAfterTheEnd) {
  const auto stream = Stream();
  schedule_.Finish(stream, FinishReason::kEos, 5);
  EXPECT_FALSE(schedule_.Append(stream, 1, 0));
  EXPECT_FALSE(schedule_.Finish(stream, FinishReason::kLength, 6));
  EXPECT_FALSE(schedule_.Fail(stream, Error{}, 6));
  ExpectSend(stream, 0, 10);
  EXPECT_FALSE(schedule_.Append(stream, 1, 0));
  EXPECT_FALSE(schedule_.Fail(stream, Error{}, 11));
  EXPECT_EQ(schedule_.TakeReady(1'000'000), nullptr);
}

TEST_F(SendScheduleTest, AStreamThatClosedByItselfTakesNothingMore) {
  const auto stream = Stream();
  schedule_.Append(stream, 1, 0);
  const auto taken = schedule_.TakeReady(0);
  taken->TakeBatch();
  schedule_.OnSent(taken, /*closed=*/true, 0);
  EXPECT_FALSE(schedule_.Append(stream, 2, 0));
  EXPECT_FALSE(schedule_.Finish(stream, FinishReason::kEos, 1));
  EXPECT_EQ(schedule_.TakeReady(1'000'000), nullptr);
}

TEST_F(SendScheduleTest, FirstComeFirstServed) {
  const auto a = Stream(true, 0);
  const auto b = Stream(true, 0);
  const auto c = Stream(true, 0);
  for (const auto& stream : {b, a, c}) schedule_.Append(stream, 1, 0);
  ExpectSend(b, 1, 0);
  schedule_.Append(b, 2, 0);  // behind those that wait
  ExpectSend(a, 1, 0);
  ExpectSend(c, 1, 0);
  ExpectSend(b, 1, 0);
  EXPECT_FALSE(schedule_.has_ready());
}

TEST_F(SendScheduleTest, MoreTokensThanAllowedFailTheStream) {
  const auto stream = Stream();
  for (int i = 0; i < 10; ++i) schedule_.Append(stream, i, 0);
  EXPECT_EQ(stream->state().end, StreamEnd::kOpen);
  schedule_.Append(stream, 10, 0);
  EXPECT_EQ(stream->state().end, StreamEnd::kFailed);
  EXPECT_EQ(stream->state().error.code, ErrorCode::kInternal);
}

TEST_F(SendScheduleTest, AnEndlessIntervalDoesNotOverflow) {
  const auto stream = Stream(true, INT64_MAX);
  schedule_.Append(stream, 1, 0);
  ExpectSend(stream, 1, 100);
  schedule_.Append(stream, 2, 0);
  EXPECT_EQ(schedule_.next_due_ns(), INT64_MAX);
  EXPECT_EQ(schedule_.TakeReady(INT64_MAX - 1), nullptr);
}

TEST_F(SendScheduleTest, IdleAndClosedStreamsAreHeldByTheirSinksAlone) {
  const auto stream = Stream(true, 0);
  schedule_.Append(stream, 1, 0);
  ExpectSend(stream, 1, 0);
  EXPECT_EQ(stream.use_count(), 1);
  schedule_.Finish(stream, FinishReason::kEos, 0);
  ExpectSend(stream, 0, 0);
  EXPECT_EQ(stream.use_count(), 1);
}

}  // namespace
}  // namespace seq2seq
