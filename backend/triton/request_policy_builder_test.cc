#include "backend/triton/request_policy_builder.h"

#include <gtest/gtest.h>

#include <string>

namespace seq2seq {
namespace {

ModelSpec Spec(int32_t positions) {
  ModelSpec spec;
  spec.vocab_size = 100;
  spec.max_positions = positions;
  return spec;
}

TEST(RequestPolicyBuilderTest, UnlimitedPositionsMean4096) {
  const auto built = BuildRequestPolicy({}, Spec(0), {});
  ASSERT_TRUE(built);
  EXPECT_EQ(built->policy.vocab_size, 100);
  EXPECT_EQ(built->policy.max_source_tokens, 4096);
  EXPECT_EQ(built->policy.max_new_tokens, 4096);
  EXPECT_EQ(built->policy.max_decoder_tokens, 8192);
  EXPECT_EQ(built->policy.fallback_max_new_tokens, 256);
  EXPECT_FALSE(built->policy.default_max_new_tokens);
  EXPECT_EQ(built->policy.default_sampling, SamplingOptions{});
  EXPECT_TRUE(built->notes.empty());
}

TEST(RequestPolicyBuilderTest, PositionsAreTheDefaultAndTheLimit) {
  const auto built = BuildRequestPolicy({}, Spec(512), {});
  ASSERT_TRUE(built);
  EXPECT_EQ(built->policy.max_source_tokens, 512);
  EXPECT_EQ(built->policy.max_new_tokens, 512);
  EXPECT_EQ(built->policy.max_decoder_tokens, 512);

  ModelOptions options;
  options.max_source_tokens = 513;
  const auto refused = BuildRequestPolicy(options, Spec(512), {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "config.pbtxt: parameter 'max_source_tokens' is '513'; allowed is an integer from 1 to "
            "512, the model's positions");
}

TEST(RequestPolicyBuilderTest, OptionsSetTheLimits) {
  ModelOptions options;
  options.max_source_tokens = 50;
  options.max_new_tokens = 30;
  const auto built = BuildRequestPolicy(options, Spec(0), {});
  ASSERT_TRUE(built);
  EXPECT_EQ(built->policy.max_source_tokens, 50);
  EXPECT_EQ(built->policy.max_new_tokens, 30);
  EXPECT_EQ(built->policy.max_decoder_tokens, 80);
  EXPECT_EQ(built->policy.fallback_max_new_tokens, 30);  // the table's 256 does not fit
}

TEST(RequestPolicyBuilderTest, HugeLimitsDoNotOverflow) {
  ModelOptions options;
  options.max_source_tokens = 2147483647;
  options.max_new_tokens = 2147483647;
  const auto built = BuildRequestPolicy(options, Spec(0), {});
  ASSERT_TRUE(built);
  EXPECT_EQ(built->policy.max_decoder_tokens, 2147483647);
}

TEST(RequestPolicyBuilderTest, TheModelsOwnDefaultsAreTaken) {
  GenerationConfig generation;
  generation.pad_token_id = 3;
  generation.decoder_start_token_id = 4;
  generation.max_new_tokens = 20;
  generation.max_length = 40;
  generation.min_new_tokens = 2;
  generation.min_length = 5;
  generation.do_sample = true;
  generation.temperature = 0.5F;
  generation.top_k = 10;
  generation.top_p = 0.9F;
  generation.min_p = 0.1F;
  generation.typical_p = 0.8F;
  const auto built = BuildRequestPolicy({}, Spec(0), generation);
  ASSERT_TRUE(built);
  const RequestPolicy& policy = built->policy;
  EXPECT_EQ(policy.pad_token_id, 3);
  EXPECT_EQ(policy.decoder_start_token_id, 4);
  EXPECT_EQ(policy.default_max_new_tokens, 20);
  EXPECT_EQ(policy.default_max_length, 40);
  EXPECT_EQ(policy.default_min_new_tokens, 2);
  EXPECT_EQ(policy.default_min_length, 5);
  EXPECT_EQ(policy.default_sampling, (SamplingOptions{.do_sample = true,
                                                      .temperature = 0.5F,
                                                      .top_k = 10,
                                                      .top_p = 0.9F,
                                                      .min_p = 0.1F,
                                                      .typical_p = 0.8F,
                                                      .seed = 0,
                                                      .return_logprobs = false}));
}

TEST(RequestPolicyBuilderTest, InheritedDefaultsAboveTheLimitAreClampedAndNoted) {
  ModelOptions options;
  options.max_new_tokens = 10;
  GenerationConfig generation;
  generation.max_new_tokens = 200;
  const auto built = BuildRequestPolicy(options, Spec(0), generation);
  ASSERT_TRUE(built);
  EXPECT_EQ(built->policy.default_max_new_tokens, 10);
  ASSERT_EQ(built->notes.size(), 1U);
  EXPECT_EQ(built->notes[0],
            "generation_config.json: max_new_tokens is 200, clamped to the model's limit of 10");

  generation = {};
  generation.max_length = 900;
  const auto length = BuildRequestPolicy({}, Spec(512), generation);
  ASSERT_TRUE(length);
  EXPECT_EQ(length->policy.default_max_length, 512);
  EXPECT_EQ(length->notes.size(), 1U);
}

TEST(RequestPolicyBuilderTest, AConfiguredDefaultAboveTheLimitFails) {
  ModelOptions options;
  options.max_new_tokens = 10;
  options.default_max_new_tokens = 11;
  const auto built = BuildRequestPolicy(options, Spec(0), {});
  ASSERT_FALSE(built);
  EXPECT_NE(built.error().message.find("'default_max_new_tokens' is '11'"), std::string::npos);
}

}  // namespace
}  // namespace seq2seq
