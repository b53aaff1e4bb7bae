// Text that may come from anywhere, made fit for a message.
#ifndef SEQ2SEQ_BACKEND_CORE_UTF8_H_
#define SEQ2SEQ_BACKEND_CORE_UTF8_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace seq2seq {

// `text` as valid UTF-8 (RFC 3629) of at most `max_bytes` bytes and "...": each byte that belongs
// to no character becomes '?', and a longer text is cut between characters. Protobuf and JSON
// clients refuse messages that are not UTF-8, all of a message for one byte.
std::string ValidUtf8(std::string_view text, size_t max_bytes);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CORE_UTF8_H_
