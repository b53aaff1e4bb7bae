// The random numbers of test checkpoints, and how they are stored.
#ifndef SEQ2SEQ_BACKEND_TESTING_RANDOM_WEIGHTS_H_
#define SEQ2SEQ_BACKEND_TESTING_RANDOM_WEIGHTS_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/core/dtype.h"

namespace seq2seq {

// SplitMix64 (Steele, Lea, Flood 2014): the same weights on every machine.
class WeightSource {
 public:
  explicit WeightSource(uint64_t seed) : state_(seed) {}

  // Uniform in [-1, 1).
  float Next() {
    state_ += 0x9E3779B97F4A7C15U;
    uint64_t bits = state_;
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9U;
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBU;
    bits ^= bits >> 31;
    return static_cast<float>(static_cast<int32_t>(bits >> 40) - (1 << 23)) * 0x1p-23F;
  }

 private:
  uint64_t state_;
};

// Rounds towards zero: any value near the wished one will do. Only normal numbers and 0 come in.
inline uint16_t ToHalf(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000U;
  const int32_t exponent = static_cast<int32_t>(bits >> 23 & 0xFFU) - 127 + 15;
  if (exponent <= 0) return static_cast<uint16_t>(sign);
  return static_cast<uint16_t>(sign | static_cast<uint32_t>(exponent) << 10 |
                               (bits >> 13 & 0x3FFU));
}

// Appends the value as the format stores it, little-endian.
inline void AppendStored(float value, DType dtype, std::vector<std::byte>* bytes) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if (dtype == DType::kFloat16) bits = ToHalf(value);
  if (dtype == DType::kBFloat16) bits >>= 16;
  for (size_t index = 0; index < DTypeBytes(dtype); ++index) {
    bytes->push_back(static_cast<std::byte>(bits >> 8 * index & 0xFFU));
  }
}

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TESTING_RANDOM_WEIGHTS_H_
