#include "backend/testing/recording_sink.h"

#include <utility>

namespace seq2seq {

std::vector<int32_t> SinkRecord::tokens() const {
  std::lock_guard lock(mutex_);
  return tokens_;
}

std::vector<float> SinkRecord::logprobs() const {
  std::lock_guard lock(mutex_);
  return logprobs_;
}

std::optional<FinishReason> SinkRecord::finish_reason() const {
  std::lock_guard lock(mutex_);
  return finish_reason_;
}

std::optional<Error> SinkRecord::error() const {
  std::lock_guard lock(mutex_);
  return error_;
}

int SinkRecord::appends() const {
  std::lock_guard lock(mutex_);
  return static_cast<int>(tokens_.size());
}

int SinkRecord::ends() const {
  std::lock_guard lock(mutex_);
  return ends_;
}

int SinkRecord::late_calls() const {
  std::lock_guard lock(mutex_);
  return late_calls_;
}

bool SinkRecord::ended() const { return ends() > 0; }

bool SinkRecord::destroyed() const {
  std::lock_guard lock(mutex_);
  return destroyed_;
}

bool SinkRecord::destroyed_unanswered() const {
  std::lock_guard lock(mutex_);
  return destroyed_unanswered_;
}

int64_t SinkRecord::cancel_polls() const {
  std::lock_guard lock(mutex_);
  return cancel_polls_;
}

void SinkRecord::Cancel() {
  std::lock_guard lock(mutex_);
  cancelled_ = true;
}

bool SinkRecord::WaitEnded(std::chrono::milliseconds timeout) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [this] { return ends_ > 0; });
}

bool SinkRecord::WaitTokens(size_t count, std::chrono::milliseconds timeout) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [&] { return tokens_.size() >= count; });
}

void SinkRecord::Append(int32_t token, float logprob) {
  std::lock_guard lock(mutex_);
  if (ends_ > 0) {
    ++late_calls_;
    return;
  }
  tokens_.push_back(token);
  logprobs_.push_back(logprob);
  changed_.notify_all();
}

void SinkRecord::End(std::optional<FinishReason> reason, std::optional<Error> error) {
  {
    std::lock_guard lock(mutex_);
    ++ends_;
    if (ends_ > 1) {
      ++late_calls_;
      return;
    }
    finish_reason_ = reason;
    error_ = std::move(error);
    changed_.notify_all();
  }
  if (on_end_) on_end_();
}

bool SinkRecord::PollCancelled() {
  std::lock_guard lock(mutex_);
  ++cancel_polls_;
  return cancelled_;
}

void SinkRecord::Destroyed() {
  {
    std::lock_guard lock(mutex_);
    destroyed_ = true;
    destroyed_unanswered_ = ends_ == 0;
    if (!destroyed_unanswered_) return;
  }
  End(std::nullopt, Error{ErrorCode::kInternal, "the sink was destroyed unanswered"});
}

}  // namespace seq2seq
