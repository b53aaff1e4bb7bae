#include "backend/model/json_object.h"

#include <cmath>
#include <exception>
#include <set>
#include <utility>
#include <vector>

#include "backend/core/format.h"
#include "backend/model/file_mapping.h"

namespace seq2seq {
namespace {

constexpr int kMaxDepth = 64;
constexpr size_t kMaxShownBytes = 80;

// Watches a parse for what nlohmann's own parser lets pass.
struct ParseWatch {
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  std::string repeated_key;
  bool has_repeated_key = false;
  bool too_deep = false;

  // A false answer keeps the value out of the document, so that its depth stays bounded.
  bool operator()(int depth, nlohmann::json::parse_event_t event, const nlohmann::json& value) {
    using Event = nlohmann::json::parse_event_t;
    switch (event) {
      case Event::object_start:
        keys.emplace_back();
        break;
      case Event::object_end:
        if (!keys.empty()) keys.pop_back();
        break;
      case Event::key: {
        const auto& key = value.get_ref<const std::string&>();
        if (!keys.empty() && !keys.back().insert(key).second && !has_repeated_key) {
          repeated_key = key;
          has_repeated_key = true;
        }
        break;
      }
      case Event::array_start:
      case Event::array_end:
      case Event::value:
        break;
    }
    const bool opens = event == Event::object_start || event == Event::array_start;
    if (opens && depth >= kMaxDepth) too_deep = true;
    return !too_deep;
  }
};

}  // namespace

std::string ShortJson(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > kMaxShownBytes) {
    text.resize(kMaxShownBytes);
    text += "...";
  }
  return text;
}

Result<JsonObject> JsonObject::ReadFile(const std::filesystem::path& path, size_t max_bytes) {
  SEQ2SEQ_ASSIGN_OR_RETURN(const FileMapping file, FileMapping::Open(path));
  if (file.bytes().size() > max_bytes) {
    return InvalidArgument(Format("{}: is {} bytes long; at most {} are allowed", path.string(),
                                  file.bytes().size(), max_bytes));
  }
  const auto* text = reinterpret_cast<const char*>(file.bytes().data());
  return Parse(std::string_view(text, file.bytes().size()), path.string());
}

Result<JsonObject> JsonObject::Parse(std::string_view text, std::string source) {
  ParseWatch watch;
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(
        text.begin(), text.end(),
        [&watch](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
          return watch(depth, event, value);
        });
  } catch (const std::exception& error) {
    return InvalidArgument(Format("{}: not valid JSON: {}", source, error.what()));
  }
  if (watch.too_deep) {
    return InvalidArgument(
        Format("{}: JSON nested deeper than the {} levels allowed", source, kMaxDepth));
  }
  if (watch.has_repeated_key) {
    return InvalidArgument(Format("{}: key '{}' appears twice in one object; once is allowed",
                                  source, watch.repeated_key));
  }
  if (!json.is_object()) {
    return InvalidArgument(
        Format("{}: holds {}; a JSON object is needed", source, ShortJson(json)));
  }
  return JsonObject(std::move(json), std::move(source));
}

const nlohmann::json* JsonObject::Find(std::string_view key) const {
  const auto found = json_.find(key);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

std::unexpected<Error> JsonObject::BadValue(std::string_view key, std::string_view allowed) const {
  const nlohmann::json* value = Find(key);
  return InvalidArgument(Format("{}: key '{}' is {}; {}", source_, key,
                                value == nullptr ? "absent" : ShortJson(*value), allowed));
}

Result<std::optional<int64_t>> JsonObject::Int(std::string_view key, IntRange range) const {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  // Unsigned values above the signed range would wrap in get<int64_t>().
  const bool fits = value->is_number_unsigned()
                        ? value->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX)
                        : value->is_number_integer();
  if (!fits || value->get<int64_t>() < range.low || value->get<int64_t>() > range.high) {
    return BadValue(key, Format("an integer in [{}, {}] is allowed", range.low, range.high));
  }
  return value->get<int64_t>();
}

Result<int64_t> JsonObject::RequiredInt(std::string_view key, IntRange range) const {
  SEQ2SEQ_ASSIGN_OR_RETURN(const std::optional<int64_t> value, Int(key, range));
  if (!value) {
    return BadValue(key, Format("an integer in [{}, {}] is needed", range.low, range.high));
  }
  return *value;
}

Result<std::optional<double>> JsonObject::Real(std::string_view key, RealRange range) const {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  const bool above = range.low_open ? number > range.low : number >= range.low;
  if (!above || !(number <= range.high)) {
    return BadValue(key, Format("a number in {}{}, {}] is allowed", range.low_open ? '(' : '[',
                                range.low, range.high));
  }
  return number;
}

Result<std::optional<bool>> JsonObject::Bool(std::string_view key) const {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) return BadValue(key, "true or false is allowed");
  return value->get<bool>();
}

Result<std::optional<std::string>> JsonObject::String(std::string_view key) const {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) return BadValue(key, "a string is allowed");
  return value->get<std::string>();
}

}  // namespace seq2seq
