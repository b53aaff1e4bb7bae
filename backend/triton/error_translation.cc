#include "backend/triton/error_translation.h"

#include <cstddef>
#include <string>

#include "backend/core/utf8.h"

namespace seq2seq {
namespace {

// A text may quote what a file or a client wrote; no reader wants more of it.
constexpr size_t kMaxTextBytes = 4096;

TRITONSERVER_Error_Code ToTritonCode(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return TRITONSERVER_ERROR_INVALID_ARG;
    case ErrorCode::kUnavailable:
      return TRITONSERVER_ERROR_UNAVAILABLE;
    case ErrorCode::kCancelled:
      return TRITONSERVER_ERROR_CANCELLED;
    case ErrorCode::kInternal:
      return TRITONSERVER_ERROR_INTERNAL;
    case ErrorCode::kUnsupported:
      return TRITONSERVER_ERROR_UNSUPPORTED;
    case ErrorCode::kNotFound:
      return TRITONSERVER_ERROR_NOT_FOUND;
  }
  return TRITONSERVER_ERROR_UNKNOWN;
}

ErrorCode FromTritonCode(TRITONSERVER_Error_Code code) {
  switch (code) {
    case TRITONSERVER_ERROR_INVALID_ARG:
    case TRITONSERVER_ERROR_ALREADY_EXISTS:
      return ErrorCode::kInvalidArgument;
    case TRITONSERVER_ERROR_UNAVAILABLE:
      return ErrorCode::kUnavailable;
    case TRITONSERVER_ERROR_CANCELLED:
      return ErrorCode::kCancelled;
    case TRITONSERVER_ERROR_UNSUPPORTED:
      return ErrorCode::kUnsupported;
    case TRITONSERVER_ERROR_NOT_FOUND:
      return ErrorCode::kNotFound;
    case TRITONSERVER_ERROR_INTERNAL:
    case TRITONSERVER_ERROR_UNKNOWN:
      return ErrorCode::kInternal;
  }
  return ErrorCode::kInternal;
}

}  // namespace

ErrorHandle ToTriton(const Error& error) {
  const std::string text =
      std::string(ErrorCodeName(error.code)) + ": " + ValidUtf8(error.message, kMaxTextBytes);
  return ErrorHandle(TRITONSERVER_ErrorNew(ToTritonCode(error.code), text.c_str()));
}

Error TakeError(TRITONSERVER_Error* error) {
  const ErrorHandle owned(error);
  const char* text = TRITONSERVER_ErrorMessage(error);
  return Error{FromTritonCode(TRITONSERVER_ErrorCode(error)),
               text == nullptr ? "Triton gave no reason" : text};
}

Status ToStatus(TRITONSERVER_Error* error) {
  if (error == nullptr) return OkStatus();
  return std::unexpected(TakeError(error));
}

}  // namespace seq2seq
