#pragma once

#include <cuda_runtime_api.h>

#include "backend/kernels/element_type.h"

namespace seq2seq::kernels {

// Operands of RmsNorm. All pointers are device memory, row-major and contiguous.
struct RmsNormParams {
  // [rows, width], the residual stream: read, and overwritten with residual + delta.
  float* residual = nullptr;
  // [rows, width] of activation_type, what the previous layer adds; null: nothing is added, and
  // `residual` is only read.
  const void* delta = nullptr;
  // [width] of weight_type.
  const void* weight = nullptr;
  // [rows, width] of activation_type. May be the same memory as `delta`; must not overlap
  // `residual`.
  void* output = nullptr;

  int rows = 0;
  int width = 0;
  // Added to the mean square; finite and not negative.
  float epsilon = 1e-6f;

  ElementType weight_type = ElementType::kFloat32;
  ElementType activation_type = ElementType::kFloat32;
};

// Adds `delta` to the residual stream and normalizes each row by its root mean square:
//   residual[r] += delta[r]
//   output[r] = residual[r] / sqrt(mean(residual[r]^2) + epsilon) * weight
// (Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019; T5 uses it without a bias).
// Arithmetic is float, and the output is rounded once; float16 saturates.
//
// The work is enqueued on `stream`; the call neither waits nor allocates, and can be captured in a
// graph. Returns cudaErrorInvalidValue, with nothing enqueued, where a required pointer is null or
// not aligned to its element, rows is negative, width is not positive, epsilon is negative or not
// finite, or a type is none of the enumerators. Zero rows succeed without a launch. Otherwise
// returns what the launch returned. Threads: may be called from any thread.
cudaError_t RmsNorm(const RmsNormParams& params, cudaStream_t stream);

}  // namespace seq2seq::kernels
