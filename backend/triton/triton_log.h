// Lines for the server's log.
#ifndef SEQ2SEQ_BACKEND_TRITON_TRITON_LOG_H_
#define SEQ2SEQ_BACKEND_TRITON_TRITON_LOG_H_

#include <source_location>
#include <string>

namespace seq2seq {

// Safe from any thread. For what an operator should know of, not for each request's fate.
void LogInfo(const std::string& text, std::source_location where = std::source_location::current());
void LogWarning(const std::string& text,
                std::source_location where = std::source_location::current());
void LogError(const std::string& text,
              std::source_location where = std::source_location::current());

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TRITON_TRITON_LOG_H_
