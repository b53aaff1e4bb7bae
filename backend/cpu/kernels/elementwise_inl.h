// Norms, activations and the exponential function. Included by kernels_<set>.cc only.
#ifndef SEQ2SEQ_BACKEND_CPU_KERNELS_ELEMENTWISE_INL_H_
#define SEQ2SEQ_BACKEND_CPU_KERNELS_ELEMENTWISE_INL_H_

#include "backend/cpu/kernels/vec.h"

namespace seq2seq::cpu {
namespace {

// e^x with a relative error below 2e-7; arguments are clamped to what a float can hold.
// Cephes' reduction x = n ln 2 + r and its polynomial in r.
SEQ2SEQ_INLINE Vec Exp(Vec x) {
  const Vec clamped = Max(Splat(-87.0F), -Max(Splat(-88.0F), -x));
  constexpr float kRoundToInt = 12582912.0F;  // 1.5 x 2^23: adding it leaves no room for a fraction
  const Vec shifted = clamped * 1.44269504088896341F + kRoundToInt;
  const Vec n = shifted - kRoundToInt;
  Vec r = clamped - n * 0.693359375F;
  r = r - n * -2.12194440e-4F;
  Vec p = Splat(1.9875691500e-4F);
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  const VecInt exponent = AsInt(shifted) << 23;  // the low bits of `shifted` are n
  return AsFloat(AsInt(p) + exponent);
}

void RmsNorm(const float* x, const float* weight, float epsilon, int32_t size, float* out) {
  constexpr int kStep = 2 * kWidth;
  Vec sums[2] = {};
  int32_t i = 0;
  for (; i + kStep <= size; i += kStep) {
    const Vec a = Load(x + i);
    const Vec b = Load(x + i + kWidth);
    sums[0] += a * a;
    sums[1] += b * b;
  }
  float total = Sum(sums[0] + sums[1]);
  for (; i < size; ++i) total += x[i] * x[i];
  const float scale = 1.0F / __builtin_sqrtf(total / static_cast<float>(size) + epsilon);
  for (i = 0; i + kWidth <= size; i += kWidth) {
    Store(out + i, Load(weight + i) * (Load(x + i) * scale));
  }
  for (; i < size; ++i) out[i] = weight[i] * (x[i] * scale);
}

template <Activation kKind>
SEQ2SEQ_INLINE Vec Activated(Vec x) {
  if constexpr (kKind == Activation::kRelu) {
    return Max(x, Vec{});
  } else if constexpr (kKind == Activation::kSilu) {
    return x / (Exp(-x) + 1.0F);
  } else if constexpr (kKind == Activation::kGeluTanh) {
    // 0.5 x (1 + tanh(u)) = x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3)
    const Vec twice_u = 1.59576912160573F * (x + 0.044715F * x * x * x);
    return x / (Exp(-twice_u) + 1.0F);
  } else {
    Vec y;
    for (int i = 0; i < kWidth; ++i) {
      y[i] = 0.5F * x[i] * (1.0F + __builtin_erff(x[i] * 0.70710678118655F));
    }
    return y;
  }
}

template <Activation kKind>
void ActivateOf(float* x, const float* up, int32_t size) {
  int32_t i = 0;
  for (; i + kWidth <= size; i += kWidth) {
    Vec y = Activated<kKind>(Load(x + i));
    if (up != nullptr) y *= Load(up + i);
    Store(x + i, y);
  }
  for (; i < size; ++i) {
    const float y = Activated<kKind>(Splat(x[i]))[0];
    x[i] = up != nullptr ? y * up[i] : y;
  }
}

void Activate(Activation kind, float* x, const float* up, int32_t size) {
  switch (kind) {
    case Activation::kRelu:
      return ActivateOf<Activation::kRelu>(x, up, size);
    case Activation::kGelu:
      return ActivateOf<Activation::kGelu>(x, up, size);
    case Activation::kGeluTanh:
      return ActivateOf<Activation::kGeluTanh>(x, up, size);
    case Activation::kSilu:
      return ActivateOf<Activation::kSilu>(x, up, size);
  }
}

}  // namespace
}  // namespace seq2seq::cpu

#endif  // SEQ2SEQ_BACKEND_CPU_KERNELS_ELEMENTWISE_INL_H_
