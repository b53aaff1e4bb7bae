// Half-precision numbers, one at a time: for loading and tests, not for inner loops.
#ifndef SEQ2SEQ_BACKEND_CPU_FLOAT_FORMATS_H_
#define SEQ2SEQ_BACKEND_CPU_FLOAT_FORMATS_H_

#include <bit>
#include <cmath>
#include <cstdint>

namespace seq2seq::cpu {

inline float FromBFloat16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Rounds to the nearest, ties to even; NaN stays NaN.
inline uint16_t ToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline float FromFloat16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t magnitude = bits & 0x7fff;
  if (magnitude >= 0x7c00) {
    return std::bit_cast<float>(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  }
  // A float with the same exponent and mantissa fields is smaller by 2^112; subnormals come out
  // right.
  const float value = std::bit_cast<float>(magnitude << 13) * 0x1p112F;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

// Rounds to the nearest, ties to even; what is too large becomes infinity, NaN stays NaN.
inline uint16_t ToFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // 65520 and more
  if (magnitude < 0x38800000) {  // below 2^-14: a multiple of 2^-24, which the sum rounds to
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(shifted) - 0x3f000000);
  }
  const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
  return sign | static_cast<uint16_t>((rounded - 0x38000000) >> 13);
}

}  // namespace seq2seq::cpu

#endif  // SEQ2SEQ_BACKEND_CPU_FLOAT_FORMATS_H_
