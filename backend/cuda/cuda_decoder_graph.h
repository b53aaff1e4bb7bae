// The kernels of one pass through the decoder. Included by cuda_decoder.cc alone.
#ifndef SEQ2SEQ_BACKEND_CUDA_CUDA_DECODER_GRAPH_H_
#define SEQ2SEQ_BACKEND_CUDA_CUDA_DECODER_GRAPH_H_

#include <cstddef>
#include <cstdint>

#include "backend/core/status.h"
#include "backend/cuda/cuda_decoder.h"
#include "backend/cuda/cuda_status.h"
#include "backend/cuda/device_weights.h"
#include "backend/cuda/layer_norms.h"
#include "backend/cuda/round_up.h"
#include "backend/kernels/layer_norm.h"
#include "backend/kernels/projected_attention.h"

namespace seq2seq {

// Of a row's sums of squares, see kernels::Residual.
inline int32_t SumStride(const ModelSpec& spec) {
  return RoundUp(kernels::TileCount(spec.d_model), 4);
}

// Queues the kernels of passes of up to so many rows.
class CudaDecoder::GraphBuilder {
 public:
  GraphBuilder(const CudaDecoder& decoder, int32_t rows)
      : d_(decoder),
        weights_(*decoder.weights_),
        spec_(decoder.weights_->spec),
        rows_(rows),
        splits_norm_(spec_.norm == NormKind::kRms) {}

  // What a pass starts with, unless the last kernel of the step before has done it.
  Status Begin() const {
    SEQ2SEQ_RETURN_IF_CUDA_ERROR(
        kernels::LaunchBeginPass(weights_.type, BeginArgs(), rows_, {d_.stream_.get()}));
    return OkStatus();
  }

  // The pass itself, for a graph's capture.
  Status Queue() {
    if (!splits_norm_) SEQ2SEQ_RETURN_IF_ERROR(StartRows());
    for (size_t layer = 0; layer < weights_.decoder.size(); ++layer) {
      SEQ2SEQ_RETURN_IF_ERROR(SelfAttention(layer));
      SEQ2SEQ_RETURN_IF_ERROR(CrossAttention(layer));
      SEQ2SEQ_RETURN_IF_ERROR(FeedForward(layer));
    }
    return Choose();
  }

 private:
  // The first kernel starts when everything before the pass has ended, so that all may read row
  // infos before their own wait.
  kernels::LaunchContext Context() {
    const bool dependent = d_.dependent_launch_ && queued_ > 0;
    ++queued_;
    return {d_.stream_.get(), dependent};
  }

  kernels::Residual ResidualStream() const {
    kernels::Residual residual;
    residual.values = d_.values_.as<float>();
    residual.scaled = d_.scaled_.as();
    residual.sum_squares = d_.sum_squares_.as<float>();
    residual.sum_stride = SumStride(spec_);
    residual.width = spec_.d_model;
    residual.row_capacity = d_.row_capacity_;
    return residual;
  }

  float* NormScale(int which) const {
    return d_.norm_scales_.as<float>() + which * d_.row_capacity_;
  }

  kernels::BeginPassArgs BeginArgs() const {
    kernels::BeginPassArgs args;
    args.header = d_.uploads_.as<kernels::StepHeader>();
    args.row_slots =
        reinterpret_cast<const int32_t*>(d_.uploads_.as<std::byte>() + d_.rows_offset_);
    args.tables = d_.tables_;
    args.rows = d_.row_infos_.as<kernels::RowInfo>();
    args.rings = d_.rings_.as<int32_t>();
    args.embedding = weights_.decoder_embedding_data();
    args.norm_weight = weights_.decoder[0].self_norm.weight.as<float>();
    args.epsilon = spec_.norm_epsilon;
    args.norm_scale = NormScale(0);
    args.residual = ResidualStream();
    return args;
  }

  kernels::ProjectionArgs Projection(const LinearOnDevice& weights, int32_t outputs, int32_t inputs,
                                     const void* input) const {
    kernels::ProjectionArgs args;
    args.weights = weights.weight.as();
    args.bias = weights.bias.as<float>();
    args.outputs = outputs;
    args.inputs = inputs;
    args.input = input;
    args.rows = rows_;
    args.row_capacity = d_.row_capacity_;
    args.max_splits = d_.dependent_launch_ ? 4 : 1;
    args.row_infos = d_.row_infos_.as<kernels::RowInfo>();
    return args;
  }

  // A projection of the normed residual stream.
  kernels::ProjectionArgs NormedProjection(const LinearOnDevice& weights, int32_t outputs) {
    kernels::ProjectionArgs args = Projection(weights, outputs, spec_.d_model, d_.scaled_.as());
    if (!splits_norm_) return args;
    args.factor.sum_squares = d_.sum_squares_.as<float>();
    args.factor.sum_stride = SumStride(spec_);
    args.factor.parts = sum_parts_;
    args.factor.inverse_width = 1.0F / static_cast<float>(spec_.d_model);
    args.factor.epsilon = spec_.norm_epsilon;
    args.factor.scale_in = NormScale(scale_);
    scale_ = 1 - scale_;
    args.factor.scale_out = NormScale(scale_);
    return args;
  }

  // A projection added to the residual stream, and the norm behind it, or of a split norm the first
  // half. Where a norm is not split, what the projection writes for one is overwritten.
  Status AddToResidual(const LinearOnDevice& weights, int32_t inputs, const void* input,
                       const NormOnDevice& norm) {
    kernels::ProjectionArgs args = Projection(weights, spec_.d_model, inputs, input);
    args.output = kernels::ProjectionOutput::kResidual;
    args.residual.residual = ResidualStream();
    args.residual.norm_weight = norm.weight.as<float>();
    args.residual.scale = NormScale(scale_);
    sum_parts_ = kernels::TileCount(spec_.d_model);
    SEQ2SEQ_RETURN_IF_ERROR(Launch(args));
    return splits_norm_ ? OkStatus() : Launch(Norms().Behind(norm));
  }

  LayerNorms Norms() const {
    kernels::LayerNormArgs rows;
    rows.values = d_.values_.as<float>();
    rows.rows = rows_;
    rows.output = d_.scaled_.as();
    rows.row_capacity = d_.row_capacity_;
    return LayerNorms(spec_, rows);
  }

  // Whoever began the pass has left the tokens' embeddings.
  Status StartRows() {
    constexpr int32_t kStride = sizeof(kernels::RowInfo) / sizeof(int32_t);
    for (const kernels::LayerNormArgs& args :
         Norms().Start(weights_.decoder_start, &d_.row_infos_.as<kernels::RowInfo>()->position,
                       kStride, weights_.decoder[0].self_norm)) {
      SEQ2SEQ_RETURN_IF_ERROR(Launch(args));
    }
    return OkStatus();
  }

  Status Launch(const kernels::LayerNormArgs& args) {
    SEQ2SEQ_RETURN_IF_CUDA_ERROR(kernels::LaunchLayerNorm(weights_.type, args, Context()));
    return OkStatus();
  }

  Status Launch(const kernels::ProjectionArgs& args) {
    SEQ2SEQ_RETURN_IF_CUDA_ERROR(kernels::LaunchProjection(weights_.type, args, Context()));
    return OkStatus();
  }

  kernels::ProjectionArgs QueryProjection(size_t layer, const LinearOnDevice& weights,
                                          int32_t parts) {
    const int32_t inner = spec_.decoder_inner();
    kernels::ProjectionArgs args = NormedProjection(weights, parts * inner);
    args.output = kernels::ProjectionOutput::kQueryKeyValue;
    args.query_key_value.query = d_.query_.as<float>();
    args.query_key_value.inner = inner;
    args.query_key_value.pool = d_.pool_->memory.as();
    args.query_key_value.layout = d_.pool_->layout;
    args.query_key_value.layer_offset = d_.pool_->LayerOffset(layer);
    args.query_key_value.self_blocks = d_.tables_.self_blocks;
    args.query_key_value.self_stride = d_.tables_.self_stride;
    return args;
  }

  kernels::DecodeAttentionArgs Attention(size_t layer) const {
    kernels::DecodeAttentionArgs args;
    args.query = d_.query_.as<float>();
    args.pool = d_.pool_->memory.as();
    args.layout = d_.pool_->layout;
    args.layer_offset = d_.pool_->LayerOffset(layer);
    args.row_infos = d_.row_infos_.as<kernels::RowInfo>();
    args.rows = rows_;
    args.row_capacity = d_.row_capacity_;
    args.scale = spec_.attention_scale;
    args.output = d_.attended_.as();
    return args;
  }

  Status Launch(const kernels::DecodeAttentionArgs& args) {
    SEQ2SEQ_RETURN_IF_CUDA_ERROR(kernels::LaunchDecodeAttention(weights_.type, args, Context()));
    return OkStatus();
  }

  // As one kernel where that is faster.
  Status ProjectAndAttend(const kernels::ProjectionArgs& projection,
                          const kernels::DecodeAttentionArgs& attention) {
    const kernels::ProjectedAttentionArgs both{projection, attention};
    if (!kernels::CanProjectAndAttend(weights_.type, both)) {
      SEQ2SEQ_RETURN_IF_ERROR(Launch(projection));
      return Launch(attention);
    }
    SEQ2SEQ_RETURN_IF_CUDA_ERROR(kernels::LaunchProjectedAttention(weights_.type, both, Context()));
    return OkStatus();
  }

  int32_t Splits(int32_t most) const {
    if (!d_.dependent_launch_) return 1;  // no clusters before compute capability 9.0
    return kernels::DecodeSplits(rows_, spec_.decoder.heads, most);
  }

  Status SelfAttention(size_t layer) {
    const DecoderLayerOnDevice& weights = weights_.decoder[layer];
    kernels::DecodeAttentionArgs args = Attention(layer);
    args.blocks = d_.tables_.self_blocks;
    args.block_stride = d_.tables_.self_stride;
    args.bias = weights_.decoder_bias(layer);
    args.max_distance = spec_.relative_positions.max_distance;
    args.splits = 1;
    SEQ2SEQ_RETURN_IF_ERROR(
        ProjectAndAttend(QueryProjection(layer, weights.query_key_value, 3), args));
    return AddToResidual(weights.self_out, spec_.decoder_inner(), d_.attended_.as(),
                         NormBehind(spec_, weights.self_norm, weights.cross_norm));
  }

  Status CrossAttention(size_t layer) {
    const DecoderLayerOnDevice& weights = weights_.decoder[layer];
    kernels::DecodeAttentionArgs args = Attention(layer);
    args.blocks = d_.tables_.cross_blocks;
    args.block_stride = d_.tables_.cross_stride;
    args.cross = true;
    args.splits = Splits(8);
    SEQ2SEQ_RETURN_IF_ERROR(ProjectAndAttend(QueryProjection(layer, weights.cross_query, 1), args));
    return AddToResidual(weights.cross_out, spec_.decoder_inner(), d_.attended_.as(),
                         NormBehind(spec_, weights.cross_norm, weights.ffn_norm));
  }

  Status FeedForward(size_t layer) {
    const DecoderLayerOnDevice& weights = weights_.decoder[layer];
    const int32_t width = spec_.decoder.d_ff;
    kernels::ProjectionArgs args =
        NormedProjection(weights.ffn_in, spec_.gated_ffn ? 2 * width : width);
    args.output = spec_.gated_ffn ? kernels::ProjectionOutput::kGatedActivation
                                  : kernels::ProjectionOutput::kActivation;
    args.activation.values = d_.activated_.as();
    args.activation.kind = ActivationKindOf(spec_.activation);
    SEQ2SEQ_RETURN_IF_ERROR(Launch(args));
    const bool last = layer + 1 == weights_.decoder.size();
    const NormOnDevice& next =
        last ? weights_.decoder_final_norm : weights_.decoder[layer + 1].self_norm;
    return AddToResidual(weights.ffn_out, width, d_.activated_.as(),
                         NormBehind(spec_, weights.ffn_norm, next));
  }

  Status Choose() {
    kernels::ProjectionArgs args = NormedProjection(weights_.lm_head, spec_.vocab_size);
    args.factor.output_scale = spec_.head_input_scale;
    args.output = kernels::ProjectionOutput::kLogits;
    args.logits.parts = d_.logits_parts_.as<kernels::LogitsPart>();
    args.logits.logits = d_.logits_.as<float>();
    args.logits.eos_tokens = weights_.eos_tokens.as<int32_t>();
    args.logits.eos_count = weights_.eos_count;
    SEQ2SEQ_RETURN_IF_ERROR(Launch(args));
    kernels::ChooseTokenArgs choose;
    choose.pass = BeginArgs();
    choose.parts = d_.logits_parts_.as<kernels::LogitsPart>();
    choose.tiles = kernels::TileCount(spec_.vocab_size);
    choose.logits = d_.logits_.as<float>();
    choose.vocabulary = spec_.vocab_size;
    choose.eos_tokens = weights_.eos_tokens.as<int32_t>();
    choose.eos_count = weights_.eos_count;
    choose.outcomes = d_.outcomes_.as<kernels::RowOutcome>();
    choose.outcome_stride = d_.limits_.max_slots;
    SEQ2SEQ_RETURN_IF_CUDA_ERROR(
        kernels::LaunchChooseTokens(weights_.type, choose, rows_, Context()));
    return OkStatus();
  }

  const CudaDecoder& d_;
  const DeviceWeights& weights_;
  const ModelSpec& spec_;
  int32_t rows_;
  bool splits_norm_;  // RMSNorm is a part of the projections, see kernels::Residual
  int32_t queued_ = 0;
  int32_t sum_parts_ = 1;  // of the sums of squares, by the last writer of the residual
  int scale_ = 0;          // which of the two norm scales is the current one
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CUDA_CUDA_DECODER_GRAPH_H_
