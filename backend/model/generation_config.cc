#include "backend/model/generation_config.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

#include "backend/core/format.h"
#include "backend/model/file_mapping.h"
#include "backend/model/json_object.h"

namespace seq2seq {
namespace {

constexpr size_t kMaxConfigBytes = size_t{4} << 20;
constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

// What may stand at a key that this backend doesn't act on.
enum class Neutral : uint8_t {
  kAnything,  // never changes greedy or sampled tokens
  kZero,
  kOne,
  kFalse,
  kEmpty,     // [] or {}
  kNullOnly,  // every value changes tokens
};

struct KnownKey {
  std::string_view name;
  Neutral neutral;
};

// GenerationConfig of transformers 4 and 5. Beam-only keys are harmless while num_beams is 1, which
// is checked; those of assisted generation while no assistant is given.
constexpr auto kOtherKeys = std::to_array<KnownKey>({
    {"_commit_hash", Neutral::kAnything},
    {"_from_model_config", Neutral::kAnything},
    {"_name_or_path", Neutral::kAnything},
    {"assistant_confidence_threshold", Neutral::kAnything},
    {"assistant_early_exit", Neutral::kNullOnly},
    {"assistant_ensemble_weight", Neutral::kAnything},
    {"assistant_lookbehind", Neutral::kAnything},
    {"bad_words_ids", Neutral::kEmpty},
    {"begin_suppress_tokens", Neutral::kEmpty},
    {"bos_token_id", Neutral::kAnything},
    {"cache_config", Neutral::kAnything},
    {"cache_implementation", Neutral::kAnything},
    {"compile_config", Neutral::kAnything},
    {"constraints", Neutral::kEmpty},
    {"continuous_batching_config", Neutral::kAnything},
    {"disable_compile", Neutral::kAnything},
    {"diversity_penalty", Neutral::kZero},
    {"dola_layers", Neutral::kNullOnly},
    {"early_stopping", Neutral::kAnything},
    {"encoder_no_repeat_ngram_size", Neutral::kZero},
    {"encoder_repetition_penalty", Neutral::kOne},
    {"epsilon_cutoff", Neutral::kZero},
    {"eta_cutoff", Neutral::kZero},
    {"exponential_decay_length_penalty", Neutral::kNullOnly},
    {"force_words_ids", Neutral::kEmpty},
    {"forced_bos_token_id", Neutral::kNullOnly},
    {"forced_decoder_ids", Neutral::kEmpty},
    {"forced_eos_token_id", Neutral::kNullOnly},
    {"guidance_scale", Neutral::kOne},
    {"is_assistant", Neutral::kAnything},
    {"length_penalty", Neutral::kAnything},
    {"low_memory", Neutral::kAnything},
    {"max_cache_len", Neutral::kAnything},
    {"max_matching_ngram_size", Neutral::kAnything},
    {"max_time", Neutral::kNullOnly},
    {"no_repeat_ngram_size", Neutral::kZero},
    {"num_assistant_tokens", Neutral::kAnything},
    {"num_assistant_tokens_schedule", Neutral::kAnything},
    {"num_beam_groups", Neutral::kOne},
    {"num_beams", Neutral::kOne},
    {"num_return_sequences", Neutral::kOne},
    {"output_attentions", Neutral::kAnything},
    {"output_hidden_states", Neutral::kAnything},
    {"output_logits", Neutral::kAnything},
    {"output_scores", Neutral::kAnything},
    {"penalty_alpha", Neutral::kZero},
    {"prefill_chunk_size", Neutral::kAnything},
    {"prompt_lookup_num_tokens", Neutral::kNullOnly},
    {"remove_invalid_values", Neutral::kAnything},
    {"renormalize_logits", Neutral::kAnything},
    {"repetition_penalty", Neutral::kOne},
    {"return_dict_in_generate", Neutral::kAnything},
    {"return_legacy_cache", Neutral::kAnything},
    {"sequence_bias", Neutral::kEmpty},
    {"speculation_type", Neutral::kNullOnly},
    {"stop_strings", Neutral::kEmpty},
    {"suppress_tokens", Neutral::kEmpty},
    {"target_lookbehind", Neutral::kAnything},
    {"token_healing", Neutral::kFalse},
    {"top_h", Neutral::kNullOnly},
    {"transformers_version", Neutral::kAnything},
    {"use_cache", Neutral::kAnything},
    {"use_mtp", Neutral::kFalse},
    {"watermarking_config", Neutral::kNullOnly},
});

constexpr auto kSupportedKeys = std::to_array<std::string_view>(
    {"decoder_start_token_id", "do_sample", "eos_token_id", "max_length", "max_new_tokens",
     "min_length", "min_new_tokens", "min_p", "pad_token_id", "temperature", "top_k", "top_p",
     "typical_p"});

bool IsNeutral(const nlohmann::json& value, Neutral neutral) {
  switch (neutral) {
    case Neutral::kAnything:
      return true;
    case Neutral::kZero:
      return value.is_number() && value.get<double>() == 0.0;
    case Neutral::kOne:
      return value.is_number() && value.get<double>() == 1.0;
    case Neutral::kFalse:
      return value.is_boolean() && !value.get<bool>();
    case Neutral::kEmpty:
      return value.is_structured() && value.empty();
    case Neutral::kNullOnly:
      return false;
  }
  return false;
}

std::string_view NeutralText(Neutral neutral) {
  switch (neutral) {
    case Neutral::kZero:
      return "only 0 or null is supported";
    case Neutral::kOne:
      return "only 1 or null is supported";
    case Neutral::kFalse:
      return "only false or null is supported";
    case Neutral::kEmpty:
      return "only an empty list or null is supported";
    case Neutral::kAnything:
    case Neutral::kNullOnly:
      break;
  }
  return "only null is supported";
}

// Refuses what would change tokens without this backend knowing how.
Status CheckOtherKeys(const JsonObject& file) {
  for (const auto& [key, value] : file.json().items()) {
    if (value.is_null() || std::ranges::find(kSupportedKeys, key) != kSupportedKeys.end()) continue;
    const auto known = std::ranges::find(kOtherKeys, key, &KnownKey::name);
    if (known == kOtherKeys.end()) {
      return file.BadValue(key, "the key is unknown, so it might change tokens; remove it");
    }
    if (!IsNeutral(value, known->neutral)) return file.BadValue(key, NeutralText(known->neutral));
  }
  return OkStatus();
}

Status ReadInt(const JsonObject& file, std::string_view key, IntRange range,
               std::optional<int32_t>* value) {
  SEQ2SEQ_ASSIGN_OR_RETURN(const auto number, file.Int(key, range));
  if (number) *value = static_cast<int32_t>(*number);
  return OkStatus();
}

// Fails where the number would become 0 in float although 0 is excluded.
Status ReadFloat(const JsonObject& file, std::string_view key, RealRange range,
                 std::optional<float>* value) {
  SEQ2SEQ_ASSIGN_OR_RETURN(const auto number, file.Real(key, range));
  if (!number) return OkStatus();
  *value = static_cast<float>(*number);
  if (range.low_open && !(**value > range.low)) {
    return file.BadValue(key, "a number that float32 tells from 0 is needed");
  }
  return OkStatus();
}

Status ReadLengths(const JsonObject& file, GenerationConfig* config) {
  SEQ2SEQ_RETURN_IF_ERROR(ReadInt(file, "max_new_tokens", {1, kMaxInt32}, &config->max_new_tokens));
  SEQ2SEQ_RETURN_IF_ERROR(ReadInt(file, "max_length", {1, kMaxInt32}, &config->max_length));
  SEQ2SEQ_RETURN_IF_ERROR(ReadInt(file, "min_new_tokens", {0, kMaxInt32}, &config->min_new_tokens));
  return ReadInt(file, "min_length", {0, kMaxInt32}, &config->min_length);
}

Status ReadSampling(const JsonObject& file, GenerationConfig* config) {
  constexpr RealRange kPositiveShare = {0.0, 1.0, /*low_open=*/true};
  SEQ2SEQ_ASSIGN_OR_RETURN(const auto do_sample, file.Bool("do_sample"));
  config->do_sample = do_sample.value_or(false);
  SEQ2SEQ_RETURN_IF_ERROR(ReadFloat(file, "temperature", {0.0, std::numeric_limits<float>::max()},
                                    &config->temperature));
  SEQ2SEQ_RETURN_IF_ERROR(ReadInt(file, "top_k", {0, kMaxInt32}, &config->top_k));
  SEQ2SEQ_RETURN_IF_ERROR(ReadFloat(file, "top_p", kPositiveShare, &config->top_p));
  SEQ2SEQ_RETURN_IF_ERROR(ReadFloat(file, "min_p", {0.0, 1.0}, &config->min_p));
  SEQ2SEQ_RETURN_IF_ERROR(ReadFloat(file, "typical_p", kPositiveShare, &config->typical_p));
  if (config->temperature == 0.0F) {
    config->temperature.reset();
    config->do_sample = false;
  }
  return OkStatus();
}

// Overwrites the token ids that the file has; eos_token_id is an id or a list of ids.
Status ReadTokens(const JsonObject& file, int32_t vocab_size, GenerationConfig* config,
                  bool* has_start) {
  const IntRange ids = {0, vocab_size - 1};
  SEQ2SEQ_ASSIGN_OR_RETURN(const auto pad, file.Int("pad_token_id", ids));
  if (pad) config->pad_token_id = static_cast<int32_t>(*pad);
  SEQ2SEQ_ASSIGN_OR_RETURN(const auto start, file.Int("decoder_start_token_id", ids));
  if (start) {
    config->decoder_start_token_id = static_cast<int32_t>(*start);
    *has_start = true;
  }
  if (!file.Has("eos_token_id")) return OkStatus();
  const nlohmann::json& eos = file.json()["eos_token_id"];
  config->eos_token_ids.clear();
  const auto add = [&](const nlohmann::json& id) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > static_cast<uint64_t>(ids.high)) {
      return false;
    }
    const auto token = id.get<int32_t>();
    if (std::ranges::find(config->eos_token_ids, token) == config->eos_token_ids.end()) {
      config->eos_token_ids.push_back(token);
    }
    return true;
  };
  constexpr size_t kMaxEosIds = 64;
  const bool valid = eos.is_array()
                         ? !eos.empty() && eos.size() <= kMaxEosIds && std::ranges::all_of(eos, add)
                         : add(eos);
  if (valid) return OkStatus();
  return file.BadValue(
      "eos_token_id",
      Format("an id in [0, {}], or a list of 1 to {} such ids, is allowed", ids.high, kMaxEosIds));
}

}  // namespace

Result<GenerationConfig> LoadGenerationConfig(const std::filesystem::path& directory,
                                              const ModelSpec& spec) {
  GenerationConfig config;
  config.pad_token_id = spec.pad_token_id;
  bool has_start = false;
  SEQ2SEQ_ASSIGN_OR_RETURN(const JsonObject model,
                           JsonObject::ReadFile(directory / "config.json", kMaxConfigBytes));
  SEQ2SEQ_RETURN_IF_ERROR(ReadTokens(model, spec.vocab_size, &config, &has_start));

  const std::filesystem::path path = directory / "generation_config.json";
  auto file = JsonObject::ReadFile(path, kMaxConfigBytes);
  if (file) {
    SEQ2SEQ_RETURN_IF_ERROR(CheckOtherKeys(*file));
    SEQ2SEQ_RETURN_IF_ERROR(ReadTokens(*file, spec.vocab_size, &config, &has_start));
    SEQ2SEQ_RETURN_IF_ERROR(ReadLengths(*file, &config));
    SEQ2SEQ_RETURN_IF_ERROR(ReadSampling(*file, &config));
  } else if (file.error().code != ErrorCode::kNotFound || HasEntry(path)) {
    return std::unexpected(std::move(file).error());
  }
  // The T5 family's own defaults: decoders start with the pad token, sequences end with id 1.
  if (!has_start) config.decoder_start_token_id = config.pad_token_id;
  if (config.eos_token_ids.empty()) {
    if (spec.vocab_size < 2) return model.BadValue("eos_token_id", "an id in [0, 0] is needed");
    config.eos_token_ids.push_back(1);
  }
  return config;
}

}  // namespace seq2seq
