#include "backend/testing/synthetic_checkpoint.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>

namespace seq2seq {
namespace {

// bfloat16 by truncation; float16 for magnitudes between 2^-14 and 2, which is all that is needed.
void Store(DType dtype, float value, std::byte* place) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (dtype == DType::kFloat32) {
    std::memcpy(place, &bits, 4);
    return;
  }
  uint16_t half = static_cast<uint16_t>(bits >> 16);
  if (dtype == DType::kFloat16) {
    const auto exponent = static_cast<int32_t>(bits >> 23 & 255) - 112;
    half =
        exponent < 1
            ? 0
            : static_cast<uint16_t>((bits >> 16 & 0x8000) | exponent << 10 | (bits >> 13 & 1023));
  }
  std::memcpy(place, &half, 2);
}

}  // namespace

SyntheticCheckpoint::SyntheticCheckpoint(const SyntheticShape& shape, DType dtype) : dtype_(dtype) {
  spec_.model_type = "t5";
  spec_.vocab_size = shape.vocab_size;
  spec_.d_model = shape.d_model;
  spec_.head_dim = shape.head_dim;
  spec_.encoder = {shape.encoder_layers, shape.heads, shape.d_ff, false};
  spec_.decoder = {shape.decoder_layers, shape.heads, shape.d_ff, false};
  spec_.relative_positions = {32, 128};
  spec_.activation = shape.gated ? Activation::kGeluTanh : Activation::kRelu;
  spec_.gated_ffn = shape.gated;
  generation_.eos_token_ids = {1};

  const size_t element = DTypeBytes(dtype);
  const int64_t largest = int64_t{std::max(shape.vocab_size, shape.d_ff)} * shape.d_model;
  capacity_ = largest + (int64_t{4} << 20);
  numbers_.resize(capacity_ * element);
  std::mt19937_64 engine(7);
  std::normal_distribution<float> normal(0.0F, 0.02F);
  for (int64_t i = 0; i < capacity_; ++i) Store(dtype, normal(engine), &numbers_[i * element]);
  ones_.resize(shape.d_model * element);
  for (int32_t i = 0; i < shape.d_model; ++i) Store(dtype, 1.0F, &ones_[i * element]);

  encoder_ = Stack(spec_.encoder, false);
  decoder_ = Stack(spec_.decoder, true);
  encoder_.embedding = Matrix(shape.vocab_size, shape.d_model);
  decoder_.embedding = encoder_.embedding;
  lm_head_ = Matrix(shape.vocab_size, shape.d_model);
}

TensorView SyntheticCheckpoint::Matrix(int64_t rows, int64_t columns) {
  TensorView view;
  next_ = (next_ + 65'551) % (capacity_ - rows * columns);
  view.data = &numbers_[next_ * static_cast<int64_t>(DTypeBytes(dtype_))];
  view.dtype = dtype_;
  view.shape = {rows, columns};
  return view;
}

NormWeights SyntheticCheckpoint::Norm() const {
  NormWeights norm;
  norm.weight.data = ones_.data();
  norm.weight.dtype = dtype_;
  norm.weight.shape = {spec_.d_model};
  return norm;
}

AttentionWeights SyntheticCheckpoint::Attention() {
  AttentionWeights attention;
  const int64_t inner = spec_.encoder_inner();
  attention.norm = Norm();
  attention.q.weight = Matrix(inner, spec_.d_model);
  attention.k.weight = Matrix(inner, spec_.d_model);
  attention.v.weight = Matrix(inner, spec_.d_model);
  attention.o.weight = Matrix(spec_.d_model, inner);
  return attention;
}

StackWeights SyntheticCheckpoint::Stack(const StackSpec& stack, bool decoder) {
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
