// Error messages out of pieces.
#ifndef SEQ2SEQ_BACKEND_TRITON_STR_CAT_H_
#define SEQ2SEQ_BACKEND_TRITON_STR_CAT_H_

#include <sstream>
#include <string>

namespace seq2seq {

// The pieces, printed one after another.
template <typename... Pieces>
std::string StrCat(const Pieces&... pieces) {
  std::ostringstream text;
  (text << ... << pieces);
  return std::move(text).str();
}

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TRITON_STR_CAT_H_
