#include "backend/core/status.h"

namespace seq2seq {

std::string_view ErrorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "INVALID_ARG";
    case ErrorCode::kUnavailable:
      return "UNAVAILABLE";
    case ErrorCode::kCancelled:
      return "CANCELLED";
    case ErrorCode::kInternal:
      return "INTERNAL";
    case ErrorCode::kUnsupported:
      return "UNSUPPORTED";
    case ErrorCode::kNotFound:
      return "NOT_FOUND";
  }
  return "UNKNOWN";
}

}  // namespace seq2seq
