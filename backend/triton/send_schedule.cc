#include "backend/triton/send_schedule.h"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "backend/core/format.h"

namespace seq2seq {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// What is over waits no longer than this, however long the interval: until FINAL is sent the
// request holds its model, which a server that wants to end or to unload waits for.
constexpr int64_t kLongestFinalWaitNs = 1'000'000'000;

bool HasSomethingToSend(OutgoingStream& stream) {
  const SendState& state = stream.state();
  if (state.end != StreamEnd::kOpen) return true;
  return stream.settings().stream && state.appended > state.taken;
}

bool IsOver(OutgoingStream& stream) {
  return stream.state().end != StreamEnd::kOpen || stream.state().place == SendPlace::kClosed;
}

}  // namespace

bool SendSchedule::Append(const std::shared_ptr<OutgoingStream>& stream, int32_t token,
                          float logprob) {
  if (IsOver(*stream)) return false;
  if (!stream->Append(token, logprob)) {
    return Fail(stream,
                Error{ErrorCode::kInternal,
                      Format("more than {} tokens came", stream->settings().max_new_tokens)},
                0);
  }
  return stream->state().place == SendPlace::kIdle && Rest(stream);
}

bool SendSchedule::Finish(const std::shared_ptr<OutgoingStream>& stream, FinishReason reason,
                          int64_t now_ns) {
  if (IsOver(*stream)) return false;
  SendState& state = stream->state();
  state.end = StreamEnd::kFinished;
  state.reason = reason;
  state.ended_ns = now_ns;
  if (state.place == SendPlace::kCooling) return ShortenCooling(state, now_ns);
  return state.place == SendPlace::kIdle && Rest(stream);
}

// True if the stream is due earlier than it was.
bool SendSchedule::ShortenCooling(SendState& state, int64_t now_ns) {
  if (state.cooling->first - now_ns <= kLongestFinalWaitNs) return false;
  CoolingStreams::node_type node = cooling_.extract(state.cooling);
  node.key() = now_ns + kLongestFinalWaitNs;
  state.cooling = cooling_.insert(std::move(node));
  return true;
}

bool SendSchedule::Fail(const std::shared_ptr<OutgoingStream>& stream, Error error,
                        int64_t now_ns) {
  if (IsOver(*stream)) return false;
  SendState& state = stream->state();
  state.end = StreamEnd::kFailed;
  state.error = std::move(error);
  state.ended_ns = now_ns;
  if (state.place == SendPlace::kCooling) {
    cooling_.erase(state.cooling);
    state.place = SendPlace::kIdle;
  }
  return state.place == SendPlace::kIdle && Rest(stream);
}

// Puts a stream that is in no place where it belongs; true if that is the line.
bool SendSchedule::Rest(std::shared_ptr<OutgoingStream> stream) {
  if (!HasSomethingToSend(*stream)) {
    stream->state().place = SendPlace::kIdle;
    return false;
  }
  PushReady(std::move(stream));
  return true;
}

void SendSchedule::PushReady(std::shared_ptr<OutgoingStream> stream) {
  stream->state().place = SendPlace::kReady;
  OutgoingStream* const raw = stream.get();
  (last_ready_ != nullptr ? last_ready_->state().next : first_ready_) = std::move(stream);
  last_ready_ = raw;
}

std::shared_ptr<OutgoingStream> SendSchedule::TakeReady(int64_t now_ns) {
  while (!cooling_.empty() && cooling_.begin()->first <= now_ns) {
    Rest(std::move(cooling_.extract(cooling_.begin()).mapped()));
  }
  if (first_ready_ == nullptr) return nullptr;
  std::shared_ptr<OutgoingStream> stream = std::move(first_ready_);
  first_ready_ = std::move(stream->state().next);
  if (first_ready_ == nullptr) last_ready_ = nullptr;
  stream->state().place = SendPlace::kSending;
  return stream;
}

void SendSchedule::OnSent(std::shared_ptr<OutgoingStream> stream, bool closed, int64_t now_ns) {
  SendState& state = stream->state();
  int64_t interval_ns = stream->settings().interval_ns;
  if (state.end == StreamEnd::kFinished) interval_ns = std::min(interval_ns, kLongestFinalWaitNs);
  if (closed) {
    state.place = SendPlace::kClosed;
  } else if (state.end == StreamEnd::kFailed || interval_ns <= 0) {
    Rest(std::move(stream));
  } else {
    const int64_t due_ns = interval_ns < kNever - now_ns ? now_ns + interval_ns : kNever;
    try {
      state.cooling = cooling_.emplace(due_ns, stream);
      state.place = SendPlace::kCooling;
    } catch (const std::bad_alloc&) {
      Rest(std::move(stream));
    }
  }
}

std::optional<int64_t> SendSchedule::next_due_ns() const {
  if (cooling_.empty()) return std::nullopt;
  return cooling_.begin()->first;
}

}  // namespace seq2seq
