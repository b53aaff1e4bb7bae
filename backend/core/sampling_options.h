// How the next token is chosen, a request's part of it.
#ifndef SEQ2SEQ_BACKEND_CORE_SAMPLING_OPTIONS_H_
#define SEQ2SEQ_BACKEND_CORE_SAMPLING_OPTIONS_H_

#include <cstdint>

namespace seq2seq {

// Validated: every value is inside the range that its comment names.
// The filters apply in Hugging Face's order: temperature, top_k, top_p, min_p, typical_p, each on
// the distribution that the one before left (renormalized).
struct SamplingOptions {
  bool do_sample = false;    // false: greedy, and only return_logprobs below matters
  float temperature = 1.0F;  // > 0
  int32_t top_k = 0;         // 0: off
  float top_p = 1.0F;        // (0, 1]; 1: off
  float min_p = 0.0F;        // [0, 1]; 0: off
  float typical_p = 1.0F;    // (0, 1]; 1: off
  uint64_t seed = 0;         // key of the counter-based Philox generator
  bool return_logprobs = false;

  friend bool operator==(const SamplingOptions&, const SamplingOptions&) = default;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CORE_SAMPLING_OPTIONS_H_
