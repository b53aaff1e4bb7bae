// Writes one request's responses to Triton and gives the request back: all response calls are here.
#ifndef SEQ2SEQ_BACKEND_TRITON_RESPONSE_WRITER_H_
#define SEQ2SEQ_BACKEND_TRITON_RESPONSE_WRITER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "backend/core/status.h"
#include "backend/request/token_sink.h"
#include "backend/triton/instance_account.h"
#include "backend/triton/request_outcome.h"
#include "backend/triton/triton_handles.h"

namespace seq2seq {

// Which outputs the client asked for.
struct RequestedOutputs {
  bool output_ids = false;
  bool logprobs = false;
};

// What the last response of a served request says.
struct FinalNote {
  FinishReason reason = FinishReason::kLength;
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  std::optional<uint64_t> seed;  // where sampled
};

// Order of calls: any number of SendTokens(), of which the last has a FinalNote, or a SendError();
// then Close(). One thread at a time makes them; IsCancelled() is safe beside them from any thread.
// A FINAL counts as sent once Triton was asked to send it, whatever Triton answers: repeating one
// that did arrive would take the server down.
class ResponseWriter {
 public:
  // Opens the response factory of `request`, which stays Triton's if this fails, and also if the
  // writer is destroyed before SendTokens(), SendError() and Close().
  [[nodiscard]] static Result<std::unique_ptr<ResponseWriter>> Open(
      TRITONBACKEND_Request* request, std::shared_ptr<InstanceAccount> account);

  // Sends new tokens (any number), and with `note` FINAL. `logprobs` is empty, or has a value for
  // each of `ids`. With an error nothing has been sent, and SendError() is the way to end.
  [[nodiscard]] Status SendTokens(std::span<const int32_t> ids, std::span<const float> logprobs,
                                  const RequestedOutputs& outputs, const FinalNote* note);

  // Sends `error` with FINAL; where that can't be made, a bare FINAL.
  void SendError(const Error& error) noexcept;

  // Reports statistics, releases the request and deletes the factory, in this order.
  void Close(RequestOutcome outcome, const RequestTimes& times);

  // True once the client has cancelled or gone away, and after Close().
  bool IsCancelled();

 private:
  ResponseWriter(TRITONBACKEND_Request* request, ResponseFactoryHandle factory,
                 std::shared_ptr<InstanceAccount> account)
      : request_(request), account_(std::move(account)), factory_(std::move(factory)) {}

  Status SendErrorResponse(const Error& error);
  Status AddOutput(TRITONBACKEND_Response* response, const char* name, TRITONSERVER_DataType type,
                   std::span<const std::byte> bytes, int64_t elements);

  TRITONBACKEND_Request* request_;
  const std::shared_ptr<InstanceAccount> account_;
  std::mutex factory_mutex_;  // IsCancelled() against Close()
  ResponseFactoryHandle factory_;
  // What could not be filled: SendError() sends it. A gRPC stream waits for every response that was
  // made, so that it would never end after one that is deleted.
  ResponseHandle unsent_;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TRITON_RESPONSE_WRITER_H_
