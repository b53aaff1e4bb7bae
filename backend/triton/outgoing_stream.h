// One request's answer on its way out: tokens that wait, and where it stands in the sender's
// schedule.
#ifndef SEQ2SEQ_BACKEND_TRITON_OUTGOING_STREAM_H_
#define SEQ2SEQ_BACKEND_TRITON_OUTGOING_STREAM_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "backend/core/clock.h"
#include "backend/core/status.h"
#include "backend/request/token_sink.h"
#include "backend/triton/response_writer.h"

namespace seq2seq {

class OutgoingStream;

// How a request wants to be answered.
struct StreamSettings {
  RequestedOutputs outputs;
  int32_t max_new_tokens = 0;
  bool stream = true;       // false: one response with everything
  int64_t interval_ns = 0;  // least time from the end of one send to the next
  bool return_logprobs = false;
  int64_t prompt_tokens = 0;
  std::optional<uint64_t> seed;  // where sampled
  int64_t deadline_ns = 0;       // 0: none
};

// The one place where a stream is.
enum class SendPlace : uint8_t {
  kIdle,     // nothing to send
  kReady,    // in the line for a sender thread
  kCooling,  // its interval is not over
  kSending,  // a sender thread has it
  kClosed,   // given back to Triton
};

enum class StreamEnd : uint8_t { kOpen, kFinished, kFailed };

using CoolingStreams = std::multimap<int64_t, std::shared_ptr<OutgoingStream>>;  // by due time

// Guarded by the lock of the sender.
struct SendState {
  SendPlace place = SendPlace::kIdle;
  StreamEnd end = StreamEnd::kOpen;
  FinishReason reason = FinishReason::kLength;  // if finished
  Error error;                                  // if failed
  int64_t ended_ns = 0;
  int32_t appended = 0;                  // tokens that came
  int32_t taken = 0;                     // of these, by a sender thread
  std::shared_ptr<OutgoingStream> next;  // in the line, if kReady
  CoolingStreams::iterator cooling;      // if kCooling
};

// What a sender thread takes along.
struct SendBatch {
  int32_t first = 0;  // tokens [first, end_token)
  int32_t end_token = 0;
  StreamEnd end = StreamEnd::kOpen;
  FinishReason reason = FinishReason::kLength;
  Error error;
  int64_t ended_ns = 0;
};

// Tokens are written to memory reserved by Configure(), so that Append() neither allocates nor
// moves what a sender thread reads beside it.
class OutgoingStream {
 public:
  OutgoingStream(std::unique_ptr<ResponseWriter> writer, int64_t arrival_ns)
      : writer_(std::move(writer)), arrival_ns_(arrival_ns) {}

  // Once, before the first token; not needed for a stream that only fails.
  void Configure(const StreamSettings& settings);

  const StreamSettings& settings() const { return settings_; }
  SendState& state() { return state_; }

  // With the sender's lock held. False if max_new_tokens have come already.
  bool Append(int32_t token, float logprob);
  SendBatch TakeBatch();

  // Without it, by the one sender thread that has the stream. Writes `batch` to Triton; true if
  // that was the end, planned or not. Exceptions of third-party code end the stream.
  bool Deliver(const SendBatch& batch, const Clock& clock) noexcept;

  // From any thread.
  bool IsCancelled() { return writer_->IsCancelled(); }

 private:
  Status SendTokens(const SendBatch& batch);
  void Close(RequestOutcome outcome, int64_t computed_ns, const Clock& clock);

  const std::unique_ptr<ResponseWriter> writer_;
  const int64_t arrival_ns_;
  StreamSettings settings_;
  std::unique_ptr<int32_t[]> tokens_;  // [max_new_tokens]
  std::unique_ptr<float[]> logprobs_;  // likewise, null unless asked for
  SendState state_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TRITON_OUTGOING_STREAM_H_
