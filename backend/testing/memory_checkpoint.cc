#include "backend/testing/memory_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace seq2seq {
namespace {

// A uniform number in [-1, 1) has deviation 0.577.
constexpr float kDeviation = 0.577F;
constexpr int64_t kSurplus = int64_t{4} << 20;  // numbers of a block, so that offsets can differ

int64_t TableRows(const ModelSpec& spec) { return spec.max_positions + spec.position_offset; }

}  // namespace

MemoryCheckpointOptions LargeT5(const TinyCheckpointOptions& options) {
  MemoryCheckpointOptions large;
  ModelSpec& spec = large.spec;
  spec.model_type = "t5";
  spec.vocab_size = options.vocab_size;
  spec.d_model = options.d_model;
  spec.head_dim = options.d_kv;
  spec.encoder = {options.num_layers, options.num_heads, options.d_ff, false};
  spec.decoder = {options.num_decoder_layers, options.num_heads, options.d_ff, false};
  spec.relative_positions = {options.buckets, options.max_distance};
  spec.gated_ffn = options.feed_forward_proj.starts_with("gated-");
  spec.activation = spec.gated_ffn ? Activation::kGeluTanh : Activation::kRelu;
  large.dtype = options.dtype;
  large.seed = options.seed;
  large.numbers = MemoryNumbers::kShared;
  return large;
}

MemoryCheckpoint::MemoryCheckpoint(const MemoryCheckpointOptions& options)
    : options_(options), source_(options.seed) {
  const ModelSpec& spec = options_.spec;
  generation_.eos_token_ids = {1};
  if (options_.numbers == MemoryNumbers::kShared) MakeBlock();
  encoder_ = Stack(spec.encoder, false);
  decoder_ = Stack(spec.decoder, true);
  encoder_.embedding = Tensor({spec.vocab_size, spec.d_model}, 1.0F / spec.embedding_scale);
  decoder_.embedding = encoder_.embedding;
  lm_head_ = spec.tied_head ? encoder_.embedding : Matrix(spec.vocab_size, spec.d_model);
  decoder_.logits_bias = Bias(spec.vocab_size);
}

void MemoryCheckpoint::MakeBlock() {
  const ModelSpec& spec = options_.spec;
  const int64_t rows =
      std::max<int64_t>({spec.vocab_size, spec.encoder.d_ff, spec.decoder.d_ff,
                         spec.encoder_inner(), spec.decoder_inner(), TableRows(spec)});
  block_ = Numbers({rows * spec.d_model + kSurplus}, 0.0F, 0.02F / kDeviation);
}

// Of their own.
TensorView MemoryCheckpoint::Numbers(std::vector<int64_t> shape, float center, float spread) {
  TensorView view;
  view.dtype = options_.dtype;
  view.shape = std::move(shape);
  std::vector<std::byte>& bytes = numbers_.emplace_back();
  bytes.reserve(view.elements() * DTypeBytes(options_.dtype));
  for (int64_t i = 0; i < view.elements(); ++i) {
    AppendStored(center + spread * source_.Next(), options_.dtype, &bytes);
  }
  view.data = bytes.data();
  return view;
}

TensorView MemoryCheckpoint::Tensor(std::vector<int64_t> shape, float spread) {
  if (!block_.present()) return Numbers(std::move(shape), 0.0F, spread);
  TensorView view = block_;
  view.shape = std::move(shape);
  next_ = (next_ + 65'551) % (block_.elements() - view.elements());
  view.data += next_ * static_cast<int64_t>(DTypeBytes(view.dtype));
  return view;
}

TensorView MemoryCheckpoint::Matrix(int64_t outputs, int64_t inputs) {
  return Tensor({outputs, inputs}, 1.0F / (kDeviation * std::sqrt(static_cast<float>(inputs))));
}

TensorView MemoryCheckpoint::Bias(int64_t outputs) {
  return options_.biases ? Tensor({outputs}, 0.5F) : TensorView();
}

LinearWeights MemoryCheckpoint::Linear(int64_t outputs, int64_t inputs) {
  return {Matrix(outputs, inputs), Bias(outputs)};
}

NormWeights MemoryCheckpoint::Norm() {
  const float spread = block_.present() ? 0.0F : 0.25F;
  return {Numbers({options_.spec.d_model}, 1.0F, spread), Bias(options_.spec.d_model)};
}

AttentionWeights MemoryCheckpoint::Attention(int64_t inner) {
  const int64_t width = options_.spec.d_model;
  AttentionWeights attention;
  attention.norm = Norm();
  attention.q = Linear(inner, width);
  attention.k = Linear(inner, width);
  attention.v = Linear(inner, width);
  attention.o = Linear(width, inner);
  return attention;
}

FfnWeights MemoryCheckpoint::FeedForward(int64_t d_ff) {
  const int64_t width = options_.spec.d_model;
  FfnWeights ffn;
  ffn.norm = Norm();
  if (options_.spec.gated_ffn) {
    ffn.gate.weight = Matrix(d_ff, width);
    ffn.up.weight = Matrix(d_ff, width);
  } else {
    ffn.up = Linear(d_ff, width);
  }
  ffn.down = Linear(width, d_ff);
  return ffn;
}

StackWeights MemoryCheckpoint::Stack(const StackSpec& stack, bool decoder) {
  const ModelSpec& spec = options_.spec;
  const int64_t inner = int64_t{stack.heads} * spec.head_dim;
  const bool relative = spec.positions == PositionKind::kRelativeBuckets;
  StackWeights weights;
  for (int32_t i = 0; i < stack.layers; ++i) {
    LayerWeights& layer = weights.layers.emplace_back();
    layer.self_attention = Attention(inner);
    if (decoder) layer.cross_attention = Attention(inner);
    layer.ffn = FeedForward(stack.d_ff);
    if (relative && (i == 0 || stack.position_bias_per_layer)) {
      layer.position_bias = Tensor({spec.relative_positions.buckets, stack.heads}, 1.0F);
    }
  }
  if (!relative) weights.position_table = Tensor({TableRows(spec), spec.d_model}, 1.0F);
  if (spec.embedding_norm) weights.embedding_norm = Norm();
  if (spec.final_norm) weights.final_norm = Norm();
  return weights;
}

}  // namespace seq2seq
