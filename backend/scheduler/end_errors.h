// The errors with which requests end that are not served to their end.
#ifndef SEQ2SEQ_BACKEND_SCHEDULER_END_ERRORS_H_
#define SEQ2SEQ_BACKEND_SCHEDULER_END_ERRORS_H_

#include <cstdint>
#include <exception>
#include <string>

#include "backend/core/status.h"
#include "backend/request/request.h"

namespace seq2seq {

// The error with the text that `text()` returns, or, for want of memory, with one that needs none:
// a request must be failed even then.
template <typename Text>
Error ErrorWithText(ErrorCode code, Text text) noexcept {
  try {
    return {code, text()};
  } catch (const std::exception&) {
    return {code, "out of memory"};
  }
}

inline bool IsLate(const Request& request, int64_t now_ns) {
  return request.deadline_ns != 0 && now_ns >= request.deadline_ns;
}

inline Error CancelledError() {
  return ErrorWithText(ErrorCode::kCancelled,
                       [] { return std::string("the request was cancelled by its client"); });
}

// For a request whose deadline passed before it came into the running batch.
inline Error WaitedTooLongError(const Request& request, int64_t now_ns) {
  return ErrorWithText(ErrorCode::kUnavailable, [&] {
    return "the request waited " + std::to_string((now_ns - request.arrival_ns) / 1000) +
           " us without coming into the running batch; its timeout is " +
           std::to_string((request.deadline_ns - request.arrival_ns) / 1000) + " us";
  });
}

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_SCHEDULER_END_ERRORS_H_
