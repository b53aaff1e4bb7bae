// What config.pbtxt must say for this backend, and what it may leave out.
#ifndef SEQ2SEQ_BACKEND_TRITON_MODEL_CONFIG_H_
#define SEQ2SEQ_BACKEND_TRITON_MODEL_CONFIG_H_

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "backend/core/status.h"

namespace seq2seq {

// The tensors' names, in requests and in the configuration.
inline constexpr std::string_view kInputIds = "input_ids";
inline constexpr std::string_view kDecoderInputIds = "decoder_input_ids";
inline constexpr std::string_view kOutputIds = "output_ids";
inline constexpr std::string_view kLogprobs = "logprobs";

// A model configuration in Triton's JSON form; kInvalidArgument unless it is a JSON object.
[[nodiscard]] Result<nlohmann::json> ParseModelConfig(std::string_view text);

// Adds the inputs, outputs and the decoupled policy that are absent; changes nothing that is there.
void CompleteModelConfig(nlohmann::json* config);

// kInvalidArgument, naming what is expected, unless max_batch_size is 0, the model is decoupled, no
// batcher of Triton's is asked for, and inputs and outputs are this backend's. input_ids and
// output_ids are compulsory; what else is declared must be one of ours.
[[nodiscard]] Status ValidateModelConfig(const nlohmann::json& config);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TRITON_MODEL_CONFIG_H_
