#include "backend/testing/fake_tokens.h"

namespace seq2seq {
namespace {

// FNV-1a, then a finalizer so that the low bits are good too.
int32_t HashToken(const FakeTokenRule& rule, std::span<const int32_t> source_ids, int32_t index) {
  uint64_t hash = 1469598103934665603ULL;
  const auto mix = [&hash](int32_t value) {
    hash ^= static_cast<uint32_t>(value);
    hash *= 1099511628211ULL;
  };
  for (int32_t id : source_ids) mix(id);
  mix(index);
  hash ^= hash >> 29;
  const int32_t token = 2 + static_cast<int32_t>(hash % static_cast<uint64_t>(rule.vocab_size - 2));
  return token == rule.eos_token ? 0 : token;
}

}  // namespace

int32_t FakeToken(const FakeTokenRule& rule, std::span<const int32_t> source_ids, int32_t index,
                  int32_t min_new_tokens) {
  const bool eos_allowed = index >= min_new_tokens;
  if (eos_allowed && rule.eos_after && index >= *rule.eos_after) return rule.eos_token;
  if (rule.kind == FakeTokenRule::Kind::kHash) return HashToken(rule, source_ids, index);
  const int32_t token = source_ids[static_cast<size_t>(index) % source_ids.size()];
  return token == rule.eos_token && !eos_allowed ? rule.eos_token + 1 : token;
}

std::vector<int32_t> FakeOutput(const FakeTokenRule& rule, std::span<const int32_t> source_ids,
                                int32_t min_new_tokens, int32_t max_new_tokens) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < max_new_tokens; ++i) {
    tokens.push_back(FakeToken(rule, source_ids, i, min_new_tokens));
    if (tokens.back() == rule.eos_token) break;
  }
  return tokens;
}

}  // namespace seq2seq
