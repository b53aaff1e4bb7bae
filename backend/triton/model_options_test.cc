#include "backend/triton/model_options.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace seq2seq {
namespace {

nlohmann::json With(const std::string& key, const std::string& value) {
  return {{"parameters", {{key, {{"string_value", value}}}}}};
}

TEST(ModelOptionsTest, DefaultsWhereNothingIsSaid) {
  const Result<ModelOptions> options = ParseModelOptions(nlohmann::json::object());
  ASSERT_TRUE(options);
  EXPECT_EQ(options->engine, EngineChoice::kAuto);
  EXPECT_EQ(options->max_queue_size, 512);
  EXPECT_FALSE(options->max_active_sequences);
  EXPECT_FALSE(options->max_source_tokens);
  EXPECT_FALSE(options->max_new_tokens);
  EXPECT_FALSE(options->default_max_new_tokens);
  EXPECT_FALSE(options->kv_cache_bytes);
  EXPECT_FALSE(options->weights_dtype);
  EXPECT_FALSE(options->cpu_threads);
}

TEST(ModelOptionsTest, ReadsEachParameter) {
  EXPECT_EQ(ParseModelOptions(With("engine", "auto"))->engine, EngineChoice::kAuto);
  EXPECT_EQ(ParseModelOptions(With("engine", "cpu"))->engine, EngineChoice::kCpu);
  EXPECT_EQ(ParseModelOptions(With("engine", "cuda"))->engine, EngineChoice::kCuda);
  EXPECT_EQ(ParseModelOptions(With("max_active_sequences", "32"))->max_active_sequences, 32);
  EXPECT_EQ(ParseModelOptions(With("max_queue_size", "7"))->max_queue_size, 7);
  EXPECT_EQ(ParseModelOptions(With("max_source_tokens", "100"))->max_source_tokens, 100);
  EXPECT_EQ(ParseModelOptions(With("max_new_tokens", "200"))->max_new_tokens, 200);
  EXPECT_EQ(ParseModelOptions(With("default_max_new_tokens", "9"))->default_max_new_tokens, 9);
  EXPECT_EQ(ParseModelOptions(With("kv_cache_bytes", "8589934592"))->kv_cache_bytes, 8589934592);
  EXPECT_EQ(ParseModelOptions(With("weights_dtype", "bfloat16"))->weights_dtype, DType::kBFloat16);
  EXPECT_EQ(ParseModelOptions(With("cpu_threads", "3"))->cpu_threads, 3);
}

TEST(ModelOptionsTest, BadValuesNameKeyValueAndWhatIsAllowed) {
  struct Case {
    const char* key;
    const char* value;
    const char* allowed;
  };
  for (const Case& bad :
       {Case{"engine", "gpu", "auto, cpu or cuda"},
        Case{"max_active_sequences", "0", "an integer from 1 to 2147483647"},
        Case{"max_active_sequences", "2147483648", "from 1 to 2147483647"},
        Case{"max_queue_size", "-1", "an integer from 1 to 2147483647"},
        Case{"max_source_tokens", "12x", "an integer"}, Case{"max_new_tokens", "", "an integer"},
        Case{"default_max_new_tokens", " 5", "an integer"},
        Case{"kv_cache_bytes", "1e9", "an integer"},
        Case{"kv_cache_bytes", "9223372036854775808", "an integer"},
        Case{"weights_dtype", "int8", "float32, float16 or bfloat16"},
        Case{"cpu_threads", "1025", "an integer from 1 to 1024"}}) {
    const Result<ModelOptions> options = ParseModelOptions(With(bad.key, bad.value));
    ASSERT_FALSE(options) << bad.key;
    EXPECT_EQ(options.error().code, ErrorCode::kInvalidArgument);
    for (const std::string& part : {"'" + std::string(bad.key) + "'",
                                    "'" + std::string(bad.value) + "'", std::string(bad.allowed)}) {
      EXPECT_NE(options.error().message.find(part), std::string::npos)
          << options.error().message << " lacks " << part;
    }
  }
}

TEST(ModelOptionsTest, UnknownNamesFailNamingTheKnownOnes) {
  const Result<ModelOptions> options = ParseModelOptions(With("max_batch", "8"));
  ASSERT_FALSE(options);
  EXPECT_EQ(options.error().message,
            "config.pbtxt: unknown parameter 'max_batch'; allowed are cpu_threads, "
            "default_max_new_tokens, engine, kv_cache_bytes, max_active_sequences, max_new_tokens, "
            "max_queue_size, max_source_tokens, weights_dtype");
}

TEST(ModelOptionsTest, MalformedJsonIsAnErrorToo) {
  EXPECT_FALSE(ParseModelOptions({{"parameters", 3}}));
  EXPECT_FALSE(ParseModelOptions({{"parameters", {{"engine", "cpu"}}}}));
  EXPECT_FALSE(ParseModelOptions({{"parameters", {{"engine", {{"string_value", 3}}}}}}));
}

}  // namespace
}  // namespace seq2seq
