// Chooses tokens from logits on the host. The reference for what other engines' samplers do.
#ifndef SEQ2SEQ_BACKEND_ENGINE_SAMPLING_H_
#define SEQ2SEQ_BACKEND_ENGINE_SAMPLING_H_

#include <cstdint>
#include <span>
#include <vector>

#include "backend/core/sampling_options.h"

namespace seq2seq {

struct TokenChoice {
  int32_t token = 0;
  // log-softmax of the raw logits (before bans and filters) at `token`; 0 unless return_logprobs.
  float logprob = 0.0F;
};

// One row's choice. NaN counts as -infinity and +infinity as the largest float, so that a broken
// row still gives a token.
struct TokenQuery {
  std::span<const float>
      logits;  // [vocab_size] of the Sampler; -infinity is never chosen while another is left
  std::span<const int32_t>
      banned;  // never chosen: the EOS ids while fewer than min_new_tokens exist
  SamplingOptions options;
  uint64_t generated = 0;  // new tokens before this one: the random counter
};

// Greedy: the largest logit, of equal ones the lowest id.
//
// Sampling, as transformers' logits warpers with min_tokens_to_keep 1; each filter sees the softmax
// of what the one before left:
//   temperature  logits / temperature;
//   top_k        keeps what is not below the k-th largest, so equal ones beyond k too;
//   top_p        keeps a token while the ones ranked above it (larger, or equal with a lower id)
//   hold
//                less than top_p together;
//   min_p        keeps probabilities >= min_p x the largest;
//   typical_p    ranks by |-log p - entropy|, keeps up to the one that brings the mass to
//   typical_p,
//                and its equals.
// Then the draw, by inversion in the order of ids: with u = TokenUniform(seed, generated), the
// first kept token at which the running sum of probabilities exceeds u.
//
// Owns its scratch memory: one object a thread; Choose() does not allocate.
class Sampler {
 public:
  explicit Sampler(int32_t vocab_size);

  TokenChoice Choose(const TokenQuery& query);

 private:
  struct Candidate {
    int32_t token;
    float score;   // (logit - largest logit) / temperature, <= 0
    float weight;  // exp(score)
  };

  int32_t Greedy(std::span<const float> logits, std::span<const int32_t> banned);
  int32_t Sample(const TokenQuery& query);
  void CollectCandidates(const TokenQuery& query);
  void KeepTopK(int32_t top_k);
  void KeepTopP(double top_p);
  void KeepMinP(double min_p);
  void KeepTypicalP(double typical_p);
  int32_t Draw(double uniform) const;
  double TotalWeight() const;

  std::vector<float> values_;          // [vocab_size] scratch: masked logits, or a selection's keys
  std::vector<Candidate> candidates_;  // kept so far, in the order of ids
  std::vector<Candidate> ranked_;      // scratch of a selection
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_ENGINE_SAMPLING_H_
