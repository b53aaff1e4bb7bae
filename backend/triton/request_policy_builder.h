// A model's limits and defaults, out of what config.pbtxt, config.json and generation_config.json
// say.
#ifndef SEQ2SEQ_BACKEND_TRITON_REQUEST_POLICY_BUILDER_H_
#define SEQ2SEQ_BACKEND_TRITON_REQUEST_POLICY_BUILDER_H_

#include <string>
#include <vector>

#include "backend/core/status.h"
#include "backend/model/generation_config.h"
#include "backend/model/model_spec.h"
#include "backend/request/request_policy.h"
#include "backend/triton/model_options.h"

namespace seq2seq {

struct BuiltPolicy {
  RequestPolicy policy;
  std::vector<std::string> notes;  // inherited defaults that had to be clamped, for the log
};

// max_source_tokens and max_new_tokens default to the model's positions, or to 4096 where those are
// unlimited, and may not exceed the positions. max_decoder_tokens is the positions; where those are
// unlimited, max_source_tokens + max_new_tokens: a forced prefix is as long as a source at most.
// generation_config's defaults above max_new_tokens are clamped; config.pbtxt's own are an error.
// kInvalidArgument names the parameter.
[[nodiscard]] Result<BuiltPolicy> BuildRequestPolicy(const ModelOptions& options,
                                                     const ModelSpec& spec,
                                                     const GenerationConfig& generation);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TRITON_REQUEST_POLICY_BUILDER_H_
