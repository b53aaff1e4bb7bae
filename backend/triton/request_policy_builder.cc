#include "backend/triton/request_policy_builder.h"

#include <algorithm>
#include <limits>

#include "backend/core/format.h"

namespace seq2seq {
namespace {

constexpr int32_t kUnlimitedDefault = 4096;  // where the model has no limit of positions
constexpr int32_t kDefaultMaxNewTokens = 256;

Result<int32_t> Limit(const char* key, std::optional<int32_t> configured, int32_t positions) {
  if (!configured) return positions > 0 ? positions : kUnlimitedDefault;
  if (positions > 0 && *configured > positions) {
    return InvalidArgument(
        Format("config.pbtxt: parameter '{}' is '{}'; allowed is an integer from 1 to {}, the "
               "model's positions",
               key, *configured, positions));
  }
  return *configured;
}

SamplingOptions DefaultSampling(const GenerationConfig& generation) {
  SamplingOptions sampling;
  sampling.do_sample = generation.do_sample;
  sampling.temperature = generation.temperature.value_or(sampling.temperature);
  sampling.top_k = generation.top_k.value_or(sampling.top_k);
  sampling.top_p = generation.top_p.value_or(sampling.top_p);
  sampling.min_p = generation.min_p.value_or(sampling.min_p);
  sampling.typical_p = generation.typical_p.value_or(sampling.typical_p);
  return sampling;
}

int32_t DecoderTokens(int32_t positions, int32_t max_source_tokens, int32_t max_new_tokens) {
  if (positions > 0) return positions;
  const int64_t sum = int64_t{max_source_tokens} + max_new_tokens;
  return static_cast<int32_t>(std::min<int64_t>(sum, std::numeric_limits<int32_t>::max()));
}

}  // namespace

Result<BuiltPolicy> BuildRequestPolicy(const ModelOptions& options, const ModelSpec& spec,
                                       const GenerationConfig& generation) {
  BuiltPolicy built;
  RequestPolicy& policy = built.policy;
  policy.vocab_size = spec.vocab_size;
  policy.pad_token_id = generation.pad_token_id;
  policy.decoder_start_token_id = generation.decoder_start_token_id;
  SEQ2SEQ_ASSIGN_OR_RETURN(
      policy.max_source_tokens,
      Limit("max_source_tokens", options.max_source_tokens, spec.max_positions));
  SEQ2SEQ_ASSIGN_OR_RETURN(policy.max_new_tokens,
                           Limit("max_new_tokens", options.max_new_tokens, spec.max_positions));
  policy.max_decoder_tokens =
      DecoderTokens(spec.max_positions, policy.max_source_tokens, policy.max_new_tokens);

  policy.default_max_new_tokens = generation.max_new_tokens;
  if (policy.default_max_new_tokens.value_or(0) > policy.max_new_tokens) {
    built.notes.push_back(
        Format("generation_config.json: max_new_tokens is {}, clamped to the model's limit of {}",
               *policy.default_max_new_tokens, policy.max_new_tokens));
    policy.default_max_new_tokens = policy.max_new_tokens;
  }
  policy.default_max_length = generation.max_length;
  if (!policy.default_max_new_tokens &&
      policy.default_max_length.value_or(0) > policy.max_decoder_tokens) {
    built.notes.push_back(
        Format("generation_config.json: max_length is {}, clamped to the model's limit of {}",
               *policy.default_max_length, policy.max_decoder_tokens));
    policy.default_max_length = policy.max_decoder_tokens;
  }

  if (options.default_max_new_tokens.value_or(0) > policy.max_new_tokens) {
    return InvalidArgument(
        Format("config.pbtxt: parameter 'default_max_new_tokens' is '{}'; allowed is an integer "
               "from 1 to {}, the limit max_new_tokens",
               *options.default_max_new_tokens, policy.max_new_tokens));
  }
  policy.fallback_max_new_tokens = options.default_max_new_tokens.value_or(
      std::min(kDefaultMaxNewTokens, policy.max_new_tokens));
  policy.default_min_new_tokens = generation.min_new_tokens.value_or(0);
  policy.default_min_length = generation.min_length.value_or(0);
  policy.default_sampling = DefaultSampling(generation);
  return built;
}

}  // namespace seq2seq
