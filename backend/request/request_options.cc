#include "backend/request/request_options.h"

#include <array>
#include <bitset>
#include <cstddef>
#include <limits>
#include <type_traits>
#include <variant>

#include "backend/core/format.h"
#include "backend/core/utf8.h"

namespace seq2seq {
namespace {

constexpr size_t kMaxShownBytes = 80;
constexpr int64_t kMinInt = std::numeric_limits<int64_t>::min();

struct BoolRow {
  std::optional<bool> RequestOptions::* field;
};

struct IntRow {
  std::optional<int64_t> RequestOptions::* field;
  int64_t least;
};

// From `least`, excluded where `open`, to `most`.
struct RealRow {
  std::optional<double> RequestOptions::* field;
  double least;
  double most;
  bool open;
  std::string_view range;  // in words
};

struct OptionRow {
  std::string_view name;
  std::string_view alias;  // empty: none
  std::variant<BoolRow, IntRow, RealRow> kind;
};

using Options = RequestOptions;
constexpr double kMaxIntervalMs = 60000;  // a finished request holds its resources that long
constexpr double kMaxFloat = std::numeric_limits<float>::max();
constexpr RealRow Share(std::optional<double> RequestOptions::* field) {
  return {field, 0.0, 1.0, true, "in (0, 1]"};
}

constexpr auto kRows = std::to_array<OptionRow>({
    {"max_new_tokens", "max_tokens", IntRow{&Options::max_new_tokens, 1}},
    {"max_length", "", IntRow{&Options::max_length, 1}},
    {"min_new_tokens", "", IntRow{&Options::min_new_tokens, 0}},
    {"min_length", "", IntRow{&Options::min_length, 0}},
    {"stream", "", BoolRow{&Options::stream}},
    {"response_interval_ms", "",
     RealRow{&Options::response_interval_ms, 0.0, kMaxIntervalMs, false, "in [0, 60000]"}},
    {"do_sample", "", BoolRow{&Options::do_sample}},
    {"temperature", "",
     RealRow{&Options::temperature, 0.0, kMaxFloat, false, ">= 0, at most 3.4e38,"}},
    {"top_k", "", IntRow{&Options::top_k, 0}},
    {"top_p", "", Share(&Options::top_p)},
    {"typical_p", "", Share(&Options::typical_p)},
    {"min_p", "", RealRow{&Options::min_p, 0.0, 1.0, false, "in [0, 1]"}},
    {"seed", "random_seed", IntRow{&Options::seed, kMinInt}},
    {"return_logprobs", "", BoolRow{&Options::return_logprobs}},
    {"timeout", "", IntRow{&Options::timeout_us, 0}},
});

std::string Shortened(std::string_view text) { return ValidUtf8(text, kMaxShownBytes); }

std::string ValueText(const OptionValue& value) {
  if (const auto* text = std::get_if<std::string>(&value))
    return Format("\"{}\"", Shortened(*text));
  if (const auto* flag = std::get_if<bool>(&value)) return Format("{}", *flag);
  if (const auto* integer = std::get_if<int64_t>(&value)) return Format("{}", *integer);
  std::string number = Format("{}", std::get<double>(value));
  // As the double that it is: where an integer is wanted, 5.0 is wrong and 5 is not.
  if (number.find_first_not_of("-0123456789") == std::string::npos) number += ".0";
  return number;
}

std::string AllowedNames() {
  std::string names;
  for (const OptionRow& row : kRows) {
    if (!names.empty()) names += ", ";
    names += row.name;
    if (!row.alias.empty()) names += Format(" (or {})", row.alias);
  }
  return names;
}

// Each returns what is allowed if the value isn't; it stores the value if it is.
std::optional<std::string> Store(const BoolRow& row, const OptionValue& value, Options* options) {
  const auto* flag = std::get_if<bool>(&value);
  if (flag == nullptr) return "true or false is allowed";
  options->*row.field = *flag;
  return std::nullopt;
}

std::optional<std::string> Store(const IntRow& row, const OptionValue& value, Options* options) {
  const auto* integer = std::get_if<int64_t>(&value);
  if (integer != nullptr && *integer >= row.least) {
    options->*row.field = *integer;
    return std::nullopt;
  }
  if (row.least == kMinInt) return "a 64-bit integer is allowed";
  return Format("an integer >= {} is allowed", row.least);
}

std::optional<std::string> Store(const RealRow& row, const OptionValue& value, Options* options) {
  double number = std::numeric_limits<double>::quiet_NaN();
  if (const auto* real = std::get_if<double>(&value)) number = *real;
  if (const auto* integer = std::get_if<int64_t>(&value)) number = static_cast<double>(*integer);
  const bool above = row.open ? number > row.least : number >= row.least;
  if (!above || !(number <= row.most)) return Format("a number {} is allowed", row.range);
  options->*row.field = number;
  return std::nullopt;
}

}  // namespace

std::unexpected<Error> BadOption(std::string_view name, const OptionValue& value,
                                 std::string_view allowed) {
  return InvalidArgument(
      Format("option '{}' is {}; {}", Shortened(name), ValueText(value), allowed));
}

Result<RequestOptions> ReadRequestOptions(
    const std::vector<std::pair<std::string, OptionValue>>& options) {
  RequestOptions result;
  std::bitset<kRows.size()> seen;
  for (const auto& [name, value] : options) {
    if (name == "id") continue;  // generate passes the request's id along
    size_t index = 0;
    while (index < kRows.size() && name != kRows[index].name &&
           (name != kRows[index].alias || name.empty())) {
      ++index;
    }
    if (index == kRows.size()) {
      return BadOption(name, value,
                       Format("there is no such option; allowed are {}", AllowedNames()));
    }
    const OptionRow& row = kRows[index];
    if (seen[index]) {
      return BadOption(name, value,
                       row.alias.empty() ? "it may be set once, but is set twice"
                                         : Format("only one of '{}' and '{}' may be set, once",
                                                  row.name, row.alias));
    }
    seen[index] = true;
    const std::optional<std::string> allowed =
        std::visit([&](const auto& kind) { return Store(kind, value, &result); }, row.kind);
    if (allowed) return BadOption(name, value, *allowed);
  }
  return result;
}

}  // namespace seq2seq
