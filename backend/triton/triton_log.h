// Lines for the server's log.
#ifndef SEQ2SEQ_BACKEND_TRITON_TRITON_LOG_H_
#define SEQ2SEQ_BACKEND_TRITON_TRITON_LOG_H_

#include <source_location>
#include <string>

#include "backend/triton/triton_abi.h"

namespace seq2seq {

// Safe from any thread. For what an operator should know of, not for each request's fate.
void LogInfo(const std::string& text, std::source_location where = std::source_location::current());
void LogWarning(const std::string& text,
                std::source_location where = std::source_location::current());
void LogError(const std::string& text,
              std::source_location where = std::source_location::current());

// Takes an error of a call whose failure changes nothing for the caller; null is success.
void LogFailure(const char* what, TRITONSERVER_Error* error,
                std::source_location where = std::source_location::current()) noexcept;

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TRITON_TRITON_LOG_H_
