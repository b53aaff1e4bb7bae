#include "backend/testing/memory_checkpoint.h"

#include <algorithm>

#include "backend/testing/random_weights.h"

namespace seq2seq {
namespace {

// A uniform number in [-1, 1) has deviation 0.577.
constexpr float kSpread = 0.02F / 0.577F;
constexpr int64_t kSurplus = int64_t{4} << 20;  // numbers, so that offsets can differ

}  // namespace

MemoryCheckpoint::MemoryCheckpoint(const TinyCheckpointOptions& options) : dtype_(options.dtype) {
  spec_.model_type = "t5";
  spec_.vocab_size = options.vocab_size;
  spec_.d_model = options.d_model;
  spec_.head_dim = options.d_kv;
  spec_.encoder = {options.num_layers, options.num_heads, options.d_ff, false};
  spec_.decoder = {options.num_decoder_layers, options.num_heads, options.d_ff, false};
  spec_.relative_positions = {options.buckets, options.max_distance};
  spec_.gated_ffn = options.feed_forward_proj.starts_with("gated-");
  spec_.activation = spec_.gated_ffn ? Activation::kGeluTanh : Activation::kRelu;
  generation_.eos_token_ids = {1};

  const int64_t largest = int64_t{std::max(options.vocab_size, options.d_ff)} * options.d_model;
  capacity_ = largest + kSurplus;
  numbers_.reserve(capacity_ * DTypeBytes(dtype_));
  WeightSource source(options.seed);
  for (int64_t i = 0; i < capacity_; ++i) AppendStored(kSpread * source.Next(), dtype_, &numbers_);
  for (int32_t i = 0; i < options.d_model; ++i) AppendStored(1.0F, dtype_, &ones_);

  encoder_ = Stack(spec_.encoder, false);
  decoder_ = Stack(spec_.decoder, true);
  encoder_.embedding = Matrix(options.vocab_size, options.d_model);
  decoder_.embedding = encoder_.embedding;
  lm_head_ = Matrix(options.vocab_size, options.d_model);
}

TensorView MemoryCheckpoint::Matrix(int64_t rows, int64_t columns) {
  TensorView view;
  next_ = (next_ + 65'551) % (capacity_ - rows * columns);
  view.data = &numbers_[next_ * static_cast<int64_t>(DTypeBytes(dtype_))];
  view.dtype = dtype_;
  view.shape = {rows, columns};
  return view;
}

NormWeights MemoryCheckpoint::Norm() const {
  NormWeights norm;
  norm.weight.data = ones_.data();
  norm.weight.dtype = dtype_;
  norm.weight.shape = {spec_.d_model};
  return norm;
}

AttentionWeights MemoryCheckpoint::Attention() {
  AttentionWeights attention;
  const int64_t inner = spec_.encoder_inner();
  attention.norm = Norm();
  attention.q.weight = Matrix(inner, spec_.d_model);
  attention.k.weight = Matrix(inner, spec_.d_model);
  attention.v.weight = Matrix(inner, spec_.d_model);
  attention.o.weight = Matrix(spec_.d_model, inner);
  return attention;
}

StackWeights MemoryCheckpoint::Stack(const StackSpec& stack, bool decoder) {
  StackWeights weights;
  for (int32_t i = 0; i < stack.layers; ++i) {
    LayerWeights layer;
    layer.self_attention = Attention();
    if (decoder) layer.cross_attention = Attention();
    layer.ffn.norm = Norm();
    if (spec_.gated_ffn) layer.ffn.gate.weight = Matrix(stack.d_ff, spec_.d_model);
    layer.ffn.up.weight = Matrix(stack.d_ff, spec_.d_model);
    layer.ffn.down.weight = Matrix(spec_.d_model, stack.d_ff);
    if (i == 0) layer.position_bias = Matrix(spec_.relative_positions.buckets, stack.heads);
    weights.layers.push_back(layer);
  }
  weights.final_norm = Norm();
  return weights;
}

}  // namespace seq2seq
