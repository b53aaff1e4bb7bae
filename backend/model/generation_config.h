// generation_config.json: the model's own defaults for how to generate.
#ifndef SEQ2SEQ_BACKEND_MODEL_GENERATION_CONFIG_H_
#define SEQ2SEQ_BACKEND_MODEL_GENERATION_CONFIG_H_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "backend/core/status.h"
#include "backend/model/model_spec.h"

namespace seq2seq {

struct GenerationConfig {
  int32_t decoder_start_token_id = 0;
  int32_t pad_token_id = 0;
  std::vector<int32_t> eos_token_ids;  // one or more; any of them ends a sequence
  std::optional<int32_t> max_new_tokens;
  std::optional<int32_t> max_length;  // counts the decoder prefix
  std::optional<int32_t> min_new_tokens;
  std::optional<int32_t> min_length;  // counts the decoder prefix
  bool do_sample = false;
  std::optional<float> temperature;
  std::optional<int32_t> top_k;  // the library's silent default of 50 is not a value of the file
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> typical_p;
};

// Reads <directory>/generation_config.json; where it is absent, config.json's token ids are used. A
// key that changes tokens and is not supported fails, unless its value changes nothing (num_beams
// 1, repetition_penalty 1.0, ...). Errors name file, key and value.
[[nodiscard]] Result<GenerationConfig> LoadGenerationConfig(const std::filesystem::path& directory,
                                                            const ModelSpec& spec);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_MODEL_GENERATION_CONFIG_H_
