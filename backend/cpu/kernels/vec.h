// Vectors of the instruction set that the including file is compiled for.
//
// Included by kernels_<set>.cc only. Everything has internal linkage, and nothing of the standard
// library is used: an inline function that several files emit could be merged by the linker into
// the copy with instructions that the machine lacks.
#ifndef SEQ2SEQ_BACKEND_CPU_KERNELS_VEC_H_
#define SEQ2SEQ_BACKEND_CPU_KERNELS_VEC_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "backend/cpu/kernels/kernel_table.h"

namespace seq2seq::cpu {
namespace {

#define SEQ2SEQ_INLINE inline __attribute__((always_inline))

#if defined(__AVX512F__)
constexpr int kWidth = 16;        // floats in a vector
constexpr int kMaxTileRows = 12;  // rows x 2 vectors of accumulators fit the registers
#elif defined(__AVX2__)
constexpr int kWidth = 8;
constexpr int kMaxTileRows = 6;
#else
constexpr int kWidth = 4;
constexpr int kMaxTileRows = 6;
#endif

typedef float Vec __attribute__((vector_size(kWidth * 4)));
typedef int32_t VecInt __attribute__((vector_size(kWidth * 4)));
typedef float VecUnaligned __attribute__((vector_size(kWidth * 4), aligned(4), may_alias));
typedef int32_t VecIntUnaligned __attribute__((vector_size(kWidth * 4), aligned(2), may_alias));
typedef uint16_t HalfUnaligned __attribute__((vector_size(kWidth * 2), aligned(2), may_alias));

SEQ2SEQ_INLINE Vec Load(const float* p) { return *reinterpret_cast<const VecUnaligned*>(p); }
SEQ2SEQ_INLINE void Store(float* p, Vec v) { *reinterpret_cast<VecUnaligned*>(p) = v; }
SEQ2SEQ_INLINE Vec Splat(float x) { return Vec{} + x; }
SEQ2SEQ_INLINE VecInt AsInt(Vec v) { return reinterpret_cast<VecInt>(v); }
SEQ2SEQ_INLINE Vec AsFloat(VecInt v) { return reinterpret_cast<Vec>(v); }
SEQ2SEQ_INLINE Vec Max(Vec a, Vec b) { return a > b ? a : b; }

SEQ2SEQ_INLINE float Sum(Vec v) {
  float sum = v[0];
  for (int i = 1; i < kWidth; ++i) sum += v[i];
  return sum;
}
SEQ2SEQ_INLINE float MaxOf(Vec v) {
  float best = v[0];
  for (int i = 1; i < kWidth; ++i) best = v[i] > best ? v[i] : best;
  return best;
}

// kWidth halves at `p` widened to float.
SEQ2SEQ_INLINE Vec LoadFloat16(const uint16_t* p) {
#if defined(__AVX512F__)
  return (Vec)_mm512_maskz_cvtph_ps(0xffff,
                                    _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__F16C__)
  return (Vec)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
  const VecInt bits = __builtin_convertvector(*reinterpret_cast<const HalfUnaligned*>(p), VecInt);
  const VecInt magnitude = bits & 0x7fff;
  // Moving the exponent and mantissa into a float's place leaves the value scaled by 2^-112.
  const VecInt scaled = AsInt(AsFloat(magnitude << 13) * 0x1p112F);
  const VecInt special = (magnitude >= 0x7c00) & 0x7f800000;
  return AsFloat(scaled | special | ((bits & 0x8000) << 16));
#endif
}

}  // namespace
}  // namespace seq2seq::cpu

#endif  // SEQ2SEQ_BACKEND_CPU_KERNELS_VEC_H_
