// What a model allows and assumes: the defaults and limits that requests are validated against.
#ifndef SEQ2SEQ_BACKEND_REQUEST_REQUEST_POLICY_H_
#define SEQ2SEQ_BACKEND_REQUEST_REQUEST_POLICY_H_

#include <cstdint>
#include <optional>

#include "backend/core/sampling_options.h"

namespace seq2seq {

// Filled once at load from config.pbtxt and generation_config.json; read-only afterwards.
struct RequestPolicy {
  int32_t vocab_size = 0;
  int32_t pad_token_id = 0;
  int32_t decoder_start_token_id = 0;

  int32_t max_source_tokens = 0;   // longer sources are refused
  int32_t max_new_tokens = 0;      // upper limit of a request
  int32_t max_decoder_tokens = 0;  // prefix and new tokens together (the model's positions)

  // generation_config.json's values, where it has them; max_new_tokens wins over max_length.
  std::optional<int32_t> default_max_new_tokens;
  std::optional<int32_t> default_max_length;
  int32_t fallback_max_new_tokens = 256;  // config.pbtxt's default_max_new_tokens
  int32_t default_min_new_tokens = 0;
  int32_t default_min_length = 0;
  SamplingOptions default_sampling;  // seed and return_logprobs are not read
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_REQUEST_REQUEST_POLICY_H_
