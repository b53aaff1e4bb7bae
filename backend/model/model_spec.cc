#include "backend/model/model_spec.h"

#include <array>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "backend/core/format.h"
#include "backend/model/json_object.h"

namespace seq2seq {
namespace {

constexpr size_t kMaxConfigBytes = size_t{4} << 20;
constexpr IntRange kTokenCounts = {1, int64_t{1} << 24};
constexpr IntRange kWidths = {1, int64_t{1} << 20};
constexpr IntRange kHeads = {1, 1024};
constexpr IntRange kHeadWidths = {1, 4096};
constexpr IntRange kLayers = {1, 1024};
constexpr IntRange kBuckets = {4, 65536};  // four: half of a half must hold one exact distance
constexpr IntRange kDistances = {2, int64_t{1} << 24};

// transformers' ACT2FN names.
constexpr std::array<std::pair<std::string_view, Activation>, 6> kActivations = {{
    {"relu", Activation::kRelu},
    {"gelu", Activation::kGelu},
    {"gelu_new", Activation::kGeluTanh},
    {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"silu", Activation::kSilu},
    {"swish", Activation::kSilu},
}};
constexpr std::string_view kActivationNames =
    "relu, gelu, gelu_new, gelu_pytorch_tanh, silu, swish";

std::optional<Activation> FindActivation(std::string_view name) {
  for (const auto& [known, activation] : kActivations) {
    if (known == name) return activation;
  }
  return std::nullopt;
}

struct FeedForward {
  Activation activation;
  bool gated;
};

// "relu", "gated-silu", ...; "gated-gelu" means gelu_new. The keys dense_act_fn and is_gated_act,
// which transformers derives and saves, win where a file has them, as they do there.
Result<FeedForward> ReadFeedForward(const JsonObject& config, std::string_view fallback) {
  SEQ2SEQ_ASSIGN_OR_RETURN(auto projection, config.String("feed_forward_proj"));
  SEQ2SEQ_ASSIGN_OR_RETURN(const auto dense_act, config.String("dense_act_fn"));
  SEQ2SEQ_ASSIGN_OR_RETURN(const auto gated_act, config.Bool("is_gated_act"));
  std::string_view name = projection ? std::string_view(*projection) : fallback;
  constexpr std::string_view kGatePrefix = "gated-";
  const bool gated = name.starts_with(kGatePrefix);
  if (gated) name.remove_prefix(kGatePrefix.size());
  std::optional<Activation> activation = FindActivation(name);
  if (!activation) {
    return config.BadValue(
        "feed_forward_proj",
        Format("one of {}, each with or without 'gated-' in front, is allowed", kActivationNames));
  }
  if (gated && name == "gelu") activation = Activation::kGeluTanh;
  if (dense_act) {
    activation = FindActivation(*dense_act);
    if (!activation) {
      return config.BadValue("dense_act_fn", Format("one of {} is allowed", kActivationNames));
    }
  }
  return FeedForward{*activation, gated_act.value_or(gated)};
}

Status ReadShape(const JsonObject& config, ModelSpec* spec) {
  SEQ2SEQ_ASSIGN_OR_RETURN(const int64_t vocab_size,
                           config.RequiredInt("vocab_size", kTokenCounts));
  SEQ2SEQ_ASSIGN_OR_RETURN(const int64_t d_model, config.RequiredInt("d_model", kWidths));
  SEQ2SEQ_ASSIGN_OR_RETURN(const int64_t d_ff, config.RequiredInt("d_ff", kWidths));
  SEQ2SEQ_ASSIGN_OR_RETURN(const int64_t head_dim, config.RequiredInt("d_kv", kHeadWidths));
  SEQ2SEQ_ASSIGN_OR_RETURN(const int64_t heads, config.RequiredInt("num_heads", kHeads));
  SEQ2SEQ_ASSIGN_OR_RETURN(const int64_t layers, config.RequiredInt("num_layers", kLayers));
  SEQ2SEQ_ASSIGN_OR_RETURN(const auto decoder_layers, config.Int("num_decoder_layers", kLayers));
  spec->vocab_size = static_cast<int32_t>(vocab_size);
  spec->d_model = static_cast<int32_t>(d_model);
  spec->head_dim = static_cast<int32_t>(head_dim);
  for (StackSpec* stack : {&spec->encoder, &spec->decoder}) {
    stack->heads = static_cast<int32_t>(heads);
    stack->d_ff = static_cast<int32_t>(d_ff);
    stack->position_bias_per_layer = spec->model_type == "umt5";
  }
  spec->encoder.layers = static_cast<int32_t>(layers);
  spec->decoder.layers = static_cast<int32_t>(decoder_layers.value_or(layers));
  return OkStatus();
}

Status ReadRelativePositions(const JsonObject& config, ModelSpec* spec) {
  SEQ2SEQ_ASSIGN_OR_RETURN(const auto buckets,
                           config.Int("relative_attention_num_buckets", kBuckets));
  SEQ2SEQ_ASSIGN_OR_RETURN(const auto distance,
                           config.Int("relative_attention_max_distance", kDistances));
  spec->relative_positions.buckets = static_cast<int32_t>(buckets.value_or(32));
  spec->relative_positions.max_distance = static_cast<int32_t>(distance.value_or(128));
  // The decoder's buckets divide by log(max_distance / (buckets / 2)).
  if (spec->relative_positions.max_distance <= spec->relative_positions.buckets / 2) {
    return config.BadValue("relative_attention_max_distance",
                           Format("more than half of relative_attention_num_buckets ({}) is "
                                  "needed",
                                  spec->relative_positions.buckets));
  }
  return OkStatus();
}

// transformers 5: the saved key scale_decoder_outputs decides for t5 and umt5; older files say the
// same by tie_word_embeddings. mt5 never scales.
Status ReadHead(const JsonObject& config, ModelSpec* spec) {
  SEQ2SEQ_ASSIGN_OR_RETURN(const auto tied, config.Bool("tie_word_embeddings"));
  SEQ2SEQ_ASSIGN_OR_RETURN(const auto scaled, config.Bool("scale_decoder_outputs"));
  spec->tied_head = tied.value_or(true);
  if (spec->model_type != "mt5" && scaled.value_or(spec->tied_head)) {
    spec->head_input_scale = 1.0F / std::sqrt(static_cast<float>(spec->d_model));
  }
  return OkStatus();
}

Result<ModelSpec> ReadT5(const JsonObject& config, std::string model_type) {
  ModelSpec spec;
  spec.model_type = std::move(model_type);
  SEQ2SEQ_RETURN_IF_ERROR(ReadShape(config, &spec));
  SEQ2SEQ_RETURN_IF_ERROR(ReadRelativePositions(config, &spec));
  SEQ2SEQ_ASSIGN_OR_RETURN(
      const FeedForward feed_forward,
      ReadFeedForward(config, spec.model_type == "t5" ? "relu" : "gated-gelu"));
  spec.activation = feed_forward.activation;
  spec.gated_ffn = feed_forward.gated;
  SEQ2SEQ_ASSIGN_OR_RETURN(const auto epsilon,
                           config.Real("layer_norm_epsilon", {0.0, 1.0, /*low_open=*/true}));
  spec.norm_epsilon = static_cast<float>(epsilon.value_or(1e-6));
  if (!(spec.norm_epsilon > 0.0F)) {
    return config.BadValue("layer_norm_epsilon", "a number that float32 tells from 0 is needed");
  }
  SEQ2SEQ_RETURN_IF_ERROR(ReadHead(config, &spec));
  SEQ2SEQ_ASSIGN_OR_RETURN(const auto pad, config.Int("pad_token_id", {0, spec.vocab_size - 1}));
  spec.pad_token_id = static_cast<int32_t>(pad.value_or(0));
  return spec;
}

}  // namespace

Result<ModelSpec> LoadModelSpec(const std::filesystem::path& directory) {
  SEQ2SEQ_ASSIGN_OR_RETURN(const JsonObject config,
                           JsonObject::ReadFile(directory / "config.json", kMaxConfigBytes));
  SEQ2SEQ_ASSIGN_OR_RETURN(auto model_type, config.String("model_type"));
  if (model_type != "t5" && model_type != "mt5" && model_type != "umt5") {
    return config.BadValue("model_type", "one of t5, mt5, umt5 is supported");
  }
  SEQ2SEQ_ASSIGN_OR_RETURN(const auto encoder_decoder, config.Bool("is_encoder_decoder"));
  if (!encoder_decoder.value_or(true)) {
    return config.BadValue("is_encoder_decoder", "true is needed");
  }
  if (config.Has("quantization_config")) {
    return config.BadValue("quantization_config",
                           "weights must be float32, float16 or bfloat16, not quantized");
  }
  return ReadT5(config, *std::move(model_type));
}

}  // namespace seq2seq
