#include "backend/engine/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "backend/engine/philox.h"

namespace seq2seq {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The distribution after all filters, written down from transformers' LogitsProcessor classes: full
// sorts, double precision, nothing shared with the code under test.
class NaiveDistribution {
 public:
  NaiveDistribution(const std::vector<float>& logits, const std::vector<int32_t>& banned,
                    const SamplingOptions& options)
      : scores_(logits.begin(), logits.end()) {
    for (const int32_t token : banned) scores_[token] = -kInf;
    for (double& score : scores_) score /= options.temperature;
    if (options.top_k > 0) TopK(options.top_k);
    if (options.top_p < 1.0F) TopP(options.top_p);
    if (options.min_p > 0.0F) MinP(options.min_p);
    if (options.typical_p < 1.0F) TypicalP(options.typical_p);
  }

  std::vector<double> Probabilities() const {
    const double largest = *std::ranges::max_element(scores_);
    std::vector<double> result;
    for (const double score : scores_) result.push_back(std::exp(score - largest));
    const double total = std::accumulate(result.begin(), result.end(), 0.0);
    for (double& p : result) p /= total;
    return result;
  }

 private:
  void TopK(size_t top_k) {
    std::vector<double> sorted = scores_;
    std::ranges::sort(sorted, std::greater<>());
    const double least = sorted[std::min(top_k, sorted.size()) - 1];
    for (double& score : scores_) {
      if (score < least) score = -kInf;
    }
  }

  // Ascending cumulative sums; removed where they are at most 1 - top_p, the last never.
  void TopP(double top_p) {
    const std::vector<double> p = Probabilities();
    std::vector<size_t> order(p.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, [&](size_t a, size_t b) {
      return scores_[a] != scores_[b] ? scores_[a] < scores_[b] : a > b;
    });
    double sum = 0.0;
    for (size_t rank = 0; rank + 1 < order.size(); ++rank) {
      sum += p[order[rank]];
      if (sum <= 1.0 - top_p) scores_[order[rank]] = -kInf;
    }
  }

  void MinP(double min_p) {
    const std::vector<double> p = Probabilities();
    const double least = min_p * *std::ranges::max_element(p);
    for (size_t token = 0; token < p.size(); ++token) {
      if (p[token] < least) scores_[token] = -kInf;
    }
  }

  void TypicalP(double mass) {
    const std::vector<double> p = Probabilities();
    double entropy = 0.0;
    for (const double value : p) entropy -= value > 0.0 ? value * std::log(value) : 0.0;
    std::vector<double> shifted;
    for (const double value : p) shifted.push_back(std::abs(-std::log(value) - entropy));
    std::vector<size_t> order(p.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](size_t token) { return shifted[token]; });
    size_t last = 0;
    double sum = 0.0;
    for (const size_t token : order) {
      sum += p[token];
      if (sum < mass) ++last;
    }
    const double farthest = shifted[order[std::min(last, order.size() - 1)]];
    // float distances cannot tell what double ones can: allow for their rounding.
    for (size_t token = 0; token < p.size(); ++token) {
      if (shifted[token] > farthest * (1.0 + 1e-6) + 1e-7) scores_[token] = -kInf;
    }
  }

  std::vector<double> scores_;
};

std::vector<float> RandomLogits(uint32_t seed, int count, double spread) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal(0.0, spread);
  std::vector<float> logits;
  for (int index = 0; index < count; ++index) {
    logits.push_back(static_cast<float>(normal(generator)));
  }
  return logits;
}

SamplingOptions Sampled(float temperature = 1.0F) {
  SamplingOptions options;
  options.do_sample = true;
  options.temperature = temperature;
  options.seed = 77;
  return options;
}

struct NamedOptions {
  std::string name;
  SamplingOptions options;
};

std::vector<NamedOptions> FilterCases() {
  std::vector<NamedOptions> cases;
  const auto add = [&](std::string name, float temperature, auto change) {
    SamplingOptions options = Sampled(temperature);
    change(options);
    cases.push_back({std::move(name), options});
  };
  add("plain", 1.0F, [](SamplingOptions&) {});
  add("hot", 1.7F, [](SamplingOptions&) {});
  add("cold", 0.4F, [](SamplingOptions&) {});
  add("top_k", 1.0F, [](SamplingOptions& o) { o.top_k = 5; });
  add("top_k_1", 1.0F, [](SamplingOptions& o) { o.top_k = 1; });
  add("top_k_beyond_vocabulary", 1.0F, [](SamplingOptions& o) { o.top_k = 1000000; });
  add("top_p", 1.0F, [](SamplingOptions& o) { o.top_p = 0.7F; });
  add("top_p_high", 1.0F, [](SamplingOptions& o) { o.top_p = 0.999F; });
  add("top_p_tiny", 1.0F, [](SamplingOptions& o) { o.top_p = 1e-6F; });
  add("min_p", 1.0F, [](SamplingOptions& o) { o.min_p = 0.1F; });
  add("min_p_1", 1.0F, [](SamplingOptions& o) { o.min_p = 1.0F; });
  add("typical_p", 1.0F, [](SamplingOptions& o) { o.typical_p = 0.6F; });
  add("typical_p_tiny", 1.0F, [](SamplingOptions& o) { o.typical_p = 1e-6F; });
  add("top_k_top_p", 0.8F, [](SamplingOptions& o) {
    o.top_k = 12;
    o.top_p = 0.8F;
  });
  add("top_p_min_p", 1.3F, [](SamplingOptions& o) {
    o.top_p = 0.9F;
    o.min_p = 0.05F;
  });
  add("top_k_typical_p", 1.0F, [](SamplingOptions& o) {
    o.top_k = 20;
    o.typical_p = 0.5F;
  });
  add("all", 0.9F, [](SamplingOptions& o) {
    o.top_k = 25;
    o.top_p = 0.95F;
    o.min_p = 0.02F;
    o.typical_p = 0.9F;
  });
  return cases;
}

class FilterTest : public testing::TestWithParam<NamedOptions> {};

INSTANTIATE_TEST_SUITE_P(Filters, FilterTest, testing::ValuesIn(FilterCases()),
                         [](const auto& info) { return info.param.name; });

// Inversion of the naive distribution with the same uniform number gives the same token; draws
// whose number lies within rounding of an edge between two tokens prove nothing, and are rare.
TEST_P(FilterTest, DrawsWhatTheNaiveDistributionSays) {
  int edges = 0;
  int checked = 0;
  for (const int vocabulary : {2, 3, 50, 2000}) {
    Sampler sampler(vocabulary);
    for (uint32_t row = 0; row < 60; ++row) {
      const std::vector<float> logits = RandomLogits(row * 7 + 1, vocabulary, row % 3 + 1.0);
      const std::vector<double> p =
          NaiveDistribution(logits, {}, GetParam().options).Probabilities();
      for (uint64_t index = 0; index < 10; ++index) {
        const double uniform = TokenUniform(GetParam().options.seed, index);
        double sum = 0.0;
        int32_t expected = 0;
        while (sum + p[expected] <= uniform) sum += p[expected++];
        const bool edge = uniform - sum < 1e-6 || sum + p[expected] - uniform < 1e-6;
        const int32_t token = sampler.Choose({logits, {}, GetParam().options, index}).token;
        ASSERT_GT(p[token], 0.0) << "vocabulary " << vocabulary << " row " << row;
        edges += edge ? 1 : 0;
        ++checked;
        if (!edge) {
          ASSERT_EQ(token, expected) << "vocabulary " << vocabulary << " row " << row;
        }
      }
    }
  }
  EXPECT_LT(edges, checked / 50);
}

// Pearson's test over many draws, tokens expected fewer than 5 times pooled.
TEST_P(FilterTest, FollowsTheNaiveDistribution) {
  constexpr int kDraws = 20000;
  const std::vector<float> logits = RandomLogits(4711, 40, 1.5);
  const std::vector<double> p = NaiveDistribution(logits, {}, GetParam().options).Probabilities();
  Sampler sampler(40);
  std::vector<int> counts(40, 0);
  for (int index = 0; index < kDraws; ++index) {
    const TokenQuery query = {logits, {}, GetParam().options, static_cast<uint64_t>(index)};
    ++counts[sampler.Choose(query).token];
  }
  double chi_square = 0.0;
  double pooled_expected = 0.0;
  double pooled_count = 0.0;
  int bins = 0;
  for (size_t token = 0; token < p.size(); ++token) {
    const double expected = p[token] * kDraws;
    if (expected == 0.0) {
      EXPECT_EQ(counts[token], 0) << "token " << token << " was filtered out";
    } else if (expected < 5.0) {
      pooled_expected += expected;
      pooled_count += counts[token];
    } else {
      chi_square += (counts[token] - expected) * (counts[token] - expected) / expected;
      ++bins;
    }
  }
  if (pooled_expected > 0.0) {
    chi_square +=
        (pooled_count - pooled_expected) * (pooled_count - pooled_expected) / pooled_expected;
    ++bins;
  }
  // Wilson-Hilferty's quantile, one wrong alarm in 10,000.
  const double df = std::max(1, bins - 1);
  const double root = 1.0 - 2.0 / (9.0 * df) + 3.72 * std::sqrt(2.0 / (9.0 * df));
  EXPECT_LT(chi_square, bins < 2 ? 1e-9 : df * root * root * root);
}

TEST(Greedy, TakesTheLargestAndTheLowestOfEquals) {
  for (const int size : {1, 2, 15, 16, 17, 31, 33, 100}) {
    Sampler sampler(size);
    for (int at = 0; at < size; ++at) {
      std::vector<float> logits(size, -3.0F);
      for (int equal = at; equal < size; equal += 3) logits[equal] = 2.0F;
      EXPECT_EQ(sampler.Choose({logits, {}, {}, 0}).token, at) << "size " << size;
    }
  }
}

TEST(Greedy, SkipsBannedTokens) {
  Sampler sampler(4);
  const std::vector<float> logits = {1.0F, 5.0F, 4.0F, 3.0F};
  const std::vector<int32_t> banned = {1, 2};
  EXPECT_EQ(sampler.Choose({logits, banned, {}, 0}).token, 3);
  EXPECT_EQ(sampler.Choose({logits, {}, {}, 0}).token, 1);  // the ban does not stay
}

TEST(Greedy, SurvivesBrokenRows) {
  Sampler sampler(3);
  const std::vector<int32_t> banned = {0};
  EXPECT_EQ(sampler.Choose({std::vector<float>{kNan, 1.0F, kNan}, {}, {}, 0}).token, 1);
  EXPECT_EQ(sampler.Choose({std::vector<float>{1.0F, kInf, kInf}, {}, {}, 0}).token, 1);
  EXPECT_EQ(sampler.Choose({std::vector<float>{-kInf, -kInf, -9.0F}, {}, {}, 0}).token, 2);
  EXPECT_EQ(sampler.Choose({std::vector<float>{kNan, kNan, kNan}, {}, {}, 0}).token, 0);
  EXPECT_EQ(sampler.Choose({std::vector<float>{kNan, kNan, kNan}, banned, {}, 0}).token, 1);
  EXPECT_EQ(sampler.Choose({std::vector<float>{2.0F, -kInf, -kInf}, banned, {}, 0}).token, 1);
}

TEST(Sampling, SurvivesBrokenRows) {
  Sampler sampler(3);
  const std::vector<int32_t> banned = {0};
  for (uint64_t index = 0; index < 50; ++index) {
    const auto choose = [&](std::vector<float> logits, std::span<const int32_t> without) {
      return sampler.Choose({logits, without, Sampled(), index}).token;
    };
    EXPECT_EQ(choose({kNan, 1.0F, kNan}, {}), 1);
    EXPECT_EQ(choose({1.0F, kInf, 1.0F}, {}), 1);
    EXPECT_EQ(choose({kNan, kNan, kNan}, banned), 1);
    EXPECT_EQ(choose({9.0F, -kInf, -9.0F}, banned), 2);
  }
}

TEST(Sampling, SurvivesExtremeValues) {
  constexpr float kHuge = std::numeric_limits<float>::max();
  Sampler sampler(4);
  SamplingOptions all = Sampled(1e-30F);
  all.top_k = 3;
  all.top_p = 0.9F;
  all.min_p = 0.5F;
  all.typical_p = 0.5F;
  EXPECT_EQ(sampler.Choose({std::vector<float>{-kHuge, kHuge, 0.0F, 1.0F}, {}, all, 0}).token, 1);
  all.temperature = kHuge;
  const int32_t token =
      sampler.Choose({std::vector<float>{-kInf, 1e30F, -1e30F, -kInf}, {}, all, 0}).token;
  EXPECT_TRUE(token == 1 || token == 2);
  Sampler one(1);
  EXPECT_EQ(one.Choose({std::vector<float>{-3.0F}, {}, all, 5}).token, 0);
}

// top_k keeps all of them, being equal to the k-th; top_p keeps the lowest ids that reach it.
TEST(Sampling, TreatsEqualLogitsAsDocumented) {
  const std::vector<float> logits(10, 0.25F);
  const auto seen = [&](const SamplingOptions& options) {
    Sampler sampler(10);
    std::map<int32_t, int> counts;
    for (uint64_t index = 0; index < 2000; ++index) {
      ++counts[sampler.Choose({logits, {}, options, index}).token];
    }
    return counts;
  };
  SamplingOptions top_k = Sampled();
  top_k.top_k = 3;
  EXPECT_EQ(seen(top_k).size(), 10U);
  SamplingOptions top_p = Sampled();
  top_p.top_p = 0.35F;
  const auto kept = seen(top_p);
  EXPECT_EQ(kept.size(), 4U);
  EXPECT_EQ(kept.rbegin()->first, 3);
  SamplingOptions typical_p = Sampled();
  typical_p.typical_p = 0.2F;
  EXPECT_EQ(seen(typical_p).size(), 10U);
}

TEST(Sampling, NeverDrawsBannedTokens) {
  const std::vector<float> logits = {3.0F, 8.0F, 2.0F, 1.0F};
  const std::vector<int32_t> banned = {1};
  const std::vector<double> p = NaiveDistribution(logits, banned, Sampled()).Probabilities();
  Sampler sampler(4);
  std::vector<double> counts(4, 0.0);
  for (uint64_t index = 0; index < 20000; ++index) {
    counts[sampler.Choose({logits, banned, Sampled(), index}).token] += 1.0 / 20000;
  }
  EXPECT_EQ(counts[1], 0.0);
  for (size_t token = 0; token < p.size(); ++token) EXPECT_NEAR(counts[token], p[token], 0.02);
}

TEST(Sampling, DependsOnSeedAndIndexAlone) {
  const std::vector<float> logits = RandomLogits(3, 500, 1.0);
  Sampler fresh(500);
  Sampler used(500);
  SamplingOptions other = Sampled();
  other.seed = 78;
  other.top_k = 7;
  int differ = 0;
  for (uint64_t index = 0; index < 50; ++index) {
    const int32_t between = used.Choose({logits, {}, other, index}).token;
    const int32_t token = used.Choose({logits, {}, Sampled(), index}).token;
    EXPECT_EQ(token, fresh.Choose({logits, {}, Sampled(), index}).token);
    differ += token != between ? 1 : 0;
  }
  EXPECT_GT(differ, 25);
}

TEST(Logprobs, AreTheLogSoftmaxOfRawLogits) {
  const std::vector<float> logits = RandomLogits(9, 3000, 3.0);
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  const std::vector<int32_t> banned = {
      static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin())};
  Sampler sampler(3000);
  for (SamplingOptions options : {SamplingOptions{}, Sampled(0.5F)}) {
    options.return_logprobs = true;
    options.top_k = 10;
    for (const bool with_ban : {false, true}) {
      const TokenChoice choice = sampler.Choose(
          {logits, with_ban ? std::span<const int32_t>(banned) : std::span<const int32_t>(),
           options, 3});
      EXPECT_NEAR(choice.logprob, logits[choice.token] - std::log(sum), 1e-5);
    }
    options.return_logprobs = false;
    EXPECT_EQ(sampler.Choose({logits, {}, options, 3}).logprob, 0.0F);
  }
}

TEST(Logprobs, AreStableAndNeverNan) {
  SamplingOptions options;
  options.return_logprobs = true;
  Sampler sampler(3);
  const auto logprob = [&](std::vector<float> logits) {
    return sampler.Choose({logits, {}, options, 0}).logprob;
  };
  EXPECT_NEAR(logprob({1e30F, 1e30F, -1e30F}), -std::log(2.0F), 1e-6);
  EXPECT_NEAR(logprob({-1e4F, -1e4F, -1e4F}), -std::log(3.0F), 1e-6);
  EXPECT_EQ(logprob({kInf, 0.0F, kNan}), 0.0F);
  EXPECT_FALSE(std::isnan(logprob({kNan, kNan, kNan})));
}

}  // namespace
}  // namespace seq2seq
