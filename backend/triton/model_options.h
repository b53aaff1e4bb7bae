// The `parameters` of config.pbtxt, as a struct.
#ifndef SEQ2SEQ_BACKEND_TRITON_MODEL_OPTIONS_H_
#define SEQ2SEQ_BACKEND_TRITON_MODEL_OPTIONS_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "backend/core/dtype.h"
#include "backend/core/status.h"

namespace seq2seq {

enum class EngineChoice : uint8_t { kAuto, kCpu, kCuda };

// Absent values have defaults that depend on the model or on the engine (see
// request_policy_builder.h and instance_options.h).
struct ModelOptions {
  EngineChoice engine = EngineChoice::kAuto;
  std::optional<int32_t> max_active_sequences;    // >= 1
  int32_t max_queue_size = 512;                   // >= 1
  std::optional<int32_t> max_source_tokens;       // >= 1
  std::optional<int32_t> max_new_tokens;          // >= 1
  std::optional<int32_t> default_max_new_tokens;  // >= 1
  std::optional<int64_t> kv_cache_bytes;          // >= 1
  std::optional<DType> weights_dtype;             // absent: as stored
  std::optional<int32_t> cpu_threads;             // 1 .. 1024
};

// Reads `parameters` of a model configuration in Triton's JSON form. An unknown name or a value
// that is not allowed is kInvalidArgument, naming key, value and what is allowed.
[[nodiscard]] Result<ModelOptions> ParseModelOptions(const nlohmann::json& config);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TRITON_MODEL_OPTIONS_H_
