#include "backend/cpu/decoder.h"

#include <algorithm>
#include <utility>

namespace seq2seq::cpu {
namespace {

// A pass takes at least so many tokens: long decoder prefixes go through in pieces of this size.
constexpr int32_t kMinPassTokens = 64;

}  // namespace

Decoder::Decoder(const Weights* weights, const Compute& compute, KvPool* kv)
    : weights_(weights), compute_(compute), kv_(kv) {}

Result<std::unique_ptr<Decoder>> Decoder::Create(const Weights* weights, const Compute& compute,
                                                 KvPool* kv, const DecoderOptions& options) {
  std::unique_ptr<Decoder> decoder(new Decoder(weights, compute, kv));
  const ModelSpec& spec = weights->spec();
  for (const Layer& layer : weights->decoder().layers) {
    if (layer.position_bias.empty()) continue;
    decoder->position_bias_.emplace_back(layer.position_bias, spec.decoder.heads,
                                         /*bidirectional=*/false, spec.relative_positions,
                                         options.max_decoder_tokens);
  }
  decoder->max_tokens_ = std::max(options.max_logits_rows, kMinPassTokens);
  decoder->tokens_.reserve(decoder->max_tokens_);
  const size_t floats = decoder->LayOut(nullptr, options);
  SEQ2SEQ_ASSIGN_OR_RETURN(
      decoder->memory_,
      AnonymousMemory::Map(floats * sizeof(float),
                           "the decoder's activations (options 'max_active_sequences', "
                           "'max_source_tokens', 'max_new_tokens')"));
  decoder->LayOut(decoder->memory_.floats(), options);
  return decoder;
}

size_t Decoder::LayOut(float* base, const DecoderOptions& options) {
  const ModelSpec& spec = weights_->spec();
  size_t used = 0;
  const auto take = [&](Rows* rows, size_t count, int64_t size) {
    rows->stride = RowStride(size);
    rows->data = base == nullptr ? nullptr : base + used;
    used += count * rows->stride;
  };
  const int64_t inner = spec.decoder_inner();
  take(&hidden_, max_tokens_, spec.d_model);
  take(&normed_, max_tokens_, spec.d_model);
  take(&qkv_, max_tokens_, 3 * inner);
  take(&attended_, max_tokens_, inner);
  take(&ffn_, max_tokens_, spec.decoder.d_ff);
  take(&ffn_up_, max_tokens_, spec.gated_ffn ? spec.decoder.d_ff : 0);
  take(&head_input_, options.max_logits_rows, spec.d_model);
  take(&logits_, options.max_logits_rows, spec.vocab_size);
  take(&scores_, compute_.pool->threads(),
       std::max(options.max_source_tokens, options.max_decoder_tokens) + kPanelColumns);
  return used;
}

void Decoder::Add(const DecoderToken& token) {
  if (tokens_.size() == max_tokens_) Flush();
  if (!tokens_.empty() && tokens_.back().self_blocks == token.self_blocks) sequences_repeat_ = true;
  tokens_.push_back(token);
}

void Decoder::Flush() {
  compute_.pool->Run(static_cast<int32_t>(tokens_.size()), [&](int32_t chunk, int32_t) {
    weights_->decoder().embedding.CopyRow(tokens_[chunk].token, hidden_.row(chunk));
  });
  const auto layers = static_cast<int32_t>(weights_->decoder().layers.size());
  for (int32_t layer = 0; layer < layers; ++layer) {
    RunSelfAttention(layer);
    RunCrossAttention(layer);
    RunFeedForward(layer);
  }
  CollectHeadInputs();
  tokens_.clear();
  sequences_repeat_ = false;
}

template <typename Attend>
void Decoder::ForHeads(const Attend& attend) {
  const auto tokens = static_cast<int32_t>(tokens_.size());
  const int32_t heads = weights_->spec().decoder.heads;
  const int32_t wanted = (4 * compute_.pool->threads() + heads - 1) / heads;
  const int32_t groups = sequences_repeat_ ? 1 : std::min(tokens, wanted);
  compute_.pool->Run(heads * groups, [&](int32_t chunk, int32_t thread) {
    const int32_t group = chunk / heads;
    attend(chunk % heads, tokens * group / groups, tokens * (group + 1) / groups,
           scores_.row(thread));
  });
}

void Decoder::RunSelfAttention(int32_t layer) {
  const ModelSpec& spec = weights_->spec();
  const SelfAttention& weights = weights_->decoder().layers[layer].self;
  const auto tokens = static_cast<int32_t>(tokens_.size());
  RunNorm(compute_, weights.norm, spec.norm_epsilon, hidden_, tokens, normed_);
  RunLinear(compute_, weights.qkv, normed_, tokens, qkv_, Store::kReplace);
  ForHeads([&](int32_t head, int32_t begin, int32_t end, float* scores) {
    AttendSelf(layer, head, begin, end, scores);
  });
  RunLinear(compute_, weights.out, attended_, tokens, hidden_, Store::kAdd);
}

void Decoder::AttendSelf(int32_t layer, int32_t head, int32_t begin, int32_t end, float* scores) {
  const ModelSpec& spec = weights_->spec();
  const int32_t inner = spec.decoder_inner();
  const int32_t column = head * spec.head_dim;
  for (int32_t i = begin; i < end; ++i) {
    const float* key = qkv_.row(i) + inner + column;
    kv_->Write(tokens_[i].self_blocks, tokens_[i].position, layer, head, key, key + inner);
  }
  AttendArgs args;
  args.head_dim = spec.head_dim;
  args.scale = spec.attention_scale;
  args.pool = kv_->data();
  args.block_stride = kv_->block_stride();
  args.key_offset = kv_->key_offset(layer, head);
  args.value_offset = kv_->value_offset(layer, head);
  args.value_stride = kv_->value_stride();
  args.scores = scores;
  for (int32_t i = begin; i < end; ++i) {
    args.query = qkv_.row(i) + column;
    args.bias = BiasOf(layer).Row(head, tokens_[i].position);
    args.blocks = tokens_[i].self_blocks;
    args.count = tokens_[i].position + 1;
    args.output = attended_.row(i) + column;
    compute_.kernels->attend(args);
  }
}

void Decoder::RunCrossAttention(int32_t layer) {
  const ModelSpec& spec = weights_->spec();
  const CrossAttention& weights = weights_->decoder().layers[layer].cross;
  const auto tokens = static_cast<int32_t>(tokens_.size());
  RunNorm(compute_, weights.norm, spec.norm_epsilon, hidden_, tokens, normed_);
  RunLinear(compute_, weights.q, normed_, tokens, qkv_, Store::kReplace);
  ForHeads([&](int32_t head, int32_t begin, int32_t end, float* scores) {
    AttendCross(layer, head, begin, end, scores);
  });
  RunLinear(compute_, weights.out, attended_, tokens, hidden_, Store::kAdd);
}

void Decoder::AttendCross(int32_t layer, int32_t head, int32_t begin, int32_t end, float* scores) {
  const ModelSpec& spec = weights_->spec();
  const int32_t column = head * spec.head_dim;
  AttendArgs args;
  args.head_dim = spec.head_dim;
  args.scale = spec.attention_scale;
  args.pool = kv_->data();
  args.block_stride = kv_->block_stride();
  args.key_offset = kv_->key_offset(layer, head);
  args.value_offset = kv_->value_offset(layer, head);
  args.value_stride = kv_->value_stride();
  args.scores = scores;
  for (int32_t i = begin; i < end; ++i) {
    args.query = qkv_.row(i) + column;
    args.blocks = tokens_[i].cross_blocks;
    args.count = tokens_[i].source_length;
    args.output = attended_.row(i) + column;
    compute_.kernels->attend(args);
  }
}

void Decoder::RunFeedForward(int32_t layer) {
  const ModelSpec& spec = weights_->spec();
  const FeedForward& weights = weights_->decoder().layers[layer].ffn;
  const auto tokens = static_cast<int32_t>(tokens_.size());
  RunNorm(compute_, weights.norm, spec.norm_epsilon, hidden_, tokens, normed_);
  RunFeedForwardIn(compute_, weights, spec.activation, normed_, tokens, ffn_, ffn_up_);
  RunLinear(compute_, weights.down, ffn_, tokens, hidden_, Store::kAdd);
}

void Decoder::CollectHeadInputs() {
  const ModelSpec& spec = weights_->spec();
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i].logits_row < 0) continue;
    float* out = head_input_.row(tokens_[i].logits_row);
    compute_.kernels->rms_norm(hidden_.row(static_cast<int32_t>(i)),
                               weights_->decoder().final_norm.data(), spec.norm_epsilon,
                               spec.d_model, out);
    if (spec.head_input_scale == 1.0F) continue;
    for (int32_t d = 0; d < spec.d_model; ++d) out[d] *= spec.head_input_scale;
  }
}

void Decoder::ComputeLogits(int32_t rows) {
  if (!tokens_.empty()) Flush();
  RunLinear(compute_, weights_->head(), head_input_, rows, logits_, Store::kReplace);
}

}  // namespace seq2seq::cpu
