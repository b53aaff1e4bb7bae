// The shapes of tools/lib/model_shapes.py, for weights in memory.
#ifndef SEQ2SEQ_BENCHMARKS_ENGINE_MODEL_SHAPE_H_
#define SEQ2SEQ_BENCHMARKS_ENGINE_MODEL_SHAPE_H_

#include <optional>
#include <string_view>

#include "backend/core/dtype.h"
#include "backend/testing/tiny_checkpoint.h"

namespace seq2seq {

// t5_1_5b (1,521,738,240 parameters and the table of embeddings), flan_t5_xl or t5_small. Heads are
// matrices of their own, as MemoryCheckpoint has them, also t5_small's.
inline std::optional<TinyCheckpointOptions> ModelShape(std::string_view name, DType dtype) {
  TinyCheckpointOptions shape{.vocab_size = 32128,
                              .d_model = 1536,
                              .d_kv = 64,
                              .num_heads = 24,
                              .d_ff = 3584,
                              .num_layers = 24,
                              .num_decoder_layers = 24,
                              .buckets = 32,
                              .max_distance = 128,
                              .tie_word_embeddings = false,
                              .dtype = dtype};
  if (name == "t5_1_5b") return shape;
  if (name == "flan_t5_xl") {
    shape.d_model = 2048;
    shape.num_heads = 32;
    shape.d_ff = 5120;
    return shape;
  }
  if (name == "t5_small") {
    shape.d_model = 512;
    shape.num_heads = 8;
    shape.d_ff = 2048;
    shape.num_layers = 6;
    shape.num_decoder_layers = 6;
    shape.feed_forward_proj = "relu";
    return shape;
  }
  return std::nullopt;
}

}  // namespace seq2seq

#endif  // SEQ2SEQ_BENCHMARKS_ENGINE_MODEL_SHAPE_H_
