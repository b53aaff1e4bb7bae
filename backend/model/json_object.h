// A JSON file whose top level is an object, read with errors that say file, key, value and what is
// allowed.
#ifndef SEQ2SEQ_BACKEND_MODEL_JSON_OBJECT_H_
#define SEQ2SEQ_BACKEND_MODEL_JSON_OBJECT_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "backend/core/status.h"

namespace seq2seq {

// Inclusive bounds of an integer.
struct IntRange {
  int64_t low = 0;
  int64_t high = 0;
};

// Bounds of a real number; the lower one is excluded where `low_open`.
struct RealRange {
  double low = 0.0;
  double high = 0.0;
  bool low_open = false;
};

// Hostile text is refused, never trusted: sizes, nesting (64 levels) and repeated keys are checked,
// and no exception leaves. Throughout, null means the same as an absent key. Immutable after
// creation.
class JsonObject {
 public:
  // Reads a regular file of at most `max_bytes`. kNotFound if there is none.
  [[nodiscard]] static Result<JsonObject> ReadFile(const std::filesystem::path& path,
                                                   size_t max_bytes);
  // `source` names the text in errors.
  [[nodiscard]] static Result<JsonObject> Parse(std::string_view text, std::string source);

  const nlohmann::json& json() const { return json_; }
  const std::string& source() const { return source_; }
  bool Has(std::string_view key) const { return Find(key) != nullptr; }

  // Absent keys give nullopt; present ones are checked. Integers count as real numbers, but
  // booleans and strings never count as numbers.
  Result<std::optional<int64_t>> Int(std::string_view key, IntRange range) const;
  Result<std::optional<double>> Real(std::string_view key, RealRange range) const;
  Result<std::optional<bool>> Bool(std::string_view key) const;
  Result<std::optional<std::string>> String(std::string_view key) const;

  // Like Int(), but the key must be there.
  Result<int64_t> RequiredInt(std::string_view key, IntRange range) const;

  // kInvalidArgument: "<source>: key '<key>' is <value>; <allowed>".
  std::unexpected<Error> BadValue(std::string_view key, std::string_view allowed) const;

 private:
  JsonObject(nlohmann::json json, std::string source)
      : json_(std::move(json)), source_(std::move(source)) {}
  const nlohmann::json* Find(std::string_view key) const;

  nlohmann::json json_;
  std::string source_;
};

// A value as JSON text, shortened where it is long; for messages.
std::string ShortJson(const nlohmann::json& value);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_MODEL_JSON_OBJECT_H_
