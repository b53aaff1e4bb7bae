#include "backend/triton/model_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace seq2seq {
namespace {

using nlohmann::json;

// As the README shows it.
json Complete() {
  return json::parse(R"({
    "max_batch_size": 0,
    "input": [
      {"name": "input_ids", "data_type": "TYPE_INT32", "dims": [-1], "optional": true},
      {"name": "decoder_input_ids", "data_type": "TYPE_INT32", "dims": [-1], "optional": true}],
    "output": [
      {"name": "output_ids", "data_type": "TYPE_INT32", "dims": [-1]},
      {"name": "logprobs", "data_type": "TYPE_FP32", "dims": [-1]}],
    "model_transaction_policy": {"decoupled": true}})");
}

TEST(ModelConfigTest, AnEmptyConfigurationIsCompleted) {
  json config = json::object();
  EXPECT_FALSE(ValidateModelConfig(config));
  CompleteModelConfig(&config);
  EXPECT_EQ(config, Complete());
  EXPECT_TRUE(ValidateModelConfig(config));
}

TEST(ModelConfigTest, OnlyWhatIsMissingIsAdded) {
  json config = Complete();
  config["output"].erase(1);
  config["name"] = "kept";
  CompleteModelConfig(&config);
  json expected = Complete();
  expected["name"] = "kept";
  EXPECT_EQ(config, expected);
}

TEST(ModelConfigTest, TritonsSpellingOfNumbersIsAccepted) {
  json config = Complete();
  config["input"][0]["dims"] = {"-1"};
  config["input"][0]["allow_ragged_batch"] = false;
  EXPECT_TRUE(ValidateModelConfig(config));
}

TEST(ModelConfigTest, OptionalTensorsMayBeLeftOut) {
  json config = Complete();
  config["input"].erase(1);
  config["output"].erase(1);
  EXPECT_TRUE(ValidateModelConfig(config));
}

struct BadConfig {
  const char* patch;  // JSON pointer
  json value;         // null: removed
  const char* message;
};

TEST(ModelConfigTest, WrongOnesAreRefusedNamingWhatIsExpected) {
  const BadConfig cases[] = {
      {"/max_batch_size", 8, "max_batch_size is 8; it must be 0"},
      {"/dynamic_batching", json::object(), "dynamic_batching is not allowed"},
      {"/sequence_batching", json::object(), "sequence_batching is not allowed"},
      {"/instance_group", {{{"kind", "KIND_CPU"}, {"passive", true}}}, "passive is not allowed"},
      {"/model_transaction_policy/decoupled", false, "must be { decoupled: true }"},
      {"/model_transaction_policy", nullptr, "must be { decoupled: true }"},
      {"/input/0/data_type", "TYPE_INT64", "input_ids TYPE_INT32 dims [-1] optional"},
      {"/input/0/dims", {1}, "input_ids TYPE_INT32 dims [-1] optional"},
      {"/input/0/dims", {-1, -1}, "input_ids TYPE_INT32 dims [-1] optional"},
      {"/input/0/optional", false, "input_ids TYPE_INT32 dims [-1] optional"},
      {"/input/0/reshape", {{"shape", {1}}}, "input_ids TYPE_INT32 dims [-1] optional"},
      {"/input/0/name", "ids", "unknown input \"ids\"; expected are: input_ids"},
      {"/input/0", 3, "unknown input null"},
      {"/input", 3, "'input' is not a list"},
      {"/input", nullptr, "input 'input_ids' is missing"},
      {"/output/0/data_type", "TYPE_INT64", "output_ids TYPE_INT32 dims [-1]"},
      {"/output/1/dims", {4}, "logprobs TYPE_FP32 dims [-1]"},
      {"/output", nullptr, "output 'output_ids' is missing"},
  };
  for (const BadConfig& bad : cases) {
    json config = Complete();
    const json::json_pointer where(bad.patch);
    if (bad.value.is_null()) {
      config.erase(where.back());
    } else {
      config[where] = bad.value;
    }
    const Status status = ValidateModelConfig(config);
    ASSERT_FALSE(status) << bad.patch;
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(status.error().message.find(bad.message), std::string::npos)
        << status.error().message << " lacks " << bad.message;
  }
}

TEST(ModelConfigTest, WhatIsNoJsonObjectIsRefused) {
  for (const char* text : {"", "[]", "{", "null", "{\"a\": }"}) {
    EXPECT_FALSE(ParseModelConfig(text)) << text;
  }
  EXPECT_TRUE(ParseModelConfig("{}"));
}

}  // namespace
}  // namespace seq2seq
