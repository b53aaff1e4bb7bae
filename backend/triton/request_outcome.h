// How a request ended, for the counters.
#ifndef SEQ2SEQ_BACKEND_TRITON_REQUEST_OUTCOME_H_
#define SEQ2SEQ_BACKEND_TRITON_REQUEST_OUTCOME_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "backend/core/status.h"

namespace seq2seq {

enum class RequestOutcome : uint8_t { kOk, kTimeout, kInvalid, kRefused, kCancelled, kFailed };

// Label values, in the order of the enumerators.
inline constexpr std::array<const char*, 6> kOutcomeNames = {"ok",      "timeout",   "invalid",
                                                             "refused", "cancelled", "failed"};

// Of a request that failed with `code`. `late`: its deadline had passed, so that kUnavailable means
// that it waited too long (timeout) and not that it was refused.
constexpr RequestOutcome OutcomeOfError(ErrorCode code, bool late) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupported:
      return RequestOutcome::kInvalid;
    case ErrorCode::kUnavailable:
      return late ? RequestOutcome::kTimeout : RequestOutcome::kRefused;
    case ErrorCode::kCancelled:
      return RequestOutcome::kCancelled;
    case ErrorCode::kInternal:
    case ErrorCode::kNotFound:
      return RequestOutcome::kFailed;
  }
  return RequestOutcome::kFailed;
}

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TRITON_REQUEST_OUTCOME_H_
