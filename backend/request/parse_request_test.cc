#include "backend/request/parse_request.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace seq2seq {
namespace {

constexpr int64_t kMaxInt = std::numeric_limits<int64_t>::max();
constexpr uint64_t kDrawnSeed = 0xABCDEF0123456789U;

using Options = std::vector<std::pair<std::string, OptionValue>>;

OptionValue Int(int64_t value) { return OptionValue(value); }
OptionValue Real(double value) { return OptionValue(value); }
OptionValue Bool(bool value) { return OptionValue(value); }

class ParseRequestTest : public testing::Test {
 protected:
  ParseRequestTest() {
    policy_.vocab_size = 100;
    policy_.pad_token_id = 0;
    policy_.decoder_start_token_id = 2;
    policy_.max_source_tokens = 10;
    policy_.max_new_tokens = 50;
    policy_.max_decoder_tokens = 60;
    policy_.fallback_max_new_tokens = 30;
    raw_.input_ids = {5, 6, 1};
    raw_.arrival_ns = 1000;
  }

  Result<Request> Parse(Options options) const {
    RawRequest raw = raw_;
    raw.options = std::move(options);
    return ParseRequest(std::move(raw), policy_, kDrawnSeed);
  }

  Request Good(Options options) const {
    const Result<Request> request = Parse(std::move(options));
    EXPECT_TRUE(request) << request.error().message;
    return request.value_or(Request());
  }

  std::string ErrorOf(Options options = {}) const {
    const Result<Request> request = Parse(std::move(options));
    if (request) return "accepted";
    EXPECT_EQ(request.error().code, ErrorCode::kInvalidArgument);
    return request.error().message;
  }

  RequestPolicy policy_;
  RawRequest raw_;
};

TEST_F(ParseRequestTest, NothingSetGivesTheDefaults) {
  const Request request = Good({});
  EXPECT_EQ(request.source_ids, (std::vector<int32_t>{5, 6, 1}));
  EXPECT_EQ(request.decoder_prefix, std::vector<int32_t>{2});
  EXPECT_EQ(request.max_new_tokens, 30);
  EXPECT_EQ(request.min_new_tokens, 0);
  EXPECT_TRUE(request.stream);
  EXPECT_EQ(request.response_interval_ns, 5000000);
  EXPECT_EQ(request.arrival_ns, 1000);
  EXPECT_EQ(request.deadline_ns, 0);
  SamplingOptions greedy;
  greedy.seed = kDrawnSeed;
  EXPECT_EQ(request.sampling, greedy);
}

TEST_F(ParseRequestTest, OptionErrorsComeThrough) {
  EXPECT_EQ(ErrorOf({{"top_p", Int(0)}}), "option 'top_p' is 0; a number in (0, 1] is allowed");
}

// --- Source ---

TEST_F(ParseRequestTest, PadsAtTheEndOfTheSourceAreRemoved) {
  raw_.input_ids = {5, 0, 6, 1, 0, 0};
  EXPECT_EQ(Good({}).source_ids, (std::vector<int32_t>{5, 0, 6, 1}));
  raw_.input_ids = {1};
  EXPECT_EQ(Good({}).source_ids, std::vector<int32_t>{1});
  raw_.input_ids->resize(500, 0);  // pads don't count for the limit either
  EXPECT_EQ(Good({}).source_ids, std::vector<int32_t>{1});
}

TEST_F(ParseRequestTest, ASourceIsNeeded) {
  raw_.input_ids.reset();
  EXPECT_EQ(ErrorOf(), "input 'input_ids' is missing; the ids of the source are needed");
  raw_.input_ids = std::vector<int32_t>();
  EXPECT_EQ(ErrorOf(), "input 'input_ids' is empty; at least one id is needed");
  raw_.input_ids = {0, 0};
  EXPECT_EQ(ErrorOf(), "input 'input_ids' holds only pads (id 0); at least one other id is needed");
}

TEST_F(ParseRequestTest, SourceIdsLieInTheVocabulary) {
  raw_.input_ids = {0, 99, 1};
  EXPECT_EQ(Good({}).source_ids.size(), 3U);
  raw_.input_ids = {3, 100, 1};
  EXPECT_EQ(ErrorOf(), "input 'input_ids' holds 100 at index 1; ids in [0, 99] are allowed");
  raw_.input_ids = {-1, 1};
  EXPECT_EQ(ErrorOf(), "input 'input_ids' holds -1 at index 0; ids in [0, 99] are allowed");
}

TEST_F(ParseRequestTest, LongSourcesAreRefused) {
  raw_.input_ids = std::vector<int32_t>(10, 7);
  EXPECT_EQ(Good({}).source_ids.size(), 10U);
  raw_.input_ids = std::vector<int32_t>(11, 7);
  EXPECT_EQ(ErrorOf(),
            "input 'input_ids' has 11 ids, pads at the end not counted; at most 10 are allowed");
}

// --- Decoder prefix ---

TEST_F(ParseRequestTest, TheStartTokenIsPrependedWhereItIsAbsent) {
  raw_.decoder_input_ids = {8, 9};
  EXPECT_EQ(Good({}).decoder_prefix, (std::vector<int32_t>{2, 8, 9}));
  raw_.decoder_input_ids = {2, 8, 9};
  EXPECT_EQ(Good({}).decoder_prefix, (std::vector<int32_t>{2, 8, 9}));
  raw_.decoder_input_ids = std::vector<int32_t>();
  EXPECT_EQ(Good({}).decoder_prefix, std::vector<int32_t>{2});
}

TEST_F(ParseRequestTest, PrefixIdsLieInTheVocabulary) {
  raw_.decoder_input_ids = {2, 100};
  EXPECT_EQ(ErrorOf(),
            "input 'decoder_input_ids' holds 100 at index 1; ids in [0, 99] are allowed");
}

TEST_F(ParseRequestTest, ThePrefixLeavesRoomForAToken) {
  raw_.decoder_input_ids = std::vector<int32_t>(58, 7);
  EXPECT_EQ(Good({}).max_new_tokens, 1);  // the inherited 30 are clamped
  raw_.decoder_input_ids = std::vector<int32_t>(59, 7);
  EXPECT_EQ(
      ErrorOf(),
      "input 'decoder_input_ids' has 60 ids, start token included; at most 59 are allowed, so "
      "that one new token fits");
}

// --- Lengths ---

TEST_F(ParseRequestTest, MaxNewTokensIsTakenUpToTheLimit) {
  EXPECT_EQ(Good({{"max_new_tokens", Int(50)}}).max_new_tokens, 50);
  EXPECT_EQ(Good({{"max_tokens", Int(1)}}).max_new_tokens, 1);
  EXPECT_EQ(
      ErrorOf({{"max_new_tokens", Int(51)}}),
      "option 'max_new_tokens' is 51; an integer in [1, 50] is allowed (at most 50 new tokens, "
      "60 with the decoder prefix, which has 1 here)");
  EXPECT_NE(ErrorOf({{"max_tokens", Int(kMaxInt)}}), "accepted");
}

TEST_F(ParseRequestTest, ThePrefixNarrowsTheLimit) {
  raw_.decoder_input_ids = std::vector<int32_t>(19, 7);  // 20 with the start token
  EXPECT_EQ(Good({{"max_new_tokens", Int(40)}}).max_new_tokens, 40);
  EXPECT_EQ(
      ErrorOf({{"max_new_tokens", Int(41)}}),
      "option 'max_new_tokens' is 41; an integer in [1, 40] is allowed (at most 50 new tokens, "
      "60 with the decoder prefix, which has 20 here)");
}

TEST_F(ParseRequestTest, MaxLengthCountsThePrefix) {
  EXPECT_EQ(Good({{"max_length", Int(32)}}).max_new_tokens, 31);
  EXPECT_EQ(Good({{"max_length", Int(2)}}).max_new_tokens, 1);
  EXPECT_EQ(Good({{"max_length", Int(51)}}).max_new_tokens, 50);
  const std::string end =
      "; an integer in [2, 51] is allowed (at most 50 new tokens, 60 with the "
      "decoder prefix, which has 1 here)";
  EXPECT_EQ(ErrorOf({{"max_length", Int(1)}}), "option 'max_length' is 1" + end);
  EXPECT_EQ(ErrorOf({{"max_length", Int(52)}}), "option 'max_length' is 52" + end);
  raw_.decoder_input_ids = {7, 8, 9};
  EXPECT_EQ(Good({{"max_length", Int(32)}}).max_new_tokens, 28);
  EXPECT_NE(ErrorOf({{"max_length", Int(kMaxInt)}}), "accepted");
}

TEST_F(ParseRequestTest, MaxNewTokensWinsOverMaxLength) {
  EXPECT_EQ(Good({{"max_length", Int(10)}, {"max_new_tokens", Int(20)}}).max_new_tokens, 20);
  policy_.default_max_new_tokens = 17;
  policy_.default_max_length = 12;
  EXPECT_EQ(Good({}).max_new_tokens, 17);
  EXPECT_EQ(Good({{"max_length", Int(10)}}).max_new_tokens, 9);  // the request's own goes first
  policy_.default_max_new_tokens.reset();
  EXPECT_EQ(Good({}).max_new_tokens, 11);
}

TEST_F(ParseRequestTest, InheritedLengthsAreClamped) {
  policy_.default_max_new_tokens = 1000;
  EXPECT_EQ(Good({}).max_new_tokens, 50);
  policy_.default_max_new_tokens.reset();
  policy_.default_max_length = 1000;
  EXPECT_EQ(Good({}).max_new_tokens, 50);
  policy_.default_max_length.reset();
  policy_.fallback_max_new_tokens = 1000;
  EXPECT_EQ(Good({}).max_new_tokens, 50);
}

TEST_F(ParseRequestTest, AnInheritedMaxLengthThatThePrefixUsesUpIsAnError) {
  policy_.default_max_length = 4;
  raw_.decoder_input_ids = {7, 8, 9};
  EXPECT_EQ(
      ErrorOf(),
      "input 'decoder_input_ids' has 4 ids, start token included, and the model's default for "
      "max_length is 4, which leaves no new token; set max_new_tokens in [1, 50]");
  EXPECT_EQ(Good({{"max_new_tokens", Int(5)}}).max_new_tokens, 5);
}

TEST_F(ParseRequestTest, MinimumsBanEosUntilThere) {
  EXPECT_EQ(Good({{"min_new_tokens", Int(4)}}).min_new_tokens, 4);
  EXPECT_EQ(Good({{"min_length", Int(4)}}).min_new_tokens, 3);
  EXPECT_EQ(Good({{"min_length", Int(0)}}).min_new_tokens, 0);
  EXPECT_EQ(Good({{"min_length", Int(9)}, {"min_new_tokens", Int(4)}}).min_new_tokens, 4);
  raw_.decoder_input_ids = {7, 8, 9};
  EXPECT_EQ(Good({{"min_length", Int(6)}}).min_new_tokens, 2);
}

TEST_F(ParseRequestTest, MinimumsEndAtTheMaximum) {
  EXPECT_EQ(Good({{"min_new_tokens", Int(kMaxInt)}, {"max_new_tokens", Int(3)}}).min_new_tokens, 3);
  EXPECT_EQ(Good({{"min_length", Int(kMaxInt)}}).min_new_tokens, 30);
}

TEST_F(ParseRequestTest, MinimumsAreInherited) {
  policy_.default_min_length = 5;
  EXPECT_EQ(Good({}).min_new_tokens, 4);
  EXPECT_EQ(Good({{"min_length", Int(0)}}).min_new_tokens, 0);
  policy_.default_min_new_tokens = 7;
  EXPECT_EQ(Good({}).min_new_tokens, 7);
  EXPECT_EQ(Good({{"min_new_tokens", Int(0)}}).min_new_tokens, 0);
}

// --- Sampling ---

TEST_F(ParseRequestTest, SamplingOptionsTurnSamplingOn) {
  const SamplingOptions temperature = Good({{"temperature", Real(0.5)}}).sampling;
  EXPECT_TRUE(temperature.do_sample);
  EXPECT_EQ(temperature.temperature, 0.5F);
  EXPECT_EQ(temperature.seed, kDrawnSeed);
  const SamplingOptions top_k = Good({{"top_k", Int(7)}}).sampling;
  EXPECT_TRUE(top_k.do_sample);
  EXPECT_EQ(top_k.top_k, 7);
  const SamplingOptions top_p = Good({{"top_p", Real(0.25)}}).sampling;
  EXPECT_TRUE(top_p.do_sample);
  EXPECT_EQ(top_p.top_p, 0.25F);
  const SamplingOptions min_p = Good({{"min_p", Real(0.125)}}).sampling;
  EXPECT_TRUE(min_p.do_sample);
  EXPECT_EQ(min_p.min_p, 0.125F);
  const SamplingOptions typical_p = Good({{"typical_p", Real(0.75)}}).sampling;
  EXPECT_TRUE(typical_p.do_sample);
  EXPECT_EQ(typical_p.typical_p, 0.75F);
}

TEST_F(ParseRequestTest, OtherOptionsDoNot) {
  EXPECT_FALSE(Good({{"seed", Int(3)}, {"return_logprobs", Bool(true)}}).sampling.do_sample);
}

TEST_F(ParseRequestTest, AnExplicitDoSampleWins) {
  EXPECT_FALSE(Good({{"top_k", Int(7)}, {"do_sample", Bool(false)}}).sampling.do_sample);
  EXPECT_TRUE(Good({{"do_sample", Bool(true)}}).sampling.do_sample);
}

TEST_F(ParseRequestTest, TemperatureZeroIsGreedy) {
  policy_.default_sampling.do_sample = true;
  for (const OptionValue& zero : {Int(0), Real(0.0), Real(-0.0)}) {
    const SamplingOptions sampling =
        Good({{"temperature", zero}, {"top_p", Real(0.5)}, {"do_sample", Bool(true)}}).sampling;
    EXPECT_FALSE(sampling.do_sample);
    EXPECT_EQ(sampling.temperature, 1.0F);
  }
}

TEST_F(ParseRequestTest, SamplingDefaultsAreInherited) {
  policy_.default_sampling.temperature = 0.7F;
  policy_.default_sampling.top_k = 50;
  EXPECT_FALSE(Good({}).sampling.do_sample);
  const SamplingOptions sampling = Good({{"top_p", Real(0.5)}}).sampling;
  EXPECT_EQ(sampling.temperature, 0.7F);
  EXPECT_EQ(sampling.top_k, 50);
  EXPECT_EQ(Good({{"top_k", Int(0)}}).sampling.top_k, 0);
  policy_.default_sampling.do_sample = true;
  EXPECT_TRUE(Good({}).sampling.do_sample);
  EXPECT_FALSE(Good({{"do_sample", Bool(false)}}).sampling.do_sample);
}

TEST_F(ParseRequestTest, SmallAndLargeValuesKeepTheirMeaning) {
  const SamplingOptions sampling =
      Good({{"top_k", Int(kMaxInt)}, {"temperature", Real(1e-300)}, {"top_p", Real(1e-300)}})
          .sampling;
  EXPECT_EQ(sampling.top_k, 100);
  EXPECT_GT(sampling.temperature, 0.0F);
  EXPECT_GT(sampling.top_p, 0.0F);
}

TEST_F(ParseRequestTest, SeedsAreTakenBitForBit) {
  EXPECT_EQ(Good({{"seed", Int(-1)}}).sampling.seed, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(Good({{"random_seed", Int(42)}, {"top_k", Int(3)}}).sampling.seed, 42U);
}

// --- Delivery ---

TEST_F(ParseRequestTest, StreamLogprobsAndInterval) {
  EXPECT_FALSE(Good({{"stream", Bool(false)}}).stream);
  EXPECT_TRUE(Good({{"return_logprobs", Bool(true)}}).sampling.return_logprobs);
  EXPECT_EQ(Good({{"response_interval_ms", Int(0)}}).response_interval_ns, 0);
  EXPECT_EQ(Good({{"response_interval_ms", Real(2.5)}}).response_interval_ns, 2500000);
  EXPECT_EQ(Good({{"response_interval_ms", Int(60000)}}).response_interval_ns, 60'000'000'000);
}

TEST_F(ParseRequestTest, TheEarlierTimeoutCountsFromArrival) {
  EXPECT_EQ(Good({{"timeout", Int(3)}}).deadline_ns, 4000);
  EXPECT_EQ(Good({{"timeout", Int(0)}}).deadline_ns, 0);
  raw_.timeout_us = 5;
  EXPECT_EQ(Good({}).deadline_ns, 6000);
  EXPECT_EQ(Good({{"timeout", Int(0)}}).deadline_ns, 6000);
  EXPECT_EQ(Good({{"timeout", Int(3)}}).deadline_ns, 4000);
  EXPECT_EQ(Good({{"timeout", Int(9)}}).deadline_ns, 6000);
}

TEST_F(ParseRequestTest, HugeTimeoutsDoNotOverflow) {
  EXPECT_EQ(Good({{"timeout", Int(kMaxInt)}}).deadline_ns, kMaxInt);
  raw_.timeout_us = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(Good({}).deadline_ns, kMaxInt);
}

}  // namespace
}  // namespace seq2seq
