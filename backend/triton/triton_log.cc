#include "backend/triton/triton_log.h"

#include "backend/triton/triton_abi.h"

namespace seq2seq {
namespace {

void Log(TRITONSERVER_LogLevel level, const std::string& text, const std::source_location& where) {
  const std::string line = "seq2seq: " + text;
  TRITONSERVER_Error* error = TRITONSERVER_LogMessage(level, where.file_name(),
                                                      static_cast<int>(where.line()), line.c_str());
  if (error != nullptr) TRITONSERVER_ErrorDelete(error);
}

}  // namespace

void LogInfo(const std::string& text, std::source_location where) {
  Log(TRITONSERVER_LOG_INFO, text, where);
}

void LogWarning(const std::string& text, std::source_location where) {
  Log(TRITONSERVER_LOG_WARN, text, where);
}

void LogError(const std::string& text, std::source_location where) {
  Log(TRITONSERVER_LOG_ERROR, text, where);
}

}  // namespace seq2seq
