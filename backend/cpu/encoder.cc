#include "backend/cpu/encoder.h"

#include <algorithm>
#include <utility>

namespace seq2seq::cpu {
namespace {

// Queries whose scores are held at once: they should stay in the L1 or L2 cache.
constexpr int32_t kQueryTile = 12;

}  // namespace

Encoder::Encoder(const Weights* weights, const Compute& compute, KvPool* kv)
    : weights_(weights), compute_(compute), kv_(kv) {}

Result<std::unique_ptr<Encoder>> Encoder::Create(const Weights* weights, const Compute& compute,
                                                 KvPool* kv, const EncoderOptions& options) {
  std::unique_ptr<Encoder> encoder(new Encoder(weights, compute, kv));
  const ModelSpec& spec = weights->spec();
  for (const Layer& layer : weights->encoder().layers) {
    if (layer.position_bias.empty()) continue;
    encoder->position_bias_.emplace_back(layer.position_bias, spec.encoder.heads,
                                         /*bidirectional=*/true, spec.relative_positions,
                                         options.max_source_tokens);
  }
  encoder->sources_.reserve(options.max_items);
  encoder->segments_.reserve(options.max_items);
  encoder->max_source_tokens_ = options.max_source_tokens;
  encoder->value_panels_ = (spec.head_dim + kPanelColumns - 1) / kPanelColumns;
  encoder->padded_source_ =
      (options.max_source_tokens + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
  const size_t floats = encoder->LayOut(nullptr, options);
  SEQ2SEQ_ASSIGN_OR_RETURN(
      encoder->memory_,
      AnonymousMemory::Map(floats * sizeof(float),
                           "the encoder's activations (option 'max_source_tokens')"));
  encoder->LayOut(encoder->memory_.floats(), options);
  return encoder;
}

size_t Encoder::LayOut(float* base, const EncoderOptions& options) {
  const ModelSpec& spec = weights_->spec();
  size_t used = 0;
  const auto take = [&](Rows* rows, size_t count, int64_t size) {
    rows->stride = RowStride(size);
    rows->data = base == nullptr ? nullptr : base + used;
    used += count * rows->stride;
  };
  take(&hidden_, options.max_tokens, spec.d_model);
  take(&qkv_, options.max_tokens, 3 * int64_t{spec.encoder_inner()});
  take(&normed_, kSliceTokens, spec.d_model);
  take(&attended_, kSliceTokens, spec.encoder_inner());
  take(&ffn_, kSliceTokens, spec.encoder.d_ff);
  take(&ffn_up_, kSliceTokens, spec.gated_ffn ? spec.encoder.d_ff : 0);
  take(&cross_, kSliceTokens, 2 * int64_t{spec.decoder_inner()});
  const size_t keys = padded_source_ * spec.head_dim;
  const size_t values = padded_source_ * value_panels_ * kPanelColumns;
  take(&scratch_, compute_.pool->threads(),
       static_cast<int64_t>(keys + values + kQueryTile * RowStride(padded_source_)));
  return used;
}

void Encoder::Begin(std::span<const EncoderSource> batch) {
  sources_.clear();
  rows_ = 0;
  next_slice_ = 0;
  for (const EncoderSource& source : batch) {
    sources_.push_back({rows_, static_cast<int32_t>(source.ids.size()), source});
    rows_ += sources_.back().length;
  }
}

bool Encoder::Advance() {
  const auto encoder_layers = static_cast<int32_t>(weights_->encoder().layers.size());
  const auto decoder_layers = static_cast<int32_t>(weights_->decoder().layers.size());
  const int32_t pieces = (rows_ + kSliceTokens - 1) / kSliceTokens;
  const int32_t slices = (2 * encoder_layers + decoder_layers) * pieces;
  if (next_slice_ < slices) {
    const int32_t phase = next_slice_ / pieces;
    const int32_t begin = next_slice_ % pieces * kSliceTokens;
    const int32_t end = std::min(rows_, begin + kSliceTokens);
    if (phase >= 2 * encoder_layers) {
      WriteCross(phase - 2 * encoder_layers, begin, end);
    } else if (phase % 2 == 0) {
      ProjectLayer(phase / 2, begin, end);
    } else {
      FinishLayer(phase / 2, begin, end);
    }
    ++next_slice_;
  }
  return next_slice_ == slices;
}

void Encoder::ProjectLayer(int32_t layer, int32_t begin, int32_t end) {
  const SelfAttention& weights = weights_->encoder().layers[layer].self;
  const int32_t rows = end - begin;
  if (layer == 0) Embed(begin, end);
  RunNorm(compute_, weights.norm, weights_->spec().norm_epsilon, hidden_.from(begin), rows,
          normed_);
  RunLinear(compute_, weights.qkv, normed_, rows, qkv_.from(begin), Store::kReplace);
}

void Encoder::FinishLayer(int32_t layer, int32_t begin, int32_t end) {
  const ModelSpec& spec = weights_->spec();
  const Layer& weights = weights_->encoder().layers[layer];
  const int32_t rows = end - begin;
  const Rows hidden = hidden_.from(begin);
  FindSegments(begin, end);
  const auto segments = static_cast<int32_t>(segments_.size());
  compute_.pool->Run(segments * spec.encoder.heads, [&](int32_t chunk, int32_t thread) {
    Attend(layer, chunk % spec.encoder.heads, segments_[chunk / spec.encoder.heads], begin,
           scratch_.row(thread));
  });
  RunLinear(compute_, weights.self.out, attended_, rows, hidden, Store::kAdd);
  RunNorm(compute_, weights.ffn.norm, spec.norm_epsilon, hidden, rows, normed_);
  RunFeedForwardIn(compute_, weights.ffn, spec.activation, normed_, rows, ffn_, ffn_up_);
  RunLinear(compute_, weights.ffn.down, ffn_, rows, hidden, Store::kAdd);
}

void Encoder::Embed(int32_t begin, int32_t end) {
  FindSegments(begin, end);
  compute_.pool->Run(static_cast<int32_t>(segments_.size()), [&](int32_t chunk, int32_t) {
    const Segment& segment = segments_[chunk];
    for (int32_t row = segment.begin; row < segment.end; ++row) {
      const int32_t id = segment.source->spans.ids[row - segment.source->first_row];
      weights_->encoder().embedding.CopyRow(id, hidden_.row(row));
    }
  });
}

void Encoder::FindSegments(int32_t begin, int32_t end) {
  segments_.clear();
  for (const Source& source : sources_) {
    const int32_t first = std::max(begin, source.first_row);
    const int32_t last = std::min(end, source.first_row + source.length);
    if (first < last) segments_.push_back({&source, first, last});
  }
}

void Encoder::PackHead(const Source& source, int32_t head, float* keys, float* values) const {
  const ModelSpec& spec = weights_->spec();
  const int32_t inner = spec.encoder_inner();
  const int32_t dim = spec.head_dim;
  for (int32_t j = 0; j < source.length; ++j) {
    const float* key = qkv_.row(source.first_row + j) + inner + head * dim;
    const float* value = key + inner;
    float* key_column =
        keys + static_cast<size_t>(j / kPanelColumns) * dim * kPanelColumns + j % kPanelColumns;
    for (int32_t d = 0; d < dim; ++d) key_column[d * kPanelColumns] = key[d];
    for (int32_t first = 0; first < dim; first += kPanelColumns) {
      float* panel = values + static_cast<size_t>(first) * source.length +
                     static_cast<size_t>(j) * kPanelColumns;
      std::copy_n(value + first, std::min(kPanelColumns, dim - first), panel);
    }
  }
}

void Encoder::Attend(int32_t layer, int32_t head, const Segment& segment, int32_t slice_begin,
                     float* scratch) {
  const ModelSpec& spec = weights_->spec();
  const Source& source = *segment.source;
  float* keys = scratch;
  float* values = keys + padded_source_ * spec.head_dim;
  const Rows scores{values + padded_source_ * value_panels_ * kPanelColumns,
                    RowStride(source.length)};
  PackHead(source, head, keys, values);
  GemmArgs score;
  score.x_stride = qkv_.stride;
  score.depth = spec.head_dim;
  score.panels = reinterpret_cast<const std::byte*>(keys);
  score.panel_end = (source.length + kPanelColumns - 1) / kPanelColumns;
  score.columns = source.length;
  score.y = scores.data;
  score.y_stride = scores.stride;
  GemmArgs mix;
  mix.x = scores.data;
  mix.x_stride = scores.stride;
  mix.depth = source.length;
  mix.panels = reinterpret_cast<const std::byte*>(values);
  mix.panel_end = static_cast<int32_t>(value_panels_);
  mix.columns = spec.head_dim;
  mix.y_stride = attended_.stride;
  for (int32_t row = segment.begin; row < segment.end; row += kQueryTile) {
    score.rows = mix.rows = std::min(kQueryTile, segment.end - row);
    score.x = qkv_.row(row) + head * spec.head_dim;
    compute_.kernels->gemm(score);
    float factors[kQueryTile];
    for (int32_t i = 0; i < score.rows; ++i) {
      const float* bias = BiasOf(layer).Row(head, row + i - source.first_row);
      factors[i] =
          compute_.kernels->softmax(scores.row(i), bias, spec.attention_scale, source.length);
    }
    mix.y = attended_.row(row - slice_begin) + head * spec.head_dim;
    compute_.kernels->gemm(mix);
    for (int32_t i = 0; i < mix.rows; ++i) {
      float* out = mix.y + i * mix.y_stride;
      for (int32_t d = 0; d < spec.head_dim; ++d) out[d] *= factors[i];
    }
  }
}

void Encoder::WriteCross(int32_t layer, int32_t begin, int32_t end) {
  const ModelSpec& spec = weights_->spec();
  const int32_t rows = end - begin;
  RunNorm(compute_, weights_->encoder().final_norm, spec.norm_epsilon, hidden_.from(begin), rows,
          normed_);
  RunLinear(compute_, weights_->decoder().layers[layer].cross.kv, normed_, rows, cross_,
            Store::kReplace);
  FindSegments(begin, end);
  compute_.pool->Run(spec.decoder.heads, [&](int32_t head, int32_t) {
    for (const Segment& segment : segments_) {
      for (int32_t row = segment.begin; row < segment.end; ++row) {
        const float* key = cross_.row(row - begin) + head * spec.head_dim;
        kv_->Write(segment.source->spans.cross_blocks.data(), row - segment.source->first_row,
                   layer, head, key, key + spec.decoder_inner());
      }
    }
  });
}

}  // namespace seq2seq::cpu
