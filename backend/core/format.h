// Messages from a pattern and values: the small part of std::format that errors need (GCC 12 has
// none).
#ifndef SEQ2SEQ_BACKEND_CORE_FORMAT_H_
#define SEQ2SEQ_BACKEND_CORE_FORMAT_H_

#include <charconv>
#include <concepts>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace seq2seq {

// A pattern whose "{}" are counted while compiling: too few or too many don't compile.
template <typename... Args>
struct FormatPattern {
  template <typename Text>
    requires std::convertible_to<const Text&, std::string_view>
  consteval FormatPattern(const Text& pattern) : text(pattern) {  // NOLINT: implicit by design
    size_t count = 0;
    for (size_t at = text.find("{}"); at != text.npos; at = text.find("{}", at + 2)) ++count;
    if (count != sizeof...(Args)) throw std::logic_error("one {} is needed for each value");
  }
  std::string_view text;
};

inline void AppendValue(std::string* out, std::string_view value) { out->append(value); }
inline void AppendValue(std::string* out, const char* value) { out->append(value); }
inline void AppendValue(std::string* out, const std::string& value) { out->append(value); }
inline void AppendValue(std::string* out, char value) { out->push_back(value); }
inline void AppendValue(std::string* out, bool value) { out->append(value ? "true" : "false"); }

// Integers in decimal; real numbers in the shortest form that reads back to the same value.
template <typename Number>
  requires std::is_arithmetic_v<Number>
void AppendValue(std::string* out, Number value) {
  char digits[64];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value);
  out->append(digits, end.ptr);
}

// Format("option '{}' is {}", "top_k", -1) is "option 'top_k' is -1".
template <typename... Args>
std::string Format(FormatPattern<std::type_identity_t<Args>...> pattern, const Args&... args) {
  std::string out;
  std::string_view rest = pattern.text;
  [[maybe_unused]] const auto append = [&out, &rest](const auto& value) {
    const size_t at = rest.find("{}");
    out.append(rest.substr(0, at));
    rest.remove_prefix(at + 2);
    AppendValue(&out, value);
  };
  (append(args), ...);
  out.append(rest);
  return out;
}

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CORE_FORMAT_H_
