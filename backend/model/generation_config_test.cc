#include "backend/model/generation_config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backend/testing/tiny_checkpoint.h"

namespace seq2seq {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class GenerationConfigTest : public testing::Test {
 protected:
  GenerationConfigTest() : directory_(fs::path(testing::TempDir()) / "generation_config_test") {
    fs::create_directories(directory_);
    spec_.vocab_size = 40;
    spec_.pad_token_id = 0;
  }
  ~GenerationConfigTest() override { fs::remove_all(directory_); }

  Result<GenerationConfig> Load(const Json& changes, const Json& config_changes = Json::object()) {
    TinyCheckpointOptions options;
    options.generation_config = changes;
    options.config = config_changes;
    EXPECT_TRUE(WriteTinyCheckpoint(directory_, options));
    return LoadGenerationConfig(directory_, spec_);
  }

  GenerationConfig Good(const Json& changes, const Json& config_changes = Json::object()) {
    const auto config = Load(changes, config_changes);
    EXPECT_TRUE(config) << config.error().message;
    return config.value_or(GenerationConfig());
  }

  std::string ErrorOf(const Json& changes) {
    const auto config = Load(changes);
    if (config) return "accepted";
    const std::string start = (directory_ / "generation_config.json").string() + ": ";
    EXPECT_TRUE(config.error().message.starts_with(start)) << config.error().message;
    return config.error().message.substr(start.size());
  }

  fs::path directory_;
  ModelSpec spec_;
};

TEST_F(GenerationConfigTest, WhatTheFileDoesNotSayIsOff) {
  const GenerationConfig config = Good(Json::object());
  EXPECT_EQ(config.decoder_start_token_id, 0);
  EXPECT_EQ(config.pad_token_id, 0);
  EXPECT_EQ(config.eos_token_ids, std::vector<int32_t>{1});
  EXPECT_FALSE(config.do_sample);
  EXPECT_FALSE(config.max_new_tokens || config.max_length || config.min_new_tokens ||
               config.min_length);
  EXPECT_FALSE(config.temperature || config.top_k || config.top_p || config.min_p ||
               config.typical_p);
}

TEST_F(GenerationConfigTest, ReadsWhatItSays) {
  const GenerationConfig config = Good({{"decoder_start_token_id", 3},
                                        {"pad_token_id", 4},
                                        {"eos_token_id", {7, 8, 7}},
                                        {"max_new_tokens", 20},
                                        {"max_length", 30},
                                        {"min_new_tokens", 2},
                                        {"min_length", 0},
                                        {"do_sample", true},
                                        {"temperature", 0.5},
                                        {"top_k", 50},
                                        {"top_p", 0.75},
                                        {"min_p", 0.125},
                                        {"typical_p", 1}});
  EXPECT_EQ(config.decoder_start_token_id, 3);
  EXPECT_EQ(config.pad_token_id, 4);
  EXPECT_EQ(config.eos_token_ids, (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(config.max_new_tokens, 20);
  EXPECT_EQ(config.max_length, 30);
  EXPECT_EQ(config.min_new_tokens, 2);
  EXPECT_EQ(config.min_length, 0);
  EXPECT_TRUE(config.do_sample);
  EXPECT_EQ(config.temperature, 0.5F);
  EXPECT_EQ(config.top_k, 50);
  EXPECT_EQ(config.top_p, 0.75F);
  EXPECT_EQ(config.min_p, 0.125F);
  EXPECT_EQ(config.typical_p, 1.0F);
}

TEST_F(GenerationConfigTest, TemperatureZeroIsGreedy) {
  const GenerationConfig config = Good({{"do_sample", true}, {"temperature", 0.0}});
  EXPECT_FALSE(config.do_sample);
  EXPECT_FALSE(config.temperature);
}

TEST_F(GenerationConfigTest, TokenIdsFallBackToConfigJson) {
  const Json nothing = {
      {"decoder_start_token_id", nullptr}, {"eos_token_id", nullptr}, {"pad_token_id", nullptr}};
  const Json ids = {{"decoder_start_token_id", 5}, {"eos_token_id", {6}}, {"pad_token_id", 7}};
  const GenerationConfig config = Good(nothing, ids);
  EXPECT_EQ(config.decoder_start_token_id, 5);
  EXPECT_EQ(config.eos_token_ids, std::vector<int32_t>{6});
  EXPECT_EQ(config.pad_token_id, 7);
  fs::remove(directory_ / "generation_config.json");
  const auto without = LoadGenerationConfig(directory_, spec_);
  ASSERT_TRUE(without) << without.error().message;
  EXPECT_EQ(without->decoder_start_token_id, 5);
  EXPECT_EQ(without->eos_token_ids, std::vector<int32_t>{6});

  const GenerationConfig own = Good({{"eos_token_id", 9}}, ids);
  EXPECT_EQ(own.eos_token_ids, std::vector<int32_t>{9});

  const GenerationConfig family = Good(nothing, nothing);
  EXPECT_EQ(family.decoder_start_token_id, family.pad_token_id);
  EXPECT_EQ(family.eos_token_ids, std::vector<int32_t>{1});
}

TEST_F(GenerationConfigTest, ValuesHaveRanges) {
  EXPECT_EQ(ErrorOf({{"max_new_tokens", 0}}),
            "key 'max_new_tokens' is 0; an integer in [1, 2147483647] is allowed");
  EXPECT_EQ(ErrorOf({{"max_length", 2147483648}}),
            "key 'max_length' is 2147483648; an integer in [1, 2147483647] is allowed");
  EXPECT_EQ(ErrorOf({{"min_length", -1}}),
            "key 'min_length' is -1; an integer in [0, 2147483647] is allowed");
  EXPECT_EQ(ErrorOf({{"min_new_tokens", "3"}}),
            "key 'min_new_tokens' is \"3\"; an integer in [0, 2147483647] is allowed");
  EXPECT_EQ(ErrorOf({{"top_k", -1}}),
            "key 'top_k' is -1; an integer in [0, 2147483647] is allowed");
  EXPECT_EQ(ErrorOf({{"top_p", 0}}), "key 'top_p' is 0; a number in (0, 1] is allowed");
  EXPECT_EQ(ErrorOf({{"top_p", 1e-300}}),
            "key 'top_p' is 1e-300; a number that float32 tells from 0 is needed");
  EXPECT_EQ(ErrorOf({{"typical_p", 1.5}}), "key 'typical_p' is 1.5; a number in (0, 1] is allowed");
  EXPECT_EQ(ErrorOf({{"min_p", -0.5}}), "key 'min_p' is -0.5; a number in [0, 1] is allowed");
  EXPECT_TRUE(
      ErrorOf({{"temperature", -1}}).starts_with("key 'temperature' is -1; a number in [0, "));
  EXPECT_EQ(ErrorOf({{"do_sample", 1}}), "key 'do_sample' is 1; true or false is allowed");
  EXPECT_EQ(ErrorOf({{"decoder_start_token_id", 40}}),
            "key 'decoder_start_token_id' is 40; an integer in [0, 39] is allowed");
  EXPECT_EQ(ErrorOf({{"decoder_start_token_id", {0}}}),
            "key 'decoder_start_token_id' is [0]; an integer in [0, 39] is allowed");
  EXPECT_EQ(ErrorOf({{"pad_token_id", -1}}),
            "key 'pad_token_id' is -1; an integer in [0, 39] is allowed");
}

TEST_F(GenerationConfigTest, EosIsAnIdOrAListOfIds) {
  for (const Json& eos : {Json(40), Json(-1), Json("1"), Json(1.0), Json(true), Json::array(),
                          Json({1, 40}), Json({1, Json::array({2})}), Json({{"id", 1}})}) {
    EXPECT_EQ(ErrorOf({{"eos_token_id", eos}}),
              "key 'eos_token_id' is " + eos.dump() +
                  "; an id in [0, 39], or a list of 1 to 64 such ids, is allowed");
  }
}

struct Case {
  std::string name;
  Json neutral;
  Json active;
  std::string allowed;
};

// Keys of transformers' GenerationConfig that change tokens and are not acted on.
TEST_F(GenerationConfigTest, KeysThatChangeTokensFailUnlessNeutral) {
  const std::string one = "only 1 or null is supported";
  const std::string zero = "only 0 or null is supported";
  const std::string empty = "only an empty list or null is supported";
  const std::string null = "only null is supported";
  for (const Case& test :
       std::vector<Case>{{"num_beams", 1, 4, one},
                         {"num_beam_groups", 1, 2, one},
                         {"num_return_sequences", 1, 2, one},
                         {"repetition_penalty", 1.0, 1.2, one},
                         {"encoder_repetition_penalty", 1, 0.9, one},
                         {"guidance_scale", 1.0, 1.5, one},
                         {"no_repeat_ngram_size", 0, 3, zero},
                         {"encoder_no_repeat_ngram_size", 0, 2, zero},
                         {"diversity_penalty", 0.0, 0.5, zero},
                         {"penalty_alpha", 0, 0.6, zero},
                         {"epsilon_cutoff", 0.0, 3e-4, zero},
                         {"eta_cutoff", 0.0, 3e-4, zero},
                         {"bad_words_ids", Json::array(), {{5}}, empty},
                         {"suppress_tokens", Json::array(), {5}, empty},
                         {"begin_suppress_tokens", Json::array(), {5}, empty},
                         {"force_words_ids", Json::array(), {{5}}, empty},
                         {"forced_decoder_ids", Json::array(), {{1, 5}}, empty},
                         {"sequence_bias", Json::array(), {{{5}, 1.0}}, empty},
                         {"stop_strings", Json::array(), {"x"}, empty},
                         {"constraints", Json::array(), {"x"}, empty},
                         {"forced_bos_token_id", nullptr, 5, null},
                         {"forced_eos_token_id", nullptr, 1, null},
                         {"exponential_decay_length_penalty", nullptr, {5, 1.1}, null},
                         {"max_time", nullptr, 2.0, null},
                         {"top_h", nullptr, 0.5, null},
                         {"watermarking_config", nullptr, {{"bias", 2.0}}, null},
                         {"prompt_lookup_num_tokens", nullptr, 3, null},
                         {"dola_layers", nullptr, "high", null},
                         {"assistant_early_exit", nullptr, 4, null},
                         {"speculation_type", nullptr, "dflash", null},
                         {"token_healing", false, true, "only false or null is supported"},
                         {"use_mtp", false, true, "only false or null is supported"}}) {
    EXPECT_EQ(ErrorOf({{test.name, test.neutral}}), "accepted") << test.name;
    EXPECT_EQ(ErrorOf({{test.name, test.active}}),
              "key '" + test.name + "' is " + test.active.dump() + "; " + test.allowed);
    EXPECT_NE(ErrorOf({{test.name, "1"}}), "accepted") << test.name;
  }
}

TEST_F(GenerationConfigTest, InformationalKeysPass) {
  Good({{"transformers_version", "5.24.0"},
        {"_from_model_config", true},
        {"_commit_hash", "abc"},
        {"use_cache", false},
        {"output_scores", true},
        {"output_attentions", true},
        {"output_hidden_states", true},
        {"output_logits", true},
        {"return_dict_in_generate", true},
        {"bos_token_id", 0},
        {"cache_implementation", "static"},
        {"length_penalty", 2.0},  // of beams, and there is one
        {"early_stopping", true},
        {"renormalize_logits", true},
        {"remove_invalid_values", true}});
}

TEST_F(GenerationConfigTest, UnknownKeysFailUnlessNull) {
  EXPECT_EQ(ErrorOf({{"logit_shaper", 2}}),
            "key 'logit_shaper' is 2; the key is unknown, so it might change tokens; remove it");
  // A patch cannot carry null, so the file is written by hand.
  ASSERT_TRUE(WriteTextFile(directory_ / "generation_config.json", R"({"logit_shaper": null})"));
  EXPECT_TRUE(LoadGenerationConfig(directory_, spec_));
}

TEST_F(GenerationConfigTest, NullsPass) {
  ASSERT_TRUE(WriteTinyCheckpoint(directory_, {}));
  ASSERT_TRUE(WriteTextFile(directory_ / "generation_config.json",
                            R"({"num_beams": null, "top_k": null, "eos_token_id": null})"));
  const auto config = LoadGenerationConfig(directory_, spec_);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_FALSE(config->top_k);
  EXPECT_EQ(config->eos_token_ids, std::vector<int32_t>{1});
}

TEST_F(GenerationConfigTest, ALinkThatLeadsNowhereIsAnError) {
  ASSERT_TRUE(WriteTinyCheckpoint(directory_, {}));
  fs::remove(directory_ / "generation_config.json");
  fs::create_symlink(directory_ / "gone", directory_ / "generation_config.json");
  const auto config = LoadGenerationConfig(directory_, spec_);
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().message, (directory_ / "generation_config.json").string() +
                                        ": cannot open: No such file or directory");
}

TEST_F(GenerationConfigTest, ABrokenFileIsAnError) {
  ASSERT_TRUE(WriteTinyCheckpoint(directory_, {}));
  ASSERT_TRUE(WriteTextFile(directory_ / "generation_config.json", "{"));
  EXPECT_FALSE(LoadGenerationConfig(directory_, spec_));
  fs::remove(directory_ / "generation_config.json");
  fs::create_directory(directory_ / "generation_config.json");
  EXPECT_FALSE(LoadGenerationConfig(directory_, spec_));
}

}  // namespace
}  // namespace seq2seq
