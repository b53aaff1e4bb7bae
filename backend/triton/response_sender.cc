#include "backend/triton/response_sender.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

namespace seq2seq {
namespace {

constexpr int64_t kLongestSleepNs = 3'600'000'000'000;  // keeps wait_for() from overflowing

}  // namespace

ResponseSender::ResponseSender(const Clock* clock, int threads) : clock_(clock) {
  try {
    threads_.reserve(threads);
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
  } catch (...) {
    // The system gives no more threads: those that run must end before they are joined.
    Stop();
    throw;
  }
}

ResponseSender::~ResponseSender() { Stop(); }

void ResponseSender::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
}

void ResponseSender::Append(const std::shared_ptr<OutgoingStream>& stream, int32_t token,
                            float logprob) {
  std::unique_lock lock(mutex_);
  if (schedule_.Append(stream, token, logprob)) WakeOne(std::move(lock));
}

void ResponseSender::AppendLast(const std::shared_ptr<OutgoingStream>& stream, int32_t token,
                                float logprob, FinishReason reason) {
  const int64_t now_ns = clock_->NowNs();
  std::unique_lock lock(mutex_);
  const bool appended = schedule_.Append(stream, token, logprob);
  const bool finished = schedule_.Finish(stream, reason, now_ns);
  if (appended || finished) WakeOne(std::move(lock));
}

void ResponseSender::Finish(const std::shared_ptr<OutgoingStream>& stream, FinishReason reason) {
  const int64_t now_ns = clock_->NowNs();
  std::unique_lock lock(mutex_);
  if (schedule_.Finish(stream, reason, now_ns)) WakeOne(std::move(lock));
}

void ResponseSender::Fail(const std::shared_ptr<OutgoingStream>& stream, Error error) {
  const int64_t now_ns = clock_->NowNs();
  std::unique_lock lock(mutex_);
  if (schedule_.Fail(stream, std::move(error), now_ns)) WakeOne(std::move(lock));
}

void ResponseSender::Abandon(const std::shared_ptr<OutgoingStream>& stream) {
  {
    std::lock_guard lock(mutex_);
    if (stream->state().end != StreamEnd::kOpen) return;
  }
  Error error;
  try {
    error.message = "the request was dropped unanswered";
  } catch (const std::bad_alloc&) {
    // Likely why it was dropped; it fails without a text.
  }
  Fail(stream, std::move(error));
}

void ResponseSender::WakeOne(std::unique_lock<std::mutex> lock) {
  const bool somebody_sleeps = sleepers_ > 0;
  lock.unlock();
  if (somebody_sleeps) wake_.notify_one();
}

void ResponseSender::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    // What is left at the end does not wait for its interval.
    const int64_t now_ns = stopping_ ? std::numeric_limits<int64_t>::max() : clock_->NowNs();
    std::shared_ptr<OutgoingStream> stream = schedule_.TakeReady(now_ns);
    if (stream == nullptr) {
      if (stopping_) return;
      Wait(lock);
      continue;
    }
    SendBatch batch = stream->TakeBatch();
    // This thread is busy from here on: somebody else has to look after the line and the intervals.
    const bool more =
        schedule_.has_ready() || schedule_.next_due_ns().value_or(kNobody) < watched_due_ns_;
    const bool wake = more && sleepers_ > 0;
    lock.unlock();
    if (wake) wake_.notify_one();
    const bool closed = stream->Deliver(std::move(batch), *clock_);
    const int64_t sent_ns = clock_->NowNs();
    lock.lock();
    schedule_.OnSent(std::move(stream), closed, sent_ns);
  }
}

void ResponseSender::Wait(std::unique_lock<std::mutex>& lock) {
  ++sleepers_;
  const int64_t due_ns = schedule_.next_due_ns().value_or(kNobody);
  if (due_ns < watched_due_ns_) {
    watched_due_ns_ = due_ns;
    const int64_t sleep_ns = std::clamp<int64_t>(due_ns - clock_->NowNs(), 0, kLongestSleepNs);
    wake_.wait_for(lock, std::chrono::nanoseconds(sleep_ns));
    watched_due_ns_ = kNobody;
  } else {
    wake_.wait(lock);
  }
  --sleepers_;
}

}  // namespace seq2seq
