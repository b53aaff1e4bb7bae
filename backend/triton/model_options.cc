#include "backend/triton/model_options.h"

#include <charconv>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "backend/core/format.h"

namespace seq2seq {
namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxCpuThreads = 1024;

std::unexpected<Error> BadValue(std::string_view key, std::string_view value,
                                std::string_view allowed) {
  return InvalidArgument(
      Format("config.pbtxt: parameter '{}' is '{}'; allowed is {}", key, value, allowed));
}

Result<int64_t> ParseInteger(std::string_view key, std::string_view text, int64_t max) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, value);
  if (code != std::errc() || stop != end || value < 1 || value > max) {
    return BadValue(key, text, Format("an integer from 1 to {}", max));
  }
  return value;
}

// Stores a parameter's text in its field.
using Setter = std::function<Status(std::string_view key, std::string_view text, ModelOptions*)>;

template <typename Field>
Setter Integer(Field ModelOptions::* field, int64_t max) {
  return
      [field, max](std::string_view key, std::string_view text, ModelOptions* options) -> Status {
        SEQ2SEQ_ASSIGN_OR_RETURN(const int64_t value, ParseInteger(key, text, max));
        if constexpr (std::is_same_v<Field, std::optional<int64_t>>) {
          options->*field = value;
        } else {
          options->*field = static_cast<int32_t>(value);
        }
        return OkStatus();
      };
}

Status SetEngine(std::string_view key, std::string_view text, ModelOptions* options) {
  if (text == "auto") {
    options->engine = EngineChoice::kAuto;
  } else if (text == "cpu") {
    options->engine = EngineChoice::kCpu;
  } else if (text == "cuda") {
    options->engine = EngineChoice::kCuda;
  } else {
    return BadValue(key, text, "auto, cpu or cuda");
  }
  return OkStatus();
}

Status SetWeightsDType(std::string_view key, std::string_view text, ModelOptions* options) {
  options->weights_dtype = ParseDType(text);
  if (!options->weights_dtype) return BadValue(key, text, "float32, float16 or bfloat16");
  return OkStatus();
}

std::map<std::string, Setter, std::less<>> Setters() {
  return {
      {"engine", SetEngine},
      {"max_active_sequences", Integer(&ModelOptions::max_active_sequences, kMaxInt32)},
      {"max_queue_size", Integer(&ModelOptions::max_queue_size, kMaxInt32)},
      {"max_source_tokens", Integer(&ModelOptions::max_source_tokens, kMaxInt32)},
      {"max_new_tokens", Integer(&ModelOptions::max_new_tokens, kMaxInt32)},
      {"default_max_new_tokens", Integer(&ModelOptions::default_max_new_tokens, kMaxInt32)},
      {"kv_cache_bytes",
       Integer(&ModelOptions::kv_cache_bytes, std::numeric_limits<int64_t>::max())},
      {"weights_dtype", SetWeightsDType},
      {"cpu_threads", Integer(&ModelOptions::cpu_threads, kMaxCpuThreads)},
  };
}

std::string Names(const std::map<std::string, Setter, std::less<>>& setters) {
  std::string names;
  for (const auto& [name, setter] : setters) names += (names.empty() ? "" : ", ") + name;
  return names;
}

}  // namespace

Result<ModelOptions> ParseModelOptions(const nlohmann::json& config) {
  ModelOptions options;
  const auto parameters = config.find("parameters");
  if (parameters == config.end()) return options;
  if (!parameters->is_object()) {
    return InvalidArgument("model configuration: 'parameters' is not an object");
  }
  const auto setters = Setters();
  for (const auto& [key, value] : parameters->items()) {
    const auto setter = setters.find(key);
    if (setter == setters.end()) {
      return InvalidArgument(
          Format("config.pbtxt: unknown parameter '{}'; allowed are {}", key, Names(setters)));
    }
    const auto text = value.is_object() ? value.find("string_value") : value.end();
    if (text == value.end() || !text->is_string()) {
      return InvalidArgument(Format("config.pbtxt: parameter '{}' has no string_value", key));
    }
    SEQ2SEQ_RETURN_IF_ERROR(setter->second(key, text->get_ref<const std::string&>(), &options));
  }
  return options;
}

}  // namespace seq2seq
