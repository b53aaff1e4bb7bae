#include "backend/model/model_spec.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "backend/testing/tiny_checkpoint.h"

namespace seq2seq {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class ModelSpecTest : public testing::Test {
 protected:
  ModelSpecTest() : directory_(fs::path(testing::TempDir()) / "model_spec_test") {
    fs::create_directories(directory_);
  }
  ~ModelSpecTest() override { fs::remove_all(directory_); }

  Result<ModelSpec> Load(const Json& changes = Json::object()) {
    TinyCheckpointOptions options;
    options.config = changes;
    EXPECT_TRUE(WriteTinyCheckpoint(directory_, options));
    return LoadModelSpec(directory_);
  }

  ModelSpec Good(const Json& changes = Json::object()) {
    const auto spec = Load(changes);
    EXPECT_TRUE(spec) << spec.error().message;
    return spec.value_or(ModelSpec());
  }

  // What is said after "<directory>/config.json: ".
  std::string ErrorOf(const Json& changes) {
    const auto spec = Load(changes);
    if (spec) return "accepted";
    const std::string start = (directory_ / "config.json").string() + ": ";
    EXPECT_TRUE(spec.error().message.starts_with(start)) << spec.error().message;
    return spec.error().message.substr(start.size());
  }

  fs::path directory_;
};

TEST_F(ModelSpecTest, ReadsTheShape) {
  const ModelSpec spec = Good();
  EXPECT_EQ(spec.model_type, "t5");
  EXPECT_EQ(spec.vocab_size, 40);
  EXPECT_EQ(spec.d_model, 16);
  EXPECT_EQ(spec.head_dim, 4);
  EXPECT_EQ(spec.encoder.heads, 3);
  EXPECT_EQ(spec.decoder.heads, 3);
  EXPECT_EQ(spec.encoder_inner(), 12);
  EXPECT_EQ(spec.encoder.d_ff, 24);
  EXPECT_EQ(spec.encoder.layers, 2);
  EXPECT_EQ(spec.decoder.layers, 3);
  EXPECT_EQ(spec.relative_positions.buckets, 8);
  EXPECT_EQ(spec.relative_positions.max_distance, 20);
  EXPECT_FLOAT_EQ(spec.norm_epsilon, 1e-6F);
  EXPECT_EQ(spec.pad_token_id, 0);
  EXPECT_EQ(spec.max_positions, 0);
  EXPECT_EQ(spec.attention_scale, 1.0F);
  EXPECT_EQ(spec.norm, NormKind::kRms);
  EXPECT_EQ(spec.norm_placement, NormPlacement::kPre);
  EXPECT_TRUE(spec.final_norm);
}

TEST_F(ModelSpecTest, AbsentKeysHaveTransformersDefaults) {
  const ModelSpec spec = Good({{"num_decoder_layers", nullptr},
                               {"relative_attention_num_buckets", nullptr},
                               {"relative_attention_max_distance", nullptr},
                               {"layer_norm_epsilon", nullptr},
                               {"feed_forward_proj", nullptr},
                               {"pad_token_id", nullptr}});
  EXPECT_EQ(spec.decoder.layers, 2);
  EXPECT_EQ(spec.relative_positions.buckets, 32);
  EXPECT_EQ(spec.relative_positions.max_distance, 128);
  EXPECT_FLOAT_EQ(spec.norm_epsilon, 1e-6F);
  EXPECT_EQ(spec.activation, Activation::kRelu);
  EXPECT_FALSE(spec.gated_ffn);
  EXPECT_EQ(spec.pad_token_id, 0);
  const ModelSpec mt5 = Good({{"model_type", "mt5"}, {"feed_forward_proj", nullptr}});
  EXPECT_EQ(mt5.activation, Activation::kGeluTanh);
  EXPECT_TRUE(mt5.gated_ffn);
}

TEST_F(ModelSpecTest, OnlyUmt5HasATableInEveryLayer) {
  EXPECT_FALSE(Good().encoder.position_bias_per_layer);
  EXPECT_FALSE(Good({{"model_type", "mt5"}}).decoder.position_bias_per_layer);
  EXPECT_TRUE(Good({{"model_type", "umt5"}}).encoder.position_bias_per_layer);
  EXPECT_TRUE(Good({{"model_type", "umt5"}}).decoder.position_bias_per_layer);
}

TEST_F(ModelSpecTest, ReadsTheFeedForward) {
  const auto check = [this](const Json& changes, Activation activation, bool gated) {
    const ModelSpec spec = Good(changes);
    EXPECT_EQ(spec.activation, activation) << changes;
    EXPECT_EQ(spec.gated_ffn, gated) << changes;
  };
  check({{"feed_forward_proj", "relu"}}, Activation::kRelu, false);
  check({{"feed_forward_proj", "gelu"}}, Activation::kGelu, false);
  check({{"feed_forward_proj", "gelu_new"}}, Activation::kGeluTanh, false);
  check({{"feed_forward_proj", "gated-gelu"}}, Activation::kGeluTanh, true);
  check({{"feed_forward_proj", "gated-silu"}}, Activation::kSilu, true);
  check({{"feed_forward_proj", "gated-swish"}}, Activation::kSilu, true);
  check({{"feed_forward_proj", "gated-relu"}}, Activation::kRelu, true);
  check({{"feed_forward_proj", "gated-gelu"}, {"dense_act_fn", "gelu"}}, Activation::kGelu, true);
  check({{"feed_forward_proj", "relu"}, {"is_gated_act", true}}, Activation::kRelu, true);
}

TEST_F(ModelSpecTest, UnknownActivationsAreErrors) {
  EXPECT_EQ(ErrorOf({{"feed_forward_proj", "gated-tanh"}}),
            "key 'feed_forward_proj' is \"gated-tanh\"; one of relu, gelu, gelu_new, "
            "gelu_pytorch_tanh, silu, swish, each with or without 'gated-' in front, is allowed");
  EXPECT_NE(ErrorOf({{"feed_forward_proj", "gated-"}}), "accepted");
  EXPECT_NE(ErrorOf({{"feed_forward_proj", "gated"}}), "accepted");
  EXPECT_NE(ErrorOf({{"feed_forward_proj", "gated-gated-relu"}}), "accepted");
  EXPECT_NE(ErrorOf({{"feed_forward_proj", 3}}), "accepted");
  EXPECT_EQ(ErrorOf({{"dense_act_fn", "tanh"}}),
            "key 'dense_act_fn' is \"tanh\"; one of relu, gelu, gelu_new, gelu_pytorch_tanh, silu, "
            "swish is allowed");
  EXPECT_EQ(ErrorOf({{"is_gated_act", "yes"}}),
            "key 'is_gated_act' is \"yes\"; true or false is allowed");
}

// d_model is 16, so that the scale is 1/4.
TEST_F(ModelSpecTest, ScalesTheHeadsInputAsTransformersDoes) {
  const auto scale = [this](const Json& changes) { return Good(changes).head_input_scale; };
  for (const char* type : {"t5", "umt5"}) {
    EXPECT_EQ(scale({{"model_type", type}, {"tie_word_embeddings", true}}), 0.25F);
    EXPECT_EQ(scale({{"model_type", type}, {"tie_word_embeddings", nullptr}}), 0.25F);
    EXPECT_EQ(scale({{"model_type", type}, {"tie_word_embeddings", false}}), 1.0F);
    EXPECT_EQ(scale({{"model_type", type},
                     {"tie_word_embeddings", true},
                     {"scale_decoder_outputs", false}}),
              1.0F);
    EXPECT_EQ(scale({{"model_type", type},
                     {"tie_word_embeddings", false},
                     {"scale_decoder_outputs", true}}),
              0.25F);
  }
  EXPECT_EQ(scale({{"model_type", "mt5"}, {"tie_word_embeddings", true}}), 1.0F);
  EXPECT_EQ(scale({{"model_type", "mt5"}, {"scale_decoder_outputs", true}}), 1.0F);
  EXPECT_TRUE(Good({{"tie_word_embeddings", nullptr}}).tied_head);
  EXPECT_FALSE(Good({{"tie_word_embeddings", false}}).tied_head);
}

TEST_F(ModelSpecTest, OtherModelsAreErrors) {
  EXPECT_EQ(ErrorOf({{"model_type", "bart"}}),
            "key 'model_type' is \"bart\"; one of t5, mt5, umt5 is supported");
  EXPECT_EQ(ErrorOf({{"model_type", nullptr}}),
            "key 'model_type' is absent; one of t5, mt5, umt5 is supported");
  EXPECT_EQ(ErrorOf({{"model_type", 5}}), "key 'model_type' is 5; a string is allowed");
  EXPECT_EQ(ErrorOf({{"is_encoder_decoder", false}}),
            "key 'is_encoder_decoder' is false; true is needed");
  EXPECT_EQ(
      ErrorOf({{"quantization_config", {{"bits", 8}}}}),
      "key 'quantization_config' is {\"bits\":8}; weights must be float32, float16 or bfloat16, "
      "not quantized");
}

struct IntKey {
  std::string key;
  int64_t low;
  int64_t high;
  bool required;
};

class ModelSpecIntKey : public ModelSpecTest, public testing::WithParamInterface<IntKey> {};

INSTANTIATE_TEST_SUITE_P(
    Keys, ModelSpecIntKey,
    testing::Values(IntKey{"vocab_size", 1, 1 << 24, true}, IntKey{"d_model", 1, 1 << 20, true},
                    IntKey{"d_ff", 1, 1 << 20, true}, IntKey{"d_kv", 1, 4096, true},
                    IntKey{"num_heads", 1, 1024, true}, IntKey{"num_layers", 1, 1024, true},
                    IntKey{"num_decoder_layers", 1, 1024, false},
                    IntKey{"relative_attention_num_buckets", 4, 65536, false},
                    IntKey{"relative_attention_max_distance", 2, 1 << 24, false},
                    IntKey{"pad_token_id", 0, 39, false}),
    [](const auto& info) { return info.param.key; });

TEST_P(ModelSpecIntKey, HasARange) {
  const IntKey& test = GetParam();
  const std::string range =
      "an integer in [" + std::to_string(test.low) + ", " + std::to_string(test.high) + "] is ";
  for (const int64_t value : {test.low - 1, test.high + 1, INT64_MIN, INT64_MAX}) {
    EXPECT_EQ(ErrorOf({{test.key, value}}),
              "key '" + test.key + "' is " + std::to_string(value) + "; " + range + "allowed");
  }
  EXPECT_EQ(ErrorOf({{test.key, 8.5}}), "key '" + test.key + "' is 8.5; " + range + "allowed");
  EXPECT_EQ(ErrorOf({{test.key, "8"}}), "key '" + test.key + "' is \"8\"; " + range + "allowed");
  if (test.required) {
    EXPECT_EQ(ErrorOf({{test.key, nullptr}}),
              "key '" + test.key + "' is absent; " + range + "needed");
  }
}

TEST_F(ModelSpecTest, DistancesMustExceedTheExactBuckets) {
  EXPECT_EQ(Good({{"relative_attention_max_distance", 5}}).relative_positions.max_distance, 5);
  EXPECT_EQ(ErrorOf({{"relative_attention_max_distance", 4}}),
            "key 'relative_attention_max_distance' is 4; more than half of "
            "relative_attention_num_buckets (8) is needed");
}

TEST_F(ModelSpecTest, EpsilonIsPositive) {
  EXPECT_FLOAT_EQ(Good({{"layer_norm_epsilon", 1e-5}}).norm_epsilon, 1e-5F);
  EXPECT_EQ(ErrorOf({{"layer_norm_epsilon", 0}}),
            "key 'layer_norm_epsilon' is 0; a number in (0, 1] is allowed");
  EXPECT_NE(ErrorOf({{"layer_norm_epsilon", -1e-6}}), "accepted");
  EXPECT_NE(ErrorOf({{"layer_norm_epsilon", 1e-300}}), "accepted");
  EXPECT_NE(ErrorOf({{"layer_norm_epsilon", "1e-6"}}), "accepted");
}

TEST_F(ModelSpecTest, AMissingFileIsNotFound) {
  const auto spec = LoadModelSpec(directory_ / "nowhere");
  ASSERT_FALSE(spec);
  EXPECT_EQ(spec.error().code, ErrorCode::kNotFound);
  EXPECT_NE(spec.error().message.find("config.json"), std::string::npos);
}

}  // namespace
}  // namespace seq2seq
