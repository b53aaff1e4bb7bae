// Which stream is to be sent next, and when: the rules of pacing and merging, without threads.
#ifndef SEQ2SEQ_BACKEND_TRITON_SEND_SCHEDULE_H_
#define SEQ2SEQ_BACKEND_TRITON_SEND_SCHEDULE_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "backend/core/status.h"
#include "backend/request/token_sink.h"
#include "backend/triton/outgoing_stream.h"

namespace seq2seq {

// A stream's first token makes it ready at once. After each send it cools for its interval; what
// comes meanwhile, or while it waits in the line, is merged into the next response, FINAL included.
// The end waits for that, but at most a second; an error does not wait. A stream that wants one
// response is ready only at its end. Streams with nothing to send are held by their sinks alone.
// The line is first come, first served. Append(), Finish() and Fail() don't allocate. Not
// thread-safe: the sender calls it under its lock.
class SendSchedule {
 public:
  // Each returns true if `stream` became ready, or will be earlier than it would have been. Calls
  // after a stream's end are ignored.
  bool Append(const std::shared_ptr<OutgoingStream>& stream, int32_t token, float logprob);
  bool Finish(const std::shared_ptr<OutgoingStream>& stream, FinishReason reason, int64_t now_ns);
  bool Fail(const std::shared_ptr<OutgoingStream>& stream, Error error, int64_t now_ns);

  // The stream that comes next, which is the caller's until OnSent(); null if none is ready by now.
  std::shared_ptr<OutgoingStream> TakeReady(int64_t now_ns);
  // Its batch was sent; `closed` if it was the last. Without memory the interval is left out.
  void OnSent(std::shared_ptr<OutgoingStream> stream, bool closed, int64_t now_ns);

  bool has_ready() const { return first_ready_ != nullptr; }
  // When the next interval is over; absent if no stream cools.
  std::optional<int64_t> next_due_ns() const;

 private:
  bool Rest(std::shared_ptr<OutgoingStream> stream);
  bool ShortenCooling(SendState& state, int64_t now_ns);
  void PushReady(std::shared_ptr<OutgoingStream> stream);

  std::shared_ptr<OutgoingStream> first_ready_;
  OutgoingStream* last_ready_ = nullptr;
  CoolingStreams cooling_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TRITON_SEND_SCHEDULE_H_
