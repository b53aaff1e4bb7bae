#include "backend/triton/response_writer.h"

#include <cstring>
#include <utility>

#include "backend/core/format.h"
#include "backend/triton/error_translation.h"
#include "backend/triton/model_config.h"
#include "backend/triton/triton_log.h"

namespace seq2seq {
namespace {

const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEos:
      return "eos";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kTimeout:
      return "timeout";
  }
  return "unknown";
}

Status SetParameters(TRITONBACKEND_Response* response, const FinalNote& note) {
  SEQ2SEQ_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ResponseSetStringParameter(
      response, "finish_reason", FinishReasonName(note.reason))));
  SEQ2SEQ_RETURN_IF_ERROR(ToStatus(
      TRITONBACKEND_ResponseSetIntParameter(response, "prompt_tokens", note.prompt_tokens)));
  SEQ2SEQ_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ResponseSetIntParameter(
      response, "completion_tokens", note.completion_tokens)));
  if (!note.seed) return OkStatus();
  return ToStatus(
      TRITONBACKEND_ResponseSetIntParameter(response, "seed", static_cast<int64_t>(*note.seed)));
}

Result<ResponseHandle> NewResponse(TRITONBACKEND_ResponseFactory* factory) {
  TRITONBACKEND_Response* response = nullptr;
  SEQ2SEQ_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ResponseNewFromFactory(&response, factory)));
  return ResponseHandle(response);
}

}  // namespace

Result<std::unique_ptr<ResponseWriter>> ResponseWriter::Open(
    TRITONBACKEND_Request* request, std::shared_ptr<InstanceAccount> account) {
  TRITONBACKEND_ResponseFactory* factory = nullptr;
  SEQ2SEQ_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ResponseFactoryNew(&factory, request)));
  ResponseFactoryHandle owned(factory);
  return std::unique_ptr<ResponseWriter>(
      new ResponseWriter(request, std::move(owned), std::move(account)));
}

Status ResponseWriter::AddOutput(TRITONBACKEND_Response* response, const char* name,
                                 TRITONSERVER_DataType type, std::span<const std::byte> bytes,
                                 int64_t elements) {
  TRITONBACKEND_Output* output = nullptr;
  SEQ2SEQ_RETURN_IF_ERROR(
      ToStatus(TRITONBACKEND_ResponseOutput(response, &output, name, type, &elements, 1)));
  void* buffer = nullptr;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  int64_t memory_id = 0;
  SEQ2SEQ_RETURN_IF_ERROR(
      ToStatus(TRITONBACKEND_OutputBuffer(output, &buffer, bytes.size(), &memory, &memory_id)));
  if (bytes.empty()) return OkStatus();
  if (buffer == nullptr) return Internal(Format("no buffer for output '{}'", name));
  if (memory == TRITONSERVER_MEMORY_GPU) {
    return account_->CopyToDevice(buffer, bytes.data(), bytes.size(), memory_id);
  }
  std::memcpy(buffer, bytes.data(), bytes.size());
  return OkStatus();
}

Status ResponseWriter::SendTokens(std::span<const int32_t> ids, std::span<const float> logprobs,
                                  const RequestedOutputs& outputs, const FinalNote* note) {
  SEQ2SEQ_ASSIGN_OR_RETURN(unsent_, NewResponse(factory_.get()));
  if (outputs.output_ids) {
    SEQ2SEQ_RETURN_IF_ERROR(AddOutput(unsent_.get(), kOutputIds.data(), TRITONSERVER_TYPE_INT32,
                                      std::as_bytes(ids), static_cast<int64_t>(ids.size())));
  }
  if (outputs.logprobs) {
    SEQ2SEQ_RETURN_IF_ERROR(AddOutput(unsent_.get(), kLogprobs.data(), TRITONSERVER_TYPE_FP32,
                                      std::as_bytes(logprobs),
                                      static_cast<int64_t>(logprobs.size())));
  }
  if (note != nullptr) SEQ2SEQ_RETURN_IF_ERROR(SetParameters(unsent_.get(), *note));
  if (note == nullptr) return ToStatus(TRITONBACKEND_ResponseSend(unsent_.release(), 0, nullptr));
  LogFailure(
      "sending a FINAL response",
      TRITONBACKEND_ResponseSend(unsent_.release(), TRITONSERVER_RESPONSE_COMPLETE_FINAL, nullptr));
  return OkStatus();
}

Status ResponseWriter::SendErrorResponse(const Error& error) {
  const ErrorHandle translated = ToTriton(error);
  if (unsent_ == nullptr) {
    SEQ2SEQ_ASSIGN_OR_RETURN(unsent_, NewResponse(factory_.get()));
  }
  LogFailure("sending a FINAL error",
             TRITONBACKEND_ResponseSend(unsent_.release(), TRITONSERVER_RESPONSE_COMPLETE_FINAL,
                                        translated.get()));
  return OkStatus();
}

void ResponseWriter::SendError(const Error& error) noexcept {
  Status made;
  try {
    made = SendErrorResponse(error);
  } catch (...) {
    // Out of memory, before anything was sent.
    made = std::unexpected(Error{});
  }
  if (made) return;
  const ErrorHandle failed(
      TRITONBACKEND_ResponseFactorySendFlags(factory_.get(), TRITONSERVER_RESPONSE_COMPLETE_FINAL));
}

void ResponseWriter::Close(RequestOutcome outcome, const RequestTimes& times) {
  account_->Report(request_, outcome, times);
  LogFailure("RequestRelease",
             TRITONBACKEND_RequestRelease(request_, TRITONSERVER_REQUEST_RELEASE_ALL));
  ResponseFactoryHandle factory;
  {
    std::lock_guard lock(factory_mutex_);
    factory = std::move(factory_);
  }
}

bool ResponseWriter::IsCancelled() {
  if (cancelled_) return true;
  std::lock_guard lock(factory_mutex_);
  bool cancelled = true;
  if (factory_ != nullptr) {
    const ErrorHandle failed(TRITONBACKEND_ResponseFactoryIsCancelled(factory_.get(), &cancelled));
    if (failed != nullptr) cancelled = false;
  }
  if (cancelled) cancelled_ = true;
  return cancelled;
}

}  // namespace seq2seq
