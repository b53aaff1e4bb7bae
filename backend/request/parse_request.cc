#include "backend/request/parse_request.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/core/format.h"
#include "backend/request/request_options.h"

namespace seq2seq {
namespace {

constexpr double kDefaultIntervalMs = 5.0;
constexpr double kNsPerMs = 1e6;
constexpr int64_t kNsPerUs = 1000;
constexpr int64_t kForever = std::numeric_limits<int64_t>::max();

Status CheckIds(std::string_view input, const std::vector<int32_t>& ids, int32_t vocab_size) {
  for (size_t index = 0; index < ids.size(); ++index) {
    if (ids[index] >= 0 && ids[index] < vocab_size) continue;
    return InvalidArgument(Format("input '{}' holds {} at index {}; ids in [0, {}] are allowed",
                                  input, ids[index], index, vocab_size - 1));
  }
  return OkStatus();
}

Result<std::vector<int32_t>> ReadSource(std::optional<std::vector<int32_t>> input,
                                        const RequestPolicy& policy) {
  if (!input)
    return InvalidArgument("input 'input_ids' is missing; the ids of the source are needed");
  std::vector<int32_t> ids = *std::move(input);
  if (ids.empty()) return InvalidArgument("input 'input_ids' is empty; at least one id is needed");
  while (!ids.empty() && ids.back() == policy.pad_token_id) ids.pop_back();
  if (ids.empty()) {
    return InvalidArgument(
        Format("input 'input_ids' holds only pads (id {}); at least one other id is "
               "needed",
               policy.pad_token_id));
  }
  if (ids.size() > static_cast<size_t>(policy.max_source_tokens)) {
    return InvalidArgument(
        Format("input 'input_ids' has {} ids, pads at the end not counted; at most "
               "{} are allowed",
               ids.size(), policy.max_source_tokens));
  }
  SEQ2SEQ_RETURN_IF_ERROR(CheckIds("input_ids", ids, policy.vocab_size));
  return ids;
}

// The forced prefix, with the start token in front; an empty one is none.
Result<std::vector<int32_t>> ReadPrefix(std::optional<std::vector<int32_t>> input,
                                        const RequestPolicy& policy) {
  std::vector<int32_t> ids = std::move(input).value_or(std::vector<int32_t>());
  const bool has_start = !ids.empty() && ids.front() == policy.decoder_start_token_id;
  const size_t length = ids.size() + (has_start ? 0 : 1);
  if (length >= static_cast<size_t>(policy.max_decoder_tokens)) {
    return InvalidArgument(
        Format("input 'decoder_input_ids' has {} ids, start token included; at most "
               "{} are allowed, so that one new token fits",
               length, policy.max_decoder_tokens - 1));
  }
  SEQ2SEQ_RETURN_IF_ERROR(CheckIds("decoder_input_ids", ids, policy.vocab_size));
  if (!has_start) ids.insert(ids.begin(), policy.decoder_start_token_id);
  return ids;
}

// How many tokens may be generated after a prefix of `prefix` tokens, and what the request and the
// model say about it. A request's own length, of either kind, goes before the model's defaults.
class LengthRules {
 public:
  LengthRules(const RequestOptions& options, const RequestPolicy& policy, size_t prefix)
      : options_(options),
        policy_(policy),
        prefix_(static_cast<int64_t>(prefix)),
        limit_(std::min<int64_t>(policy.max_new_tokens, policy.max_decoder_tokens - prefix_)) {}

  Result<int32_t> MaxNewTokens() const {
    if (options_.max_new_tokens) {
      if (*options_.max_new_tokens <= limit_) return static_cast<int32_t>(*options_.max_new_tokens);
      return OutOfRange("max_new_tokens", *options_.max_new_tokens, 1, limit_);
    }
    if (options_.max_length) {
      const int64_t length = *options_.max_length;
      if (length > prefix_ && length - prefix_ <= limit_) {
        return static_cast<int32_t>(length - prefix_);
      }
      return OutOfRange("max_length", length, prefix_ + 1, prefix_ + limit_);
    }
    int64_t inherited = policy_.fallback_max_new_tokens;
    if (policy_.default_max_new_tokens) {
      inherited = *policy_.default_max_new_tokens;
    } else if (policy_.default_max_length) {
      inherited = *policy_.default_max_length - prefix_;
      if (inherited < 1) {
        return InvalidArgument(
            Format("input 'decoder_input_ids' has {} ids, start token included, and the model's "
                   "default for "
                   "max_length is {}, which leaves no new token; set max_new_tokens in [1, {}]",
                   prefix_, *policy_.default_max_length, limit_));
      }
    }
    return static_cast<int32_t>(std::clamp<int64_t>(inherited, 1, limit_));
  }

  // Never more than the maximum: until there, EOS is banned anyway.
  int32_t MinNewTokens(int32_t max_new_tokens) const {
    int64_t least = 0;
    if (options_.min_new_tokens) {
      least = *options_.min_new_tokens;
    } else if (options_.min_length) {
      least = *options_.min_length - prefix_;
    } else if (policy_.default_min_new_tokens > 0) {
      least = policy_.default_min_new_tokens;
    } else {
      least = policy_.default_min_length - prefix_;
    }
    return static_cast<int32_t>(std::clamp<int64_t>(least, 0, max_new_tokens));
  }

 private:
  std::unexpected<Error> OutOfRange(std::string_view name, int64_t value, int64_t least,
                                    int64_t most) const {
    return BadOption(
        name, value,
        Format("an integer in [{}, {}] is allowed (at most {} new tokens, {} with the "
               "decoder prefix, which has {} here)",
               least, most, policy_.max_new_tokens, policy_.max_decoder_tokens, prefix_));
  }

  const RequestOptions& options_;
  const RequestPolicy& policy_;
  const int64_t prefix_;
  const int64_t limit_;  // >= 1, as the prefix leaves room for a token
};

// Values above 0 stay above 0 as floats.
float PositiveFloat(double value) {
  return std::max(static_cast<float>(value), std::numeric_limits<float>::min());
}

SamplingOptions ReadSampling(const RequestOptions& options, const RequestPolicy& policy,
                             uint64_t drawn_seed) {
  SamplingOptions sampling = policy.default_sampling;
  sampling.seed = options.seed ? std::bit_cast<uint64_t>(*options.seed) : drawn_seed;
  sampling.return_logprobs = options.return_logprobs.value_or(false);
  const bool asks_for_sampling = options.temperature.value_or(0.0) > 0.0 || options.top_k ||
                                 options.top_p || options.min_p || options.typical_p;
  sampling.do_sample = options.do_sample.value_or(sampling.do_sample || asks_for_sampling);
  if (options.temperature == 0.0) sampling.do_sample = false;
  if (!sampling.do_sample) {
    SamplingOptions greedy;
    greedy.seed = sampling.seed;
    greedy.return_logprobs = sampling.return_logprobs;
    return greedy;
  }
  if (options.temperature) sampling.temperature = PositiveFloat(*options.temperature);
  if (options.top_k) {
    sampling.top_k = static_cast<int32_t>(std::min<int64_t>(*options.top_k, policy.vocab_size));
  }
  if (options.top_p) sampling.top_p = PositiveFloat(*options.top_p);
  if (options.typical_p) sampling.typical_p = PositiveFloat(*options.typical_p);
  if (options.min_p) sampling.min_p = static_cast<float>(*options.min_p);
  return sampling;
}

// The earlier of the protocol's and the option's; 0 is none.
int64_t DeadlineNs(const RequestOptions& options, uint64_t protocol_us, int64_t arrival_ns) {
  uint64_t timeout_us = static_cast<uint64_t>(options.timeout_us.value_or(0));
  if (timeout_us == 0 || (protocol_us != 0 && protocol_us < timeout_us)) timeout_us = protocol_us;
  if (timeout_us == 0) return 0;
  const int64_t left_us = (kForever - std::max<int64_t>(arrival_ns, 0)) / kNsPerUs;
  if (timeout_us >= static_cast<uint64_t>(left_us)) return kForever;
  return arrival_ns + static_cast<int64_t>(timeout_us) * kNsPerUs;
}

int64_t IntervalNs(const RequestOptions& options) {
  return static_cast<int64_t>(options.response_interval_ms.value_or(kDefaultIntervalMs) * kNsPerMs);
}

}  // namespace

Result<Request> ParseRequest(RawRequest raw, const RequestPolicy& policy, uint64_t drawn_seed) {
  SEQ2SEQ_ASSIGN_OR_RETURN(const RequestOptions options, ReadRequestOptions(raw.options));
  Request request;
  SEQ2SEQ_ASSIGN_OR_RETURN(request.source_ids, ReadSource(std::move(raw.input_ids), policy));
  SEQ2SEQ_ASSIGN_OR_RETURN(request.decoder_prefix,
                           ReadPrefix(std::move(raw.decoder_input_ids), policy));
  const LengthRules lengths(options, policy, request.decoder_prefix.size());
  SEQ2SEQ_ASSIGN_OR_RETURN(request.max_new_tokens, lengths.MaxNewTokens());
  request.min_new_tokens = lengths.MinNewTokens(request.max_new_tokens);
  request.sampling = ReadSampling(options, policy, drawn_seed);
  request.stream = options.stream.value_or(true);
  request.response_interval_ns = IntervalNs(options);
  request.arrival_ns = raw.arrival_ns;
  request.deadline_ns = DeadlineNs(options, raw.timeout_us, raw.arrival_ns);
  return request;
}

}  // namespace seq2seq
