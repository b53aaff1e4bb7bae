// Bidirectional self-attention of packed sources.
#ifndef SEQ2SEQ_BACKEND_KERNELS_ENCODER_ATTENTION_H_
#define SEQ2SEQ_BACKEND_KERNELS_ENCODER_ATTENTION_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "backend/kernels/element_type.h"
#include "backend/kernels/launch.h"

namespace seq2seq::kernels {

// Queries that one block handles.
constexpr int32_t kQueryTile = 128;

// A piece of one source: kQueryTile of its queries (fewer at its end). Of length 0: no work.
struct QueryTile {
  int32_t first_token = 0;  // of the source, in the packed batch
  int32_t length = 0;       // of the source
  int32_t first_query = 0;  // of the tile, in the source
  int32_t reserved = 0;
};

struct EncoderAttentionArgs {
  const void* query_key_value = nullptr;  // [tokens][3 x heads x head_dim]
  void* output = nullptr;                 // [tokens][heads x head_dim]
  const QueryTile* tiles = nullptr;       // [tile_count]
  int32_t tile_count = 0;
  int32_t tokens = 0;  // of all sources
  int32_t heads = 0;
  int32_t head_dim = 0;
  // Added to the score of key j for query i: [heads][2 max_distance + 1] at j - i + max_distance,
  // clamped. Null: nothing is added.
  const float* bias = nullptr;
  int32_t max_distance = 0;
  float scale = 1.0F;
};

// Whether the kernel for tensor cores takes float16 and bfloat16 of this shape: head_dim is 64 or
// 128, and its tiles and the bias of a head fit into `shared_limit` bytes.
bool TileAttentionTakes(int32_t head_dim, int32_t max_distance, size_t shared_limit);

// Float16 and bfloat16 run on tensor cores where the shape allows it, with head_dim 64 on compute
// capability 9.0 by that chip's own means; everything else (head_dim a multiple of 16 bytes, at
// most 256) on a plain kernel. max_distance is at most 4096.
cudaError_t LaunchEncoderAttention(ElementType type, const EncoderAttentionArgs& args,
                                   const LaunchContext& context);

// Lets the kernels use as much shared memory as they ask for; once a device, before any launch.
cudaError_t PrepareEncoderAttention();

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_ENCODER_ATTENTION_H_
