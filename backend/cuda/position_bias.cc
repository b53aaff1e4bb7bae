#include "backend/cuda/position_bias.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "backend/core/dtype.h"

namespace seq2seq {
namespace {

float HalfToFloat(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  const float sign = (bits & 0x8000) != 0 ? -1.0F : 1.0F;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
}

float ElementAt(const TensorView& tensor, int64_t index) {
  const std::byte* place = tensor.data + index * static_cast<int64_t>(DTypeBytes(tensor.dtype));
  if (tensor.dtype == DType::kFloat32) {
    float value = 0.0F;
    std::memcpy(&value, place, sizeof(value));
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, place, sizeof(bits));
  if (tensor.dtype == DType::kFloat16) return HalfToFloat(bits);
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value = 0.0F;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

}  // namespace

int32_t RelativeBucket(int32_t distance, bool bidirectional, const RelativePositionSpec& spec) {
  int32_t buckets = spec.buckets;
  int32_t base = 0;
  if (bidirectional) {
    buckets /= 2;
    if (distance > 0) base = buckets;
    distance = std::abs(distance);
  } else {
    distance = std::max(-distance, 0);
  }
  const int32_t exact = buckets / 2;
  if (distance < exact) return base + distance;
  const float ratio = std::log(static_cast<float>(distance) / static_cast<float>(exact)) /
                      static_cast<float>(std::log(static_cast<double>(spec.max_distance) / exact));
  const int32_t large = exact + static_cast<int32_t>(ratio * static_cast<float>(buckets - exact));
  return base + std::min(large, buckets - 1);
}

std::vector<float> EncoderBiasByDistance(const TensorView& table,
                                         const RelativePositionSpec& spec) {
  const int64_t heads = table.shape[1];
  const int32_t width = 2 * spec.max_distance + 1;
  std::vector<float> bias(heads * width);
  for (int32_t i = 0; i < width; ++i) {
    const int32_t bucket = RelativeBucket(i - spec.max_distance, true, spec);
    for (int64_t head = 0; head < heads; ++head) {
      bias[head * width + i] = ElementAt(table, bucket * heads + head);
    }
  }
  return bias;
}

std::vector<float> DecoderBiasByDistance(const TensorView& table,
                                         const RelativePositionSpec& spec) {
  const int64_t heads = table.shape[1];
  const int32_t width = spec.max_distance + 1;
  std::vector<float> bias(heads * width);
  for (int32_t i = 0; i < width; ++i) {
    const int32_t bucket = RelativeBucket(-i, false, spec);
    for (int64_t head = 0; head < heads; ++head) {
      bias[head * width + i] = ElementAt(table, bucket * heads + head);
    }
  }
  return bias;
}

}  // namespace seq2seq
