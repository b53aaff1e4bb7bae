#include "backend/cuda/cuda_encoder.h"

#include <algorithm>
#include <cstring>

#include "backend/core/format.h"
#include "backend/cuda/cuda_status.h"
#include "backend/kernels/token_ops.h"

namespace seq2seq {
namespace {

using kernels::ElementBytes;
using kernels::kQueryTile;
using kernels::QueryTile;

}  // namespace

Result<std::unique_ptr<CudaEncoder>> CudaEncoder::Create(
    std::shared_ptr<const DeviceWeights> weights, std::shared_ptr<const CublasLt> lt,
    const KvPool* pool, const Limits& limits) {
  std::unique_ptr<CudaEncoder> encoder(new CudaEncoder(std::move(weights), pool, limits));
  SEQ2SEQ_ASSIGN_OR_RETURN(encoder->stream_, CudaStream::Create(StreamPriority::kLow));
  SEQ2SEQ_ASSIGN_OR_RETURN(encoder->finished_, CudaEvent::Create());
  SEQ2SEQ_ASSIGN_OR_RETURN(encoder->matmul_,
                           TokenMatmul::Create(std::move(lt), encoder->weights_->type));
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(kernels::PrepareEncoderAttention());
  SEQ2SEQ_RETURN_IF_ERROR(encoder->Allocate());
  return encoder;
}

Status CudaEncoder::Allocate() {
  const ModelSpec& spec = weights_->spec;
  const size_t tokens = limits_.max_tokens;
  const size_t element = ElementBytes(weights_->type);
  // A source of n tokens has at most n / kQueryTile + 1 tiles.
  const size_t tiles = tokens / kQueryTile + limits_.max_items;
  const size_t input_bytes = tiles * sizeof(QueryTile) + 2 * tokens * sizeof(int32_t);
  const size_t wide = std::max({3 * spec.encoder_inner(), 2 * spec.decoder_inner(),
                                (spec.gated_ffn ? 2 : 1) * spec.encoder.d_ff});
  const size_t narrow = std::max(spec.encoder_inner(), spec.encoder.d_ff);
  SEQ2SEQ_ASSIGN_OR_RETURN(host_inputs_, PinnedBuffer::Allocate(input_bytes));
  SEQ2SEQ_ASSIGN_OR_RETURN(inputs_, DeviceBuffer::Allocate(input_bytes));
  SEQ2SEQ_ASSIGN_OR_RETURN(values_, DeviceBuffer::Allocate(tokens * spec.d_model * sizeof(float)));
  SEQ2SEQ_ASSIGN_OR_RETURN(normed_, DeviceBuffer::Allocate(tokens * spec.d_model * element));
  SEQ2SEQ_ASSIGN_OR_RETURN(wide_, DeviceBuffer::Allocate(tokens * wide * element));
  SEQ2SEQ_ASSIGN_OR_RETURN(narrow_, DeviceBuffer::Allocate(tokens * narrow * element));
  return OkStatus();
}

// Layout of the inputs: tiles, then ids, then places.
Status CudaEncoder::UploadBatch(std::span<const EncodeItem> batch) {
  tokens_ = 0;
  tiles_ = 0;
  for (const EncodeItem& item : batch) {
    const auto length = static_cast<int32_t>(item.source_ids.size());
    tokens_ += length;
    tiles_ += (length + kQueryTile - 1) / kQueryTile;
  }
  if (tokens_ > limits_.max_tokens || static_cast<int32_t>(batch.size()) > limits_.max_items) {
    return Internal(
        Format("{} sources of {} tokens are more than the encoder was made for ({}, {})",
               batch.size(), tokens_, limits_.max_items, limits_.max_tokens));
  }
  auto* tile = host_inputs_.as<QueryTile>();
  auto* ids = reinterpret_cast<int32_t*>(tile + tiles_);
  int32_t* places = ids + tokens_;
  const int32_t block_tokens = pool_->layout.block_tokens;
  int32_t first_token = 0;
  for (const EncodeItem& item : batch) {
    const auto length = static_cast<int32_t>(item.source_ids.size());
    for (int32_t query = 0; query < length; query += kQueryTile) {
      *tile++ = {.first_token = first_token, .length = length, .first_query = query};
    }
    std::memcpy(ids + first_token, item.source_ids.data(), length * sizeof(int32_t));
    for (int32_t i = 0; i < length; ++i) {
      places[first_token + i] =
          item.cross_blocks[i / block_tokens] * block_tokens + i % block_tokens;
    }
    first_token += length;
  }
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(
      inputs_.as(), host_inputs_.as(), tiles_ * sizeof(QueryTile) + 2 * tokens_ * sizeof(int32_t),
      cudaMemcpyHostToDevice, stream_.get()));
  return OkStatus();
}

Status CudaEncoder::Norm(const DeviceBuffer& weight) {
  kernels::NormTokensArgs args;
  args.values = values_.as<float>();
  args.weight = weight.as<float>();
  args.epsilon = weights_->spec.norm_epsilon;
  args.tokens = tokens_;
  args.width = weights_->spec.d_model;
  args.output = normed_.as();
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(kernels::LaunchNormTokens(weights_->type, args, {stream_.get()}));
  return OkStatus();
}

Status CudaEncoder::Multiply(const DeviceBuffer& weight, const void* input, void* output,
                             int32_t outputs, int32_t inputs, bool accumulate) {
  TokenMatmulArgs args;
  args.weight = weight.as();
  args.input = input;
  args.output = output;
  args.outputs = outputs;
  args.inputs = inputs;
  args.tokens = tokens_;
  args.accumulate = accumulate;
  return matmul_->Run(args, stream_.get());
}

Status CudaEncoder::RunLayer(size_t layer) {
  const ModelSpec& spec = weights_->spec;
  const EncoderLayerOnDevice& weights = weights_->encoder[layer];
  const int32_t inner = spec.encoder_inner();
  SEQ2SEQ_RETURN_IF_ERROR(Norm(weights.attention_norm));
  SEQ2SEQ_RETURN_IF_ERROR(
      Multiply(weights.query_key_value, normed_.as(), wide_.as(), 3 * inner, spec.d_model, false));
  kernels::EncoderAttentionArgs attention;
  attention.query_key_value = wide_.as();
  attention.output = narrow_.as();
  attention.tiles = inputs_.as<QueryTile>();
  attention.tile_count = tiles_;
  attention.heads = spec.encoder.heads;
  attention.head_dim = spec.head_dim;
  attention.bias = weights_->encoder_bias(layer);
  attention.max_distance = spec.relative_positions.max_distance;
  attention.scale = spec.attention_scale;
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(
      kernels::LaunchEncoderAttention(weights_->type, attention, {stream_.get()}));
  SEQ2SEQ_RETURN_IF_ERROR(
      Multiply(weights.attention_out, narrow_.as(), values_.as(), spec.d_model, inner, true));

  SEQ2SEQ_RETURN_IF_ERROR(Norm(weights.ffn_norm));
  const int32_t width = spec.encoder.d_ff;
  SEQ2SEQ_RETURN_IF_ERROR(Multiply(weights.ffn_in, normed_.as(), wide_.as(),
                                   spec.gated_ffn ? 2 * width : width, spec.d_model, false));
  kernels::ActivateTokensArgs activate;
  activate.input = wide_.as();
  activate.output = narrow_.as();
  activate.tokens = tokens_;
  activate.width = width;
  activate.kind = ActivationKindOf(spec.activation);
  activate.gated = spec.gated_ffn;
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(
      kernels::LaunchActivateTokens(weights_->type, activate, {stream_.get()}));
  return Multiply(weights.ffn_out, narrow_.as(), values_.as(), spec.d_model, width, true);
}

Status CudaEncoder::FillCrossBlocks(size_t layer) {
  const ModelSpec& spec = weights_->spec;
  SEQ2SEQ_RETURN_IF_ERROR(Multiply(weights_->decoder[layer].cross_key_value, normed_.as(),
                                   wide_.as(), 2 * spec.decoder_inner(), spec.d_model, false));
  kernels::ScatterKeyValuesArgs args;
  args.key_values = wide_.as();
  args.places = reinterpret_cast<const int32_t*>(inputs_.as<QueryTile>() + tiles_) + tokens_;
  args.tokens = tokens_;
  args.pool = pool_->memory.as();
  args.layout = pool_->layout;
  args.layer_offset = pool_->LayerOffset(layer);
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(
      kernels::LaunchScatterKeyValues(weights_->type, args, {stream_.get()}));
  return OkStatus();
}

Status CudaEncoder::Encode(std::span<const EncodeItem> batch) {
  SEQ2SEQ_RETURN_IF_ERROR(UploadBatch(batch));
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(kernels::LaunchEmbedTokens(
      weights_->type, weights_->encoder_embedding.as(),
      reinterpret_cast<const int32_t*>(inputs_.as<QueryTile>() + tiles_), tokens_,
      weights_->spec.d_model, values_.as<float>(), {stream_.get()}));
  for (size_t layer = 0; layer < weights_->encoder.size(); ++layer) {
    SEQ2SEQ_RETURN_IF_ERROR(RunLayer(layer));
  }
  SEQ2SEQ_RETURN_IF_ERROR(Norm(weights_->encoder_final_norm));
  for (size_t layer = 0; layer < weights_->decoder.size(); ++layer) {
    SEQ2SEQ_RETURN_IF_ERROR(FillCrossBlocks(layer));
  }
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaEventRecord(finished_.get(), stream_.get()));
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(finished_.get()));
  return OkStatus();
}

}  // namespace seq2seq
