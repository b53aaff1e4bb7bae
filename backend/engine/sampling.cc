#include "backend/engine/sampling.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>

#include "backend/engine/philox.h"

namespace seq2seq {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();
// A constant inner trip count lets compilers vectorize at -O2.
constexpr size_t kLanes = 16;

// NaN, which compares false, becomes -infinity; +infinity becomes the largest float.
float Cleaned(float logit) {
  return logit > kMinusInfinity ? std::min(logit, kLargest) : kMinusInfinity;
}

// -infinity if there is nothing else. NaNs are passed over.
float Largest(std::span<const float> values) {
  std::array<float, kLanes> best;
  best.fill(kMinusInfinity);
  size_t at = 0;
  for (; at + kLanes <= values.size(); at += kLanes) {
    const float* block = values.data() + at;
    for (size_t lane = 0; lane < kLanes; ++lane) {
      best[lane] = block[lane] > best[lane] ? block[lane] : best[lane];
    }
  }
  for (; at < values.size(); ++at) best[0] = values[at] > best[0] ? values[at] : best[0];
  return *std::ranges::max_element(best);
}

// The first place of `value`, which must be there.
size_t FirstOf(std::span<const float> values, float value) {
  size_t at = 0;
  for (; at + kLanes <= values.size(); at += kLanes) {
    const float* block = values.data() + at;
    int matches = 0;
    for (size_t lane = 0; lane < kLanes; ++lane) matches += block[lane] == value ? 1 : 0;
    if (matches != 0) break;
  }
  while (at < values.size() && values[at] != value) ++at;
  return at;
}

float LogSoftmaxAt(std::span<const float> logits, int32_t token) {
  const float largest = Cleaned(Largest(logits));
  if (largest == kMinusInfinity) return -std::log(static_cast<float>(logits.size()));
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(Cleaned(logit) - largest);
  return static_cast<float>(Cleaned(logits[token]) - largest - std::log(sum));
}

// Ranks `items` by `before` only as far as needed: returns the number of items in front, sorted,
// the last of which brings the sum of weights to `target`; all of them if none does. Sorting pieces
// that grow fourfold costs about as much as the pieces that are used.
template <typename Item, typename Before>
size_t RankUntilMass(std::vector<Item>* items, double target, Before before) {
  constexpr size_t kFirstPiece = 64;
  double mass = 0.0;
  size_t sorted = 0;
  size_t piece = kFirstPiece;
  while (sorted < items->size()) {
    const auto begin = items->begin() + static_cast<std::ptrdiff_t>(sorted);
    const size_t count = std::min(piece, items->size() - sorted);
    const auto end = begin + static_cast<std::ptrdiff_t>(count);
    if (end != items->end()) std::nth_element(begin, end, items->end(), before);
    std::sort(begin, end, before);
    for (auto item = begin; item != end; ++item) {
      mass += item->weight;
      ++sorted;
      if (mass >= target) return sorted;
    }
    piece *= 4;
  }
  return sorted;
}

}  // namespace

Sampler::Sampler(int32_t vocab_size) {
  values_.reserve(vocab_size);
  candidates_.reserve(vocab_size);
  ranked_.reserve(vocab_size);
}

TokenChoice Sampler::Choose(const TokenQuery& query) {
  TokenChoice choice;
  choice.token = query.options.do_sample ? Sample(query) : Greedy(query.logits, query.banned);
  if (query.options.return_logprobs) choice.logprob = LogSoftmaxAt(query.logits, choice.token);
  return choice;
}

int32_t Sampler::Greedy(std::span<const float> logits, std::span<const int32_t> banned) {
  std::span<const float> allowed = logits;
  if (!banned.empty()) {
    values_.assign(logits.begin(), logits.end());
    for (const int32_t token : banned) values_[token] = kMinusInfinity;
    allowed = values_;
  }
  const float largest = Largest(allowed);
  if (largest > kMinusInfinity) return static_cast<int32_t>(FirstOf(allowed, largest));
  // Nothing to choose from: still no banned token, unless all are.
  const auto count = static_cast<int32_t>(logits.size());
  int32_t token = 0;
  while (token < count && std::ranges::find(banned, token) != banned.end()) ++token;
  return token < count ? token : 0;
}

int32_t Sampler::Sample(const TokenQuery& query) {
  const SamplingOptions& options = query.options;
  CollectCandidates(query);
  if (candidates_.empty()) return Greedy(query.logits, query.banned);
  if (options.top_p < 1.0F) KeepTopP(options.top_p);
  if (options.min_p > 0.0F) KeepMinP(options.min_p);
  if (options.typical_p < 1.0F) KeepTypicalP(options.typical_p);
  return Draw(TokenUniform(options.seed, query.generated));
}

// Temperature and top_k, which need no probabilities, before the exponentials are paid for.
void Sampler::CollectCandidates(const TokenQuery& query) {
  values_.assign(query.logits.begin(), query.logits.end());
  for (const int32_t token : query.banned) values_[token] = kMinusInfinity;
  candidates_.clear();
  const float largest = Cleaned(Largest(values_));
  if (largest == kMinusInfinity) return;
  for (size_t token = 0; token < values_.size(); ++token) {
    const float logit = Cleaned(values_[token]);
    if (logit == kMinusInfinity) continue;
    candidates_.push_back({static_cast<int32_t>(token), logit, 0.0F});
  }
  KeepTopK(query.options.top_k);
  // Shifted before it is divided: a small temperature must not overflow.
  for (Candidate& candidate : candidates_) {
    candidate.score = (candidate.score - largest) / query.options.temperature;
    candidate.weight = std::exp(candidate.score);
  }
  std::erase_if(candidates_, [](const Candidate& candidate) { return candidate.weight == 0.0F; });
}

void Sampler::KeepTopK(int32_t top_k) {
  const auto keep = static_cast<size_t>(top_k);
  if (keep == 0 || keep >= candidates_.size()) return;
  values_.clear();
  for (const Candidate& candidate : candidates_) values_.push_back(candidate.score);
  const auto kth = values_.begin() + (top_k - 1);
  std::nth_element(values_.begin(), kth, values_.end(), std::greater<>());
  std::erase_if(candidates_,
                [least = *kth](const Candidate& candidate) { return candidate.score < least; });
}

void Sampler::KeepTopP(double top_p) {
  const double total = TotalWeight();
  // All tokens this light together weigh less than what top_p leaves out, so none of them is
  // ranked.
  const double light = 0.999 * (1.0 - top_p) * total / static_cast<double>(candidates_.size());
  ranked_.clear();
  for (const Candidate& candidate : candidates_) {
    if (candidate.weight >= light) ranked_.push_back(candidate);
  }
  const auto before = [](const Candidate& a, const Candidate& b) {
    return a.score != b.score ? a.score > b.score : a.token < b.token;
  };
  const Candidate last = ranked_[RankUntilMass(&ranked_, top_p * total, before) - 1];
  std::erase_if(candidates_, [&](const Candidate& candidate) { return before(last, candidate); });
}

void Sampler::KeepMinP(double min_p) {
  const Candidate& top = *std::ranges::max_element(candidates_, {}, &Candidate::weight);
  const double least = min_p * top.weight;
  std::erase_if(candidates_,
                [least](const Candidate& candidate) { return candidate.weight < least; });
}

void Sampler::KeepTypicalP(double typical_p) {
  const double total = TotalWeight();
  const double log_total = std::log(total);
  double entropy = 0.0;
  for (const Candidate& candidate : candidates_) {
    entropy += candidate.weight / total * (log_total - candidate.score);
  }
  // From here on a score in ranked_ is the distance |-log p - entropy|.
  const auto distance = [&](const Candidate& candidate) {
    return static_cast<float>(std::abs(log_total - candidate.score - entropy));
  };
  ranked_.clear();
  for (const Candidate& candidate : candidates_) {
    ranked_.push_back({candidate.token, distance(candidate), candidate.weight});
  }
  const auto before = [](const Candidate& a, const Candidate& b) {
    return a.score != b.score ? a.score < b.score : a.token < b.token;
  };
  const float farthest = ranked_[RankUntilMass(&ranked_, typical_p * total, before) - 1].score;
  std::erase_if(candidates_,
                [&](const Candidate& candidate) { return distance(candidate) > farthest; });
}

int32_t Sampler::Draw(double uniform) const {
  const double target = uniform * TotalWeight();
  double sum = 0.0;
  for (const Candidate& candidate : candidates_) {
    sum += candidate.weight;
    if (sum > target) return candidate.token;
  }
  return candidates_.back().token;
}

double Sampler::TotalWeight() const {
  double total = 0.0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  return total;
}

}  // namespace seq2seq
