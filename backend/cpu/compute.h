// What every computation of the CPU engine needs, and the matrix product over all its threads.
#ifndef SEQ2SEQ_BACKEND_CPU_COMPUTE_H_
#define SEQ2SEQ_BACKEND_CPU_COMPUTE_H_

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels/kernel_table.h"
#include "backend/cpu/thread_pool.h"
#include "backend/cpu/weights.h"

namespace seq2seq::cpu {

// Borrowed; both outlive their users.
struct Compute {
  const KernelTable* kernels = nullptr;
  ThreadPool* pool = nullptr;
};

// Rows of activations: `data` + row x `stride` floats.
struct Rows {
  float* data = nullptr;
  size_t stride = 0;

  float* row(int32_t index) const { return data + index * stride; }
  Rows from(int32_t index) const { return {row(index), stride}; }
};

// The stride for rows of `size` floats: an odd number of cache lines, so that the rows of a tile do
// not compete for the same sets of the cache.
constexpr size_t RowStride(int64_t size) {
  return (static_cast<size_t>((size + kLaneFloats - 1) / kLaneFloats) | 1) * kLaneFloats;
}

enum class Store : uint8_t { kReplace, kAdd };

// y (+)= x W^T + b for `rows` rows; all threads take part.
void RunLinear(const Compute& compute, const Linear& linear, Rows x, int32_t rows, Rows y,
               Store store);

// out = rms_norm(x) for `rows` rows of weight.size() floats; all threads take part.
void RunNorm(const Compute& compute, const std::vector<float>& weight, float epsilon, Rows x,
             int32_t rows, Rows out);

// out = activation(x W_up^T), or activation(x W_gate^T) * (x W_up^T) where gated. `up` is scratch
// like out, used where gated.
void RunFeedForwardIn(const Compute& compute, const FeedForward& ffn, Activation activation, Rows x,
                      int32_t rows, Rows out, Rows up);

}  // namespace seq2seq::cpu

#endif  // SEQ2SEQ_BACKEND_CPU_COMPUTE_H_
