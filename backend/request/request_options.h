// The options a client may set, by name and type: one table, read before anything is made of them.
#ifndef SEQ2SEQ_BACKEND_REQUEST_REQUEST_OPTIONS_H_
#define SEQ2SEQ_BACKEND_REQUEST_REQUEST_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/core/status.h"
#include "backend/request/raw_request.h"

namespace seq2seq {

// What the client set, each value inside the range that holds whatever the model.
struct RequestOptions {
  std::optional<int64_t> max_new_tokens;  // >= 1
  std::optional<int64_t> max_length;      // >= 1
  std::optional<int64_t> min_new_tokens;  // >= 0
  std::optional<int64_t> min_length;      // >= 0
  std::optional<bool> stream;
  std::optional<double> response_interval_ms;  // in [0, 60000]
  std::optional<bool> do_sample;
  std::optional<double> temperature;  // >= 0, finite as float
  std::optional<int64_t> top_k;       // >= 0
  std::optional<double> top_p;        // (0, 1]
  std::optional<double> typical_p;    // (0, 1]
  std::optional<double> min_p;        // [0, 1]
  std::optional<int64_t> seed;        // any
  std::optional<bool> return_logprobs;
  std::optional<int64_t> timeout_us;  // >= 0
};

// Checks names, types and ranges. Integers are taken for real numbers, but strings and booleans
// never for numbers. An option may be set once, whether by its name or its alias. `id` is passed
// over. kInvalidArgument names option, value and what is allowed.
[[nodiscard]] Result<RequestOptions> ReadRequestOptions(
    const std::vector<std::pair<std::string, OptionValue>>& options);

// An option's error, for checks that need more than the option: "option 'top_k' is -1; ...".
std::unexpected<Error> BadOption(std::string_view name, const OptionValue& value,
                                 std::string_view allowed);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_REQUEST_REQUEST_OPTIONS_H_
