// Where a request's tokens go. Implemented by triton/response_stream and testing/recording_sink.
#ifndef SEQ2SEQ_BACKEND_REQUEST_TOKEN_SINK_H_
#define SEQ2SEQ_BACKEND_REQUEST_TOKEN_SINK_H_

#include <cstdint>

#include "backend/core/status.h"

namespace seq2seq {

enum class FinishReason : uint8_t { kEos, kLength, kStop, kTimeout };

// The receiving end of one request. Whoever holds the unique_ptr answers for the request.
//
// A sink gets any number of Append() calls and then exactly one AppendLast(), Finish() or Fail();
// calls after that are ignored. A sink destroyed without either fails itself with kInternal, so
// that no path, however odd, leaves a client waiting. None of the calls blocks on the reader or
// does I/O in the caller's thread, and Append() does not allocate. Threads: one caller at a time
// (the queue and the scheduler hand the sink over, they don't share it).
class TokenSink {
 public:
  virtual ~TokenSink() = default;

  // One new token. `logprob` is its log-probability; meaningful only if the request asked for it.
  virtual void Append(int32_t token, float logprob) = 0;

  // The end of a request that was served; tokens appended before are delivered first.
  virtual void Finish(FinishReason reason) = 0;

  // The last token and the end at once: what Append() and Finish() do, for receivers that would
  // otherwise have sent the token before they heard of the end.
  virtual void AppendLast(int32_t token, float logprob, FinishReason reason) {
    Append(token, logprob);
    Finish(reason);
  }

  // The end of a request that was not. Tokens still waiting to be sent may be dropped.
  virtual void Fail(Error error) = 0;

  // True once the client has cancelled or gone away. Cheap enough to be asked every step.
  virtual bool IsCancelled() = 0;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_REQUEST_TOKEN_SINK_H_
