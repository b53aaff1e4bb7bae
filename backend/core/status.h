// The one error vocabulary of the backend.
//
// Every fallible function returns Status (no value) or Result<T>. Nothing in the backend throws;
// exceptions of third-party code are caught where that code is called and become an Error there.
// One translator (backend/triton/error_translation.h) turns an Error into what Triton sends.
//
//   Result<int> Parse(std::string_view text) {
//     if (text.empty()) return InvalidArgument("option 'top_k' is empty");
//     ...
//   }
#ifndef SEQ2SEQ_BACKEND_CORE_STATUS_H_
#define SEQ2SEQ_BACKEND_CORE_STATUS_H_

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace seq2seq {

enum class ErrorCode : uint8_t {
  kInvalidArgument,  // the request, config or file is wrong: repeating it can't help
  kUnavailable,      // refused for now: queue full, waited too long, unhealthy or stopping instance
  kCancelled,        // the client asked for the end or went away
  kInternal,         // our fault or the device's
  kUnsupported,      // right in itself, but not offered by this build or machine
  kNotFound,         // a file or tensor that must be there is not
};

// The code's name as clients read it: "INVALID_ARG", "UNAVAILABLE", "CANCELLED", ...
std::string_view ErrorCodeName(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;  // says what was wrong, what is allowed, and where

  friend bool operator==(const Error&, const Error&) = default;
};

template <typename T>
using Result = std::expected<T, Error>;
using Status = Result<void>;

inline Status OkStatus() { return {}; }

inline std::unexpected<Error> MakeError(ErrorCode code, std::string message) {
  return std::unexpected(Error{code, std::move(message)});
}
inline std::unexpected<Error> InvalidArgument(std::string message) {
  return MakeError(ErrorCode::kInvalidArgument, std::move(message));
}
inline std::unexpected<Error> Unavailable(std::string message) {
  return MakeError(ErrorCode::kUnavailable, std::move(message));
}
inline std::unexpected<Error> Cancelled(std::string message) {
  return MakeError(ErrorCode::kCancelled, std::move(message));
}
inline std::unexpected<Error> Internal(std::string message) {
  return MakeError(ErrorCode::kInternal, std::move(message));
}
inline std::unexpected<Error> Unsupported(std::string message) {
  return MakeError(ErrorCode::kUnsupported, std::move(message));
}
inline std::unexpected<Error> NotFound(std::string message) {
  return MakeError(ErrorCode::kNotFound, std::move(message));
}

}  // namespace seq2seq

#define SEQ2SEQ_CONCAT_INNER_(a, b) a##b
#define SEQ2SEQ_CONCAT_(a, b) SEQ2SEQ_CONCAT_INNER_(a, b)

// Leaves the calling function with the error, if `expr` (a Status or Result) holds one.
#define SEQ2SEQ_RETURN_IF_ERROR(expr)                             \
  do {                                                            \
    if (auto seq2seq_status_ = (expr); !seq2seq_status_)          \
      return std::unexpected(std::move(seq2seq_status_).error()); \
  } while (false)

// SEQ2SEQ_ASSIGN_OR_RETURN(auto x, F()): x takes F()'s value, or the calling function takes its
// error.
#define SEQ2SEQ_ASSIGN_OR_RETURN(lhs, expr) \
  SEQ2SEQ_ASSIGN_OR_RETURN_IMPL_(SEQ2SEQ_CONCAT_(seq2seq_result_, __LINE__), lhs, expr)
#define SEQ2SEQ_ASSIGN_OR_RETURN_IMPL_(result, lhs, expr)         \
  auto result = (expr);                                           \
  if (!result) return std::unexpected(std::move(result).error()); \
  lhs = *std::move(result)

#endif  // SEQ2SEQ_BACKEND_CORE_STATUS_H_
