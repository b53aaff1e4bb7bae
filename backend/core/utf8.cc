#include "backend/core/utf8.h"

#include <cstdint>

namespace seq2seq {
namespace {

// The bytes of the character that `text` begins with, or 0 if it begins with none. Overlong forms,
// surrogates and code points beyond U+10FFFF are none.
size_t CharacterBytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t bytes = first < 0xC2   ? 0
                       : first < 0xE0 ? 2
                       : first < 0xF0 ? 3
                       : first < 0xF5 ? 4
                                      : 0;
  if (bytes == 0 || text.size() < bytes) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const uint8_t second = byte(1);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool surrogate = first == 0xED && second >= 0xA0;
  const bool beyond = first == 0xF4 && second >= 0x90;
  return overlong || surrogate || beyond ? 0 : bytes;
}

}  // namespace

std::string ValidUtf8(std::string_view text, size_t max_bytes) {
  std::string valid;
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    const std::string_view character = bytes == 0 ? "?" : text.substr(0, bytes);
    if (valid.size() + character.size() > max_bytes) return valid + "...";
    valid += character;
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return valid;
}

}  // namespace seq2seq
