// A request as it came in: tensors already in host memory and named parameters, nothing checked.
#ifndef SEQ2SEQ_BACKEND_REQUEST_RAW_REQUEST_H_
#define SEQ2SEQ_BACKEND_REQUEST_RAW_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace seq2seq {

using OptionValue = std::variant<bool, int64_t, double, std::string>;

struct RawRequest {
  std::optional<std::vector<int32_t>> input_ids;
  std::optional<std::vector<int32_t>> decoder_input_ids;
  std::vector<std::pair<std::string, OptionValue>> options;  // in the client's order
  uint64_t timeout_us = 0;  // from the protocol's own field; 0: none
  int64_t arrival_ns = 0;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_REQUEST_RAW_REQUEST_H_
