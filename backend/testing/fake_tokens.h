// The language that the fake engine speaks: each token is a pure function of the source and its
// index.
#ifndef SEQ2SEQ_BACKEND_TESTING_FAKE_TOKENS_H_
#define SEQ2SEQ_BACKEND_TESTING_FAKE_TOKENS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace seq2seq {

struct FakeTokenRule {
  enum class Kind : uint8_t {
    kEcho,  // token i is source_ids[i % n]
    kHash,  // token i mixes all source ids with i: 2 .. vocab_size - 1, never EOS unless eos_after
            // says so
  };
  Kind kind = Kind::kEcho;
  int32_t eos_token = 1;
  int32_t vocab_size = 1000;  // kHash only, > 2
  std::optional<int32_t> eos_after =
      std::nullopt;  // this many tokens come before EOS; absent: the source's own
};

// The new token with index `index` (0 is the first after the decoder prefix; the prefix itself
// doesn't matter). While index < min_new_tokens EOS is banned, and an echoed EOS becomes eos_token
// + 1.
int32_t FakeToken(const FakeTokenRule& rule, std::span<const int32_t> source_ids, int32_t index,
                  int32_t min_new_tokens);

// The log-probability that comes with it where asked for: distinct and exact in binary.
constexpr float FakeLogprob(int32_t index) { return -0.125F * static_cast<float>(index + 1); }

// All new tokens of one request: up to and with EOS, max_new_tokens at most.
std::vector<int32_t> FakeOutput(const FakeTokenRule& rule, std::span<const int32_t> source_ids,
                                int32_t min_new_tokens, int32_t max_new_tokens);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TESTING_FAKE_TOKENS_H_
