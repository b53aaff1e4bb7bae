// How keys and values lie in the paged cache.
#ifndef SEQ2SEQ_BACKEND_KERNELS_KV_LAYOUT_H_
#define SEQ2SEQ_BACKEND_KERNELS_KV_LAYOUT_H_

#include <cuda_runtime.h>

#include <cstdint>

namespace seq2seq::kernels {

// Tokens of a block, with every model: a constant, as kernels divide by it.
inline constexpr int32_t kBlockTokens = 16;

// The pool is [block][layer][key, value][head][token][dim]: a block is contiguous, and what one
// layer needs of it is too. Elements, not bytes.
struct KvLayout {
  constexpr KvLayout() = default;
  // head_dim >= 2
  constexpr KvLayout(int32_t layers, int32_t heads, int32_t head_dim)
      : layers(layers),
        heads(heads),
        head_dim(head_dim),
        head_inverse(static_cast<uint32_t>((uint64_t{1} << 32) / head_dim + 1)) {}

  __host__ __device__ constexpr int64_t HeadStride() const {
    return int64_t{kBlockTokens} * head_dim;
  }
  __host__ __device__ constexpr int64_t ValueOffset() const { return heads * HeadStride(); }
  __host__ __device__ constexpr int64_t LayerStride() const { return 2 * ValueOffset(); }
  __host__ __device__ constexpr int64_t BlockStride() const { return layers * LayerStride(); }

  // Which head has dimension `index` of all heads' one after the other. Right where
  // index x head_dim is below 2^32; a division would take kernels twenty instructions.
  __host__ __device__ constexpr int32_t HeadOf(int32_t index) const {
    return static_cast<int32_t>(uint64_t{static_cast<uint32_t>(index)} * head_inverse >> 32);
  }

  int32_t layers = 0;
  int32_t heads = 0;
  int32_t head_dim = 0;
  uint32_t head_inverse = 0;  // 2^32 / head_dim, rounded up
};

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_KV_LAYOUT_H_
