#include "backend/request/request_options.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace seq2seq {
namespace {

using Pairs = std::vector<std::pair<std::string, OptionValue>>;

constexpr int64_t kMaxInt = std::numeric_limits<int64_t>::max();
constexpr int64_t kMinInt = std::numeric_limits<int64_t>::min();
constexpr double kInf = std::numeric_limits<double>::infinity();

std::string ErrorOf(const Pairs& options) {
  const auto result = ReadRequestOptions(options);
  if (result) return "accepted";
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  return result.error().message;
}

OptionValue Text(std::string text) { return OptionValue(std::move(text)); }
OptionValue Int(int64_t value) { return OptionValue(value); }
OptionValue Real(double value) { return OptionValue(value); }

TEST(ShownText, LongOnesAreCutBetweenCharacters) {
  // Two bytes a character: the 80 bytes that are shown end within one.
  const std::string umlauts = "\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4";
  const std::string forty = umlauts + umlauts + umlauts + umlauts;
  const std::string error = ErrorOf({{"top_k", Text("x" + forty + "y")}});
  EXPECT_EQ(error,
            "option 'top_k' is \"x" + forty.substr(0, 78) + "...\"; an integer >= 0 is allowed");
  const std::string unknown = ErrorOf({{"x" + forty + "y", Int(1)}});
  EXPECT_EQ(unknown.find("option 'x" + forty.substr(0, 78) + "...' is 1"), 0U) << unknown;
}

struct IntCase {
  std::string name;
  std::optional<int64_t> RequestOptions::* field;
  std::vector<int64_t> good;
  std::vector<int64_t> bad;
  std::string range;
};

class IntOption : public testing::TestWithParam<IntCase> {};

INSTANTIATE_TEST_SUITE_P(
    Table, IntOption,
    testing::Values(
        IntCase{"max_new_tokens",
                &RequestOptions::max_new_tokens,
                {1, 256},
                {0, -1},
                "an integer >= 1"},
        IntCase{
            "max_tokens", &RequestOptions::max_new_tokens, {1, 256}, {0, -1}, "an integer >= 1"},
        IntCase{"max_length", &RequestOptions::max_length, {1, 32}, {0, -5}, "an integer >= 1"},
        IntCase{"min_new_tokens", &RequestOptions::min_new_tokens, {0, 3}, {-1}, "an integer >= 0"},
        IntCase{"min_length", &RequestOptions::min_length, {0, 3}, {-1}, "an integer >= 0"},
        IntCase{
            "top_k", &RequestOptions::top_k, {0, 50, kMaxInt}, {-1, kMinInt}, "an integer >= 0"},
        IntCase{"seed", &RequestOptions::seed, {0, -1, kMinInt, kMaxInt}, {}, "a 64-bit integer"},
        IntCase{"random_seed",
                &RequestOptions::seed,
                {0, -1, kMinInt, kMaxInt},
                {},
                "a 64-bit integer"},
        IntCase{"timeout", &RequestOptions::timeout_us, {0, 1000000}, {-1}, "an integer >= 0"}),
    [](const auto& info) { return info.param.name; });

TEST_P(IntOption, TakesItsRangeOnly) {
  const IntCase& test = GetParam();
  for (const int64_t value : test.good) {
    const auto result = ReadRequestOptions({{test.name, Int(value)}});
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(*result.*test.field, value);
  }
  for (const int64_t value : test.bad) {
    EXPECT_EQ(ErrorOf({{test.name, Int(value)}}), "option '" + test.name + "' is " +
                                                      std::to_string(value) + "; " + test.range +
                                                      " is allowed");
  }
}

TEST_P(IntOption, TakesNoOtherType) {
  const std::string& name = GetParam().name;
  const std::string end = "; " + GetParam().range + " is allowed";
  EXPECT_EQ(ErrorOf({{name, Real(5.5)}}), "option '" + name + "' is 5.5" + end);
  EXPECT_EQ(ErrorOf({{name, Real(5.0)}}), "option '" + name + "' is 5.0" + end);
  EXPECT_EQ(ErrorOf({{name, Text("5")}}), "option '" + name + "' is \"5\"" + end);
  EXPECT_EQ(ErrorOf({{name, OptionValue(true)}}), "option '" + name + "' is true" + end);
}

struct RealCase {
  std::string name;
  std::optional<double> RequestOptions::* field;
  std::vector<double> good;
  std::vector<double> bad;
  int64_t good_integer;
  std::string range;
};

class RealOption : public testing::TestWithParam<RealCase> {};

INSTANTIATE_TEST_SUITE_P(Table, RealOption,
                         testing::Values(RealCase{"response_interval_ms",
                                                  &RequestOptions::response_interval_ms,
                                                  {0.0, 0.5, 60000.0},
                                                  {-0.001, 60000.001, 1e300},
                                                  7,
                                                  "a number in [0, 60000] is allowed"},
                                         RealCase{"temperature",
                                                  &RequestOptions::temperature,
                                                  {0.0, 1e-300, 0.7, 3e38},
                                                  {-1.0, 3.5e38},
                                                  2,
                                                  "a number >= 0, at most 3.4e38, is allowed"},
                                         RealCase{"top_p",
                                                  &RequestOptions::top_p,
                                                  {1e-9, 0.9, 1.0},
                                                  {0.0, -0.1, 1.0000001},
                                                  1,
                                                  "a number in (0, 1] is allowed"},
                                         RealCase{"typical_p",
                                                  &RequestOptions::typical_p,
                                                  {1e-9, 0.9, 1.0},
                                                  {0.0, -0.1, 1.0000001},
                                                  1,
                                                  "a number in (0, 1] is allowed"},
                                         RealCase{"min_p",
                                                  &RequestOptions::min_p,
                                                  {0.0, 0.05, 1.0},
                                                  {-1e-9, 1.0000001},
                                                  0,
                                                  "a number in [0, 1] is allowed"}),
                         [](const auto& info) { return info.param.name; });

TEST_P(RealOption, TakesItsRangeOnly) {
  const RealCase& test = GetParam();
  for (const double value : test.good) {
    const auto result = ReadRequestOptions({{test.name, Real(value)}});
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(*result.*test.field, value);
  }
  for (const double value : test.bad) {
    const std::string message = ErrorOf({{test.name, Real(value)}});
    EXPECT_TRUE(message.starts_with("option '" + test.name + "' is ")) << message;
    EXPECT_TRUE(message.ends_with("; " + test.range)) << message;
  }
}

TEST_P(RealOption, TakesIntegersButNoOtherType) {
  const RealCase& test = GetParam();
  const auto result = ReadRequestOptions({{test.name, Int(test.good_integer)}});
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(*result.*test.field, static_cast<double>(test.good_integer));
  const std::string start = "option '" + test.name + "' is ";
  EXPECT_EQ(ErrorOf({{test.name, Int(-2)}}), start + "-2; " + test.range);
  EXPECT_EQ(ErrorOf({{test.name, Text("0.5")}}), start + "\"0.5\"; " + test.range);
  EXPECT_EQ(ErrorOf({{test.name, OptionValue(true)}}), start + "true; " + test.range);
}

TEST_P(RealOption, RefusesWhatIsNotFinite) {
  const std::string start = "option '" + GetParam().name + "' is ";
  const std::string end = "; " + GetParam().range;
  EXPECT_EQ(ErrorOf({{GetParam().name, Real(std::nan(""))}}), start + "nan" + end);
  EXPECT_EQ(ErrorOf({{GetParam().name, Real(kInf)}}), start + "inf" + end);
  EXPECT_EQ(ErrorOf({{GetParam().name, Real(-kInf)}}), start + "-inf" + end);
}

struct BoolCase {
  std::string name;
  std::optional<bool> RequestOptions::* field;
};

class BoolOption : public testing::TestWithParam<BoolCase> {};

INSTANTIATE_TEST_SUITE_P(Table, BoolOption,
                         testing::Values(BoolCase{"stream", &RequestOptions::stream},
                                         BoolCase{"do_sample", &RequestOptions::do_sample},
                                         BoolCase{"return_logprobs",
                                                  &RequestOptions::return_logprobs}),
                         [](const auto& info) { return info.param.name; });

TEST_P(BoolOption, TakesTrueAndFalseOnly) {
  const BoolCase& test = GetParam();
  for (const bool value : {true, false}) {
    const auto result = ReadRequestOptions({{test.name, OptionValue(value)}});
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(*result.*test.field, value);
  }
  const std::string start = "option '" + test.name + "' is ";
  const std::string end = "; true or false is allowed";
  EXPECT_EQ(ErrorOf({{test.name, Int(1)}}), start + "1" + end);
  EXPECT_EQ(ErrorOf({{test.name, Real(0.0)}}), start + "0.0" + end);
  EXPECT_EQ(ErrorOf({{test.name, Text("true")}}), start + "\"true\"" + end);
}

TEST(RequestOptions, UnknownNamesAreRefusedWithTheAllowedOnes) {
  for (const std::string name : {"num_beams", "repetition_penalty", "stop", "n", "Top_K", "top_k ",
                                 "", "no_repeat_ngram_size"}) {
    EXPECT_EQ(
        ErrorOf({{name, Int(2)}}),
        "option '" + name +
            "' is 2; there is no such option; allowed are max_new_tokens (or max_tokens), "
            "max_length, min_new_tokens, min_length, stream, response_interval_ms, do_sample, "
            "temperature, top_k, top_p, typical_p, min_p, seed (or random_seed), "
            "return_logprobs, timeout");
  }
}

TEST(RequestOptions, IdIsPassedOver) {
  EXPECT_EQ(ErrorOf({{"id", Text("42")}, {"id", Int(42)}}), "accepted");
}

TEST(RequestOptions, OneOptionMayBeSetOnce) {
  EXPECT_EQ(
      ErrorOf({{"max_new_tokens", Int(3)}, {"max_tokens", Int(4)}}),
      "option 'max_tokens' is 4; only one of 'max_new_tokens' and 'max_tokens' may be set, once");
  EXPECT_EQ(ErrorOf({{"random_seed", Int(3)}, {"seed", Int(3)}}),
            "option 'seed' is 3; only one of 'seed' and 'random_seed' may be set, once");
  EXPECT_EQ(ErrorOf({{"top_k", Int(3)}, {"top_p", Real(0.5)}, {"top_k", Int(3)}}),
            "option 'top_k' is 3; it may be set once, but is set twice");
}

TEST(RequestOptions, LongNamesAndValuesAreShortened) {
  const std::string message = ErrorOf({{std::string(5000, 'n'), Text(std::string(100000, 'v'))}});
  EXPECT_LT(message.size(), 600U);
  EXPECT_NE(message.find("nnn...'"), std::string::npos);
  EXPECT_NE(message.find("vvv...\""), std::string::npos);
}

TEST(RequestOptions, NothingSetIsNothing) {
  const auto result = ReadRequestOptions({});
  ASSERT_TRUE(result);
  EXPECT_FALSE(result->max_new_tokens || result->stream || result->temperature || result->seed);
}

}  // namespace
}  // namespace seq2seq
