// How keys and values lie in the paged cache.
#ifndef SEQ2SEQ_BACKEND_KERNELS_KV_LAYOUT_H_
#define SEQ2SEQ_BACKEND_KERNELS_KV_LAYOUT_H_

#include <cuda_runtime.h>

#include <cstdint>

namespace seq2seq::kernels {

// The pool is [block][layer][key, value][head][token][dim]: a block is contiguous, and what one
// layer needs of it is too. Elements, not bytes.
struct KvLayout {
  int32_t layers = 0;
  int32_t heads = 0;
  int32_t head_dim = 0;
  int32_t block_tokens = 0;

  __host__ __device__ constexpr int64_t HeadStride() const {
    return int64_t{block_tokens} * head_dim;
  }
  __host__ __device__ constexpr int64_t ValueOffset() const { return heads * HeadStride(); }
  __host__ __device__ constexpr int64_t LayerStride() const { return 2 * ValueOffset(); }
  __host__ __device__ constexpr int64_t BlockStride() const { return layers * LayerStride(); }
};

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_KV_LAYOUT_H_
