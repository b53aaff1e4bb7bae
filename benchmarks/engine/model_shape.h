// The shapes of tools/lib/model_shapes.py and one of another family, for weights in memory.
#ifndef SEQ2SEQ_BENCHMARKS_ENGINE_MODEL_SHAPE_H_
#define SEQ2SEQ_BENCHMARKS_ENGINE_MODEL_SHAPE_H_

#include <optional>
#include <string_view>

#include "backend/core/dtype.h"
#include "backend/testing/memory_checkpoint.h"
#include "backend/testing/tiny_checkpoint.h"

namespace seq2seq {

// BART-large: LayerNorms behind sub-layers, learned positions, biases.
inline MemoryCheckpointOptions BartLarge(DType dtype) {
  MemoryCheckpointOptions shape;
  ModelSpec& spec = shape.spec;
  spec.model_type = "bart";
  spec.vocab_size = 50265;
  spec.d_model = 1024;
  spec.head_dim = 64;
  spec.encoder = {.layers = 12, .heads = 16, .d_ff = 4096};
  spec.decoder = spec.encoder;
  spec.norm = NormKind::kLayer;
  spec.norm_placement = NormPlacement::kPost;
  spec.norm_epsilon = 1e-5F;
  spec.final_norm = false;
  spec.positions = PositionKind::kTable;
  spec.position_offset = 2;
  spec.max_positions = 1024;
  spec.embedding_norm = true;
  spec.activation = Activation::kGelu;
  spec.attention_scale = 0.125F;
  spec.tied_head = true;
  shape.biases = true;
  shape.dtype = dtype;
  shape.numbers = MemoryNumbers::kShared;
  return shape;
}

// t5_1_5b (1,521,738,240 parameters and the table of embeddings), flan_t5_xl, t5_small, bart_large,
// or bart_large_t5, a T5 of its sizes. Heads of T5s are matrices of their own, as LargeT5() has
// them, also t5_small's.
inline std::optional<MemoryCheckpointOptions> ModelShape(std::string_view name, DType dtype) {
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
  if (name == "bart_large") return BartLarge(dtype);
  if (name == "t5_1_5b") return LargeT5(shape);
  if (name == "flan_t5_xl") {
    shape.d_model = 2048;
    shape.num_heads = 32;
    shape.d_ff = 5120;
    return LargeT5(shape);
  }
  if (name == "t5_small") {
    shape.d_model = 512;
    shape.num_heads = 8;
    shape.d_ff = 2048;
    shape.num_layers = 6;
    shape.num_decoder_layers = 6;
    shape.feed_forward_proj = "relu";
    return LargeT5(shape);
  }
  if (name == "bart_large_t5") {
    shape.vocab_size = 50265;
    shape.d_model = 1024;
    shape.num_heads = 16;
    shape.d_ff = 4096;
    shape.num_layers = 12;
    shape.num_decoder_layers = 12;
    shape.feed_forward_proj = "relu";
    return LargeT5(shape);
  }
  return std::nullopt;
}

}  // namespace seq2seq

#endif  // SEQ2SEQ_BENCHMARKS_ENGINE_MODEL_SHAPE_H_
