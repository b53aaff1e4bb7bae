// The sink of a request that came from Triton.
#ifndef SEQ2SEQ_BACKEND_TRITON_RESPONSE_STREAM_H_
#define SEQ2SEQ_BACKEND_TRITON_RESPONSE_STREAM_H_

#include <memory>
#include <utility>

#include "backend/request/token_sink.h"
#include "backend/triton/outgoing_stream.h"
#include "backend/triton/response_sender.h"

namespace seq2seq {

// A handle on an OutgoingStream: its calls are passed to the sender, which outlives it. Whatever
// happens, the request gets exactly one FINAL and nothing after it, and is then given back to
// Triton: by the sender's threads, possibly after this handle is gone. A request that can't be
// answered as planned (a buffer is refused, a send fails) ends with an error of its own and then
// counts as cancelled, so that its sequence leaves the batch.
class ResponseStream final : public TokenSink {
 public:
  ResponseStream(std::shared_ptr<OutgoingStream> stream, ResponseSender* sender)
      : stream_(std::move(stream)), sender_(sender) {}
  ~ResponseStream() override { sender_->Abandon(stream_); }
  ResponseStream(const ResponseStream&) = delete;
  ResponseStream& operator=(const ResponseStream&) = delete;

  void Append(int32_t token, float logprob) override { sender_->Append(stream_, token, logprob); }
  void AppendLast(int32_t token, float logprob, FinishReason reason) override {
    sender_->AppendLast(stream_, token, logprob, reason);
  }
  void Finish(FinishReason reason) override { sender_->Finish(stream_, reason); }
  void Fail(Error error) override { sender_->Fail(stream_, std::move(error)); }
  bool IsCancelled() override { return stream_->IsCancelled(); }

 private:
  const std::shared_ptr<OutgoingStream> stream_;
  ResponseSender* const sender_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TRITON_RESPONSE_STREAM_H_
