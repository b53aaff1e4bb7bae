// Device-side words that the kernels share: number formats, warp sums, tensor-core products and
// programmatic dependent launch. Device code only.
#ifndef SEQ2SEQ_BACKEND_KERNELS_DEVICE_MATH_CUH_
#define SEQ2SEQ_BACKEND_KERNELS_DEVICE_MATH_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "backend/kernels/activation_kind.h"

namespace seq2seq::kernels {

constexpr unsigned kFullWarp = 0xffffffffU;

__device__ __forceinline__ float ToFloat(float value) { return value; }
__device__ __forceinline__ float ToFloat(__half value) { return __half2float(value); }
__device__ __forceinline__ float ToFloat(__nv_bfloat16 value) { return __bfloat162float(value); }

template <typename T>
__device__ __forceinline__ T FromFloat(float value);
template <>
__device__ __forceinline__ float FromFloat<float>(float value) {
  return value;
}
// Saturates: an overflow to infinity would spread to every later position.
template <>
__device__ __forceinline__ __half FromFloat<__half>(float value) {
  return __float2half_rn(fminf(fmaxf(value, -65504.0F), 65504.0F));
}
template <>
__device__ __forceinline__ __nv_bfloat16 FromFloat<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

// Elements in a 16-byte access.
template <typename T>
constexpr int kVector = 16 / sizeof(T);

// 16 bytes as kVector<T> floats.
template <typename T>
__device__ __forceinline__ void Unpack(const uint4& bits, float (&values)[kVector<T>]) {
  const T* elements = reinterpret_cast<const T*>(&bits);
#pragma unroll
  for (int i = 0; i < kVector<T>; ++i) values[i] = ToFloat(elements[i]);
}

// Two values in one register; float16 saturates.
template <typename T>
__device__ __forceinline__ uint32_t PackPair(float low, float high);
template <>
__device__ __forceinline__ uint32_t PackPair<__nv_bfloat16>(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
template <>
__device__ __forceinline__ uint32_t PackPair<__half>(float low, float high) {
  const __half2 pair(FromFloat<__half>(low), FromFloat<__half>(high));
  return *reinterpret_cast<const uint32_t*>(&pair);
}

template <typename T>
__device__ __forceinline__ T WarpSum(T value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kFullWarp, value, offset);
  }
  return value;
}
__device__ __forceinline__ float WarpMax(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kFullWarp, value, offset));
  }
  return value;
}

// 2^x; results below 2^-126 are zeros.
__device__ __forceinline__ float FastExp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
// exp(x), of which __expf() takes twice the instructions for results below 2^-126: zeros here.
__device__ __forceinline__ float FastExp(float x) { return FastExp2(x * 1.4426950408889634F); }

// a / b, as exact as the results' format.
template <typename T>
__device__ __forceinline__ float DivideFor(float a, float b) {
  return sizeof(T) == 2 ? __fdividef(a, b) : a / b;
}

__device__ __forceinline__ float Activate(ActivationKind kind, float x) {
  switch (kind) {
    case ActivationKind::kRelu:
      return fmaxf(x, 0.0F);
    case ActivationKind::kGelu:
      return 0.5F * x * (1.0F + erff(x * 0.70710678118654752F));
    case ActivationKind::kGeluTanh:
      return 0.5F * x * (1.0F + tanhf(0.79788456080286536F * (x + 0.044715F * x * x * x)));
    case ActivationKind::kSilu:
      return x / (1.0F + expf(-x));
  }
  return x;
}

// For results that are rounded to 16 bits: the activations that are made of exponentials without
// their slow paths, to about 1e-6.
__device__ __forceinline__ float ActivateFast(ActivationKind kind, float x) {
  switch (kind) {
    case ActivationKind::kGeluTanh:  // (1 + tanh(y)) / 2 = 1 / (1 + exp(-2 y))
      return __fdividef(x, 1.0F + __expf(-1.5957691216057308F * (x + 0.044715F * x * x * x)));
    case ActivationKind::kSilu:
      return __fdividef(x, 1.0F + __expf(-x));
    default:
      return Activate(kind, x);
  }
}

__device__ __forceinline__ uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// d += a b for one 16 x 16 by 16 x 8 tile, sums in float (PTX mma.m16n8k16).
template <typename T>
__device__ __forceinline__ void MultiplyTile(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                             uint32_t a3, uint32_t b0, uint32_t b1);
template <>
__device__ __forceinline__ void MultiplyTile<__nv_bfloat16>(float (&d)[4], uint32_t a0, uint32_t a1,
                                                            uint32_t a2, uint32_t a3, uint32_t b0,
                                                            uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void MultiplyTile<__half>(float (&d)[4], uint32_t a0, uint32_t a1,
                                                     uint32_t a2, uint32_t a3, uint32_t b0,
                                                     uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Waits until the kernels before this one in the stream have ended and their writes are visible.
// Before it a kernel may only touch what no earlier kernel of the same graph writes.
__device__ __forceinline__ void WaitForEarlierKernels() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel of the stream start; it waits for this one's end itself.
__device__ __forceinline__ void AllowNextKernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Reads a kernel's parameters once, so that they are in the constant cache when they are needed:
// the first read of each line costs as much as a read of memory, and every launch has new lines.
template <typename Params>
__device__ __forceinline__ void TouchParameters(const Params& params) {
  constexpr int kLineWords = 16;
  const uint32_t* words = reinterpret_cast<const uint32_t*>(&params);
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(Params) / 4); i += kLineWords) {
    asm volatile("" ::"r"(words[i]));
  }
}

// Makes `value` known here, not where it is used: for what is to be computed while memory is waited
// for.
template <typename T>
__device__ __forceinline__ void ComputeNow(T*& value) {
  asm volatile("" : "+l"(value));
}

// 16 bytes that are read once and never written while the kernel runs. Not by ld.global.nc: the
// compiler moves such reads over WaitForEarlierKernels() to save registers.
__device__ __forceinline__ uint4 LoadStreaming(const uint4* address) {
  uint4 bits;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
               : "l"(address));
  return bits;
}

// What an earlier kernel of the graph wrote: past the L1 cache, which may hold older values. Not
// moved over WaitForEarlierKernels().
__device__ __forceinline__ uint4 LoadFresh(const uint4* address) {
  uint4 bits;
  asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
               : "l"(address));
  return bits;
}
// Zeros, and no read, if !there.
__device__ __forceinline__ uint4 LoadFreshIf(const uint4* address, bool there) {
  uint4 bits;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.u32 p, %5, 0;\n"
      "mov.u32 %0, 0;\n"
      "mov.u32 %1, 0;\n"
      "mov.u32 %2, 0;\n"
      "mov.u32 %3, 0;\n"
      "@p ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];\n"
      "}\n"
      : "=&r"(bits.x), "=&r"(bits.y), "=&r"(bits.z), "=&r"(bits.w)
      : "l"(address), "r"(static_cast<uint32_t>(there)));
  return bits;
}
__device__ __forceinline__ float4 LoadFresh(const float4* address) {
  float4 values;
  asm volatile("ld.global.cg.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(values.x), "=f"(values.y), "=f"(values.z), "=f"(values.w)
               : "l"(address));
  return values;
}
__device__ __forceinline__ float LoadFresh(const float* address) {
  float value;
  asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(value) : "l"(address));
  return value;
}

// Copies 16 bytes, or writes 16 zeros if !there (the address must be valid all the same).
__device__ __forceinline__ void CopyToSharedAsync(void* shared, const void* global, bool there) {
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global),
               "r"(there ? 16 : 0));
}
__device__ __forceinline__ void CopyToSharedAsync(void* shared, const void* global) {
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(global));
}
// Copies 16 bytes, and the 16 that lie kDistance bytes on to as far on; nothing if !there.
template <int kDistance>
__device__ __forceinline__ void CopyPairToSharedAsyncIf(void* shared, const void* global,
                                                        bool there) {
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm("" : "+l"(global));  // one address, not two made of a third one
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.u32 p, %2, 0;\n"
      "@p cp.async.cg.shared.global [%0], [%1], 16;\n"
      "@p cp.async.cg.shared.global [%0+%3], [%1+%3], 16;\n"
      "}\n" ::"r"(address),
      "l"(global), "r"(static_cast<uint32_t>(there)), "n"(kDistance));
}
__device__ __forceinline__ void CommitSharedCopies() { asm volatile("cp.async.commit_group;"); }
template <int kPending>
__device__ __forceinline__ void WaitForSharedCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_DEVICE_MATH_CUH_
