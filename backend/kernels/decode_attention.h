// Attention of one decode step's rows over the paged cache.
#ifndef SEQ2SEQ_BACKEND_KERNELS_DECODE_ATTENTION_H_
#define SEQ2SEQ_BACKEND_KERNELS_DECODE_ATTENTION_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "backend/kernels/element_type.h"
#include "backend/kernels/kv_layout.h"
#include "backend/kernels/launch.h"
#include "backend/kernels/step_state.h"

namespace seq2seq::kernels {

// Heads of all rows that fill the device, so that none need be split. From so many on a warp for
// each is faster than a block: on an H200, 16 rows of 24 heads lose 3 % of a step, 32 rows gain.
constexpr int32_t kManyHeads = 640;

// Blocks that share a row's head, a power of two up to `most`: as many as it takes to fill the
// device.
constexpr int32_t DecodeSplits(int32_t rows, int32_t heads, int32_t most) {
  int32_t splits = 1;
  while (splits < most && rows * heads * splits < kManyHeads) splits *= 2;
  return splits;
}

struct DecodeAttentionArgs {
  const float* query = nullptr;  // [rows][heads x head_dim]
  const void* pool = nullptr;    // the model's number format
  KvLayout layout;
  int64_t layer_offset = 0;         // elements, of this layer's keys in a block
  const int32_t* blocks = nullptr;  // [max_slots][block_stride]
  int32_t block_stride = 0;
  const RowInfo* row_infos = nullptr;
  int32_t rows = 0;
  int32_t row_capacity = 0;
  // Cross-attention reads source_length positions, self-attention those up to the row's own.
  // Reading starts before the query is there: but for the own position, earlier passes wrote all of
  // it.
  bool cross = false;
  // Added to the score of a key `d` positions back: [heads][max_distance + 1], the last for all
  // farther ones. Null: nothing is added.
  const float* bias = nullptr;
  int32_t max_distance = 0;
  float scale = 1.0F;
  int32_t splits = 1;      // blocks (a cluster) that share one row's head: 1, 2, 4 or 8
  void* output = nullptr;  // [heads x head_dim / 32][row_capacity][32], the model's number format
};

// head_dim is a multiple of 16 bytes, at most 256 (128 in float32). Rows that are not active get
// zeros.
cudaError_t LaunchDecodeAttention(ElementType type, const DecodeAttentionArgs& args,
                                  const LaunchContext& context);

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_DECODE_ATTENTION_H_
