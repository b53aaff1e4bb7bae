#include "backend/cuda/cuda_encoder.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "backend/core/format.h"
#include "backend/cuda/cuda_status.h"
#include "backend/cuda/round_up.h"
#include "backend/kernels/rms_norm.h"
#include "backend/kernels/token_ops.h"

namespace seq2seq {
namespace {

using kernels::ElementBytes;
using kernels::kBlockTokens;
using kernels::kQueryTile;
using kernels::QueryTile;

// Of a slice, multiplications and additions: about 1.7 ms of one H200, the time of a decode step of
// 32 sequences with 1.5e9 parameters.
constexpr int64_t kSliceOperations = 1'000'000'000'000;
// Attention's count as often: it takes as much longer than a product of matrices.
constexpr int64_t kAttentionCost = 2;
// Decoder layers whose keys and values are multiplied at a time.
constexpr int32_t kMostCrossLayers = 8;
// Smaller batches than this use what is best for it.
constexpr int32_t kLeastTunedTokens = 256;
// Graphs are made for batches of multiples of kGraphTokens up to kMostGraphTokens, which have at
// most kSpareTiles tiles more than one source of that length: of several sources, or of pads.
constexpr int32_t kGraphTokens = 64;
constexpr int32_t kMostGraphTokens = 1024;
constexpr int32_t kSpareTiles = 4;

constexpr int32_t TilesOf(int32_t tokens) { return (tokens + kQueryTile - 1) / kQueryTile; }

}  // namespace

Result<std::unique_ptr<CudaEncoder>> CudaEncoder::Create(
    std::shared_ptr<const DeviceWeights> weights, std::shared_ptr<const CublasLt> lt,
    const KvPool* pool, DeviceTurns* turns, const Limits& limits) {
  std::unique_ptr<CudaEncoder> encoder(new CudaEncoder(std::move(weights), pool, turns, limits));
  SEQ2SEQ_ASSIGN_OR_RETURN(encoder->stream_, CudaStream::Create(StreamPriority::kLow));
  for (CudaEvent& event : encoder->finished_) {
    SEQ2SEQ_ASSIGN_OR_RETURN(event, CudaEvent::Create());
  }
  SEQ2SEQ_ASSIGN_OR_RETURN(encoder->matmul_,
                           TokenMatmul::Create(std::move(lt), encoder->weights_->type));
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(kernels::PrepareEncoderAttention());
  SEQ2SEQ_RETURN_IF_ERROR(encoder->Allocate());
  SEQ2SEQ_RETURN_IF_ERROR(encoder->Tune());
  SEQ2SEQ_RETURN_IF_ERROR(encoder->WarmUp());
  SEQ2SEQ_RETURN_IF_ERROR(encoder->CaptureGraphs());
  return encoder;
}

Status CudaEncoder::Allocate() {
  const ModelSpec& spec = weights_->spec;
  // So that there is a graph for every length.
  limits_.max_tokens = RoundUp(limits_.max_tokens, kGraphTokens);
  const size_t tokens = limits_.max_tokens;
  const size_t element = ElementBytes(weights_->type);
  // A source of n tokens has at most n / kQueryTile + 1 tiles.
  const auto tiles =
      static_cast<int32_t>(tokens / kQueryTile + std::max(limits_.max_items, kSpareTiles + 1));
  const size_t input_bytes = InputBytes({.tokens = limits_.max_tokens, .tiles = tiles});
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

size_t CudaEncoder::InputBytes(const Shape& shape) const {
  const size_t arrays = weights_->spec.positions == PositionKind::kTable ? 3 : 2;
  return shape.tiles * sizeof(QueryTile) + arrays * shape.tokens * sizeof(int32_t);
}

CudaEncoder::Shape CudaEncoder::ShapeOf(std::span<const EncodeItem> batch) {
  Shape shape;
  for (const EncodeItem& item : batch) {
    const auto length = static_cast<int32_t>(item.source_ids.size());
    shape.tokens += length;
    shape.tiles += TilesOf(length);
    shape.scores += int64_t{length} * length;
  }
  return shape;
}

const CudaEncoder::Bucket* CudaEncoder::BucketFor(const Shape& shape) const {
  const auto found = std::ranges::find_if(
      buckets_, [&](const Bucket& bucket) { return bucket.shape.tokens >= shape.tokens; });
  if (found == buckets_.end()) return nullptr;
  const int32_t pad_tiles = TilesOf(found->shape.tokens - shape.tokens);
  return found->shape.tiles >= shape.tiles + pad_tiles ? &*found : nullptr;
}

Status CudaEncoder::UploadBatch(std::span<const EncodeItem> batch) {
  shape_ = ShapeOf(batch);
  if (shape_.tokens > limits_.max_tokens ||
      static_cast<int32_t>(batch.size()) > limits_.max_items) {
    return Internal(
        Format("{} sources of {} tokens are more than the encoder was made for ({}, {})",
               batch.size(), shape_.tokens, limits_.max_items, limits_.max_tokens));
  }
  bucket_ = BucketFor(shape_);
  if (bucket_ != nullptr) shape_ = bucket_->shape;
  return Upload(batch);
}

// Layout of the inputs: tiles, then ids, then places. What shape_ has more than the batch are pads
// and tiles without queries. Pads are a source of their own, whose keys and values go nowhere: the
// last source's last tile of keys has their values, too, so they must be numbers, as a weight of 0
// times what is none is none.
Status CudaEncoder::Upload(std::span<const EncodeItem> batch) {
  auto* tile = host_inputs_.as<QueryTile>();
  auto* ids = reinterpret_cast<int32_t*>(tile + shape_.tiles);
  int32_t* places = ids + shape_.tokens;
  const bool has_positions = weights_->spec.positions == PositionKind::kTable;
  int32_t* positions = places + shape_.tokens;
  int32_t first_token = 0;
  for (const EncodeItem& item : batch) {
    const auto length = static_cast<int32_t>(item.source_ids.size());
    for (int32_t query = 0; query < length; query += kQueryTile) {
      *tile++ = {.first_token = first_token, .length = length, .first_query = query};
    }
    std::memcpy(ids + first_token, item.source_ids.data(), length * sizeof(int32_t));
    for (int32_t i = 0; i < length; ++i) {
      places[first_token + i] =
          item.cross_blocks[i / kBlockTokens] * kBlockTokens + i % kBlockTokens;
    }
    if (has_positions) std::iota(positions + first_token, positions + first_token + length, 0);
    first_token += length;
  }
  const int32_t pads = shape_.tokens - first_token;
  for (int32_t query = 0; query < pads; query += kQueryTile) {
    *tile++ = {.first_token = first_token, .length = pads, .first_query = query};
  }
  std::fill(tile, reinterpret_cast<QueryTile*>(ids), QueryTile{});
  std::fill(ids + first_token, places, 0);
  std::fill(places + first_token, places + shape_.tokens, -1);
  if (has_positions) std::fill(positions + first_token, positions + shape_.tokens, 0);
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(inputs_.as(), host_inputs_.as(), InputBytes(shape_),
                                               cudaMemcpyHostToDevice, stream_.get()));
  return OkStatus();
}

const int32_t* CudaEncoder::ids() const {
  return reinterpret_cast<const int32_t*>(inputs_.as<QueryTile>() + shape_.tiles);
}

LayerNorms CudaEncoder::Norms() const {
  kernels::LayerNormArgs rows;
  rows.values = values_.as<float>();
  rows.rows = shape_.tokens;
  rows.output = normed_.as();
  return LayerNorms(weights_->spec, rows);
}

Status CudaEncoder::RunLayerNorm(const kernels::LayerNormArgs& args) {
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(kernels::LaunchLayerNorm(weights_->type, args, {stream_.get()}));
  return OkStatus();
}

// From tokens to the first layer's input.
Status CudaEncoder::Start() {
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(kernels::LaunchEmbedTokens(
      weights_->type, weights_->encoder_embedding.as(), ids(), shape_.tokens,
      weights_->spec.d_model, values_.as<float>(), {stream_.get()}));
  const NormOnDevice& first = weights_->encoder[0].attention_norm;
  if (weights_->spec.norm == NormKind::kRms) return NormRows(first, first);
  for (const kernels::LayerNormArgs& args :
       Norms().Start(weights_->encoder_start, ids() + 2 * shape_.tokens, 1, first)) {
    SEQ2SEQ_RETURN_IF_ERROR(RunLayerNorm(args));
  }
  return OkStatus();
}

// The norm behind a sub-layer, see NormBehind().
Status CudaEncoder::NormRows(const NormOnDevice& own, const NormOnDevice& next) {
  const NormOnDevice& norm = NormBehind(weights_->spec, own, next);
  if (weights_->spec.norm == NormKind::kLayer) return RunLayerNorm(Norms().Behind(norm));
  kernels::RmsNormParams params;
  params.residual = values_.as<float>();
  params.weight = norm.weight.as();
  params.output = normed_.as();
  params.rows = shape_.tokens;
  params.width = weights_->spec.d_model;
  params.epsilon = weights_->spec.norm_epsilon;
  params.weight_type = kernels::ElementType::kFloat32;
  params.activation_type = weights_->type;
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(kernels::RmsNorm(params, stream_.get()));
  return OkStatus();
}

// What a product of the encoder multiplies and where it goes.
TokenMatmulArgs CudaEncoder::Product(const LinearOnDevice& weight, int32_t outputs,
                                     const DeviceBuffer& input, int32_t inputs) const {
  TokenMatmulArgs args;
  args.weight = weight.weight.as();
  args.bias = weight.bias.as();
  args.input = input.as();
  args.output = wide_.as();
  args.outputs = outputs;
  args.inputs = inputs;
  args.tokens = shape_.tokens;
  return args;
}

TokenMatmulArgs CudaEncoder::AddedProduct(const LinearOnDevice& weight, int32_t inputs) const {
  TokenMatmulArgs args = Product(weight, weights_->spec.d_model, narrow_, inputs);
  args.output = values_.as();
  args.accumulate = true;
  return args;
}

TokenMatmulArgs CudaEncoder::QueryKeyValue(size_t layer) const {
  const ModelSpec& spec = weights_->spec;
  return Product(weights_->encoder[layer].query_key_value, 3 * spec.encoder_inner(), normed_,
                 spec.d_model);
}

TokenMatmulArgs CudaEncoder::AttentionOut(size_t layer) const {
  return AddedProduct(weights_->encoder[layer].attention_out, weights_->spec.encoder_inner());
}

TokenMatmulArgs CudaEncoder::FfnIn(size_t layer) const {
  const ModelSpec& spec = weights_->spec;
  return Product(weights_->encoder[layer].ffn_in, (spec.gated_ffn ? 2 : 1) * spec.encoder.d_ff,
                 normed_, spec.d_model);
}

TokenMatmulArgs CudaEncoder::FfnOut(size_t layer) const {
  return AddedProduct(weights_->encoder[layer].ffn_out, weights_->spec.encoder.d_ff);
}

TokenMatmulArgs CudaEncoder::CrossKeyValues(int32_t first_layer, int32_t layers) const {
  const ModelSpec& spec = weights_->spec;
  const int32_t layer_outputs = 2 * spec.decoder_inner();
  TokenMatmulArgs args =
      Product(weights_->cross_key_value, layers * layer_outputs, normed_, spec.d_model);
  const int64_t first_output = int64_t{first_layer} * layer_outputs;
  const LinearOnDevice& weight = weights_->cross_key_value;
  args.weight =
      weight.weight.as<std::byte>() + first_output * spec.d_model * ElementBytes(weights_->type);
  if (weight.bias.bytes() != 0) {
    args.bias = weight.bias.as<std::byte>() + first_output * ElementBytes(weights_->type);
  }
  return args;
}

Status CudaEncoder::Attention(size_t layer) {
  const ModelSpec& spec = weights_->spec;
  SEQ2SEQ_RETURN_IF_ERROR(matmul_->Run(QueryKeyValue(layer), stream_.get()));
  kernels::EncoderAttentionArgs attention;
  attention.query_key_value = wide_.as();
  attention.output = narrow_.as();
  attention.tiles = inputs_.as<QueryTile>();
  attention.tile_count = shape_.tiles;
  attention.tokens = shape_.tokens;
  attention.heads = spec.encoder.heads;
  attention.head_dim = spec.head_dim;
  attention.bias = weights_->encoder_bias(layer);
  attention.max_distance = spec.relative_positions.max_distance;
  attention.scale = spec.attention_scale;
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(
      kernels::LaunchEncoderAttention(weights_->type, attention, {stream_.get()}));
  SEQ2SEQ_RETURN_IF_ERROR(matmul_->Run(AttentionOut(layer), stream_.get()));
  return NormRows(weights_->encoder[layer].attention_norm, weights_->encoder[layer].ffn_norm);
}

Status CudaEncoder::FeedForward(size_t layer) {
  const ModelSpec& spec = weights_->spec;
  SEQ2SEQ_RETURN_IF_ERROR(matmul_->Run(FfnIn(layer), stream_.get()));
  kernels::ActivateTokensArgs activate;
  activate.input = wide_.as();
  activate.output = narrow_.as();
  activate.tokens = shape_.tokens;
  activate.width = spec.encoder.d_ff;
  activate.kind = ActivationKindOf(spec.activation);
  activate.gated = spec.gated_ffn;
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(
      kernels::LaunchActivateTokens(weights_->type, activate, {stream_.get()}));
  SEQ2SEQ_RETURN_IF_ERROR(matmul_->Run(FfnOut(layer), stream_.get()));
  const bool last = layer + 1 == weights_->encoder.size();
  return NormRows(
      weights_->encoder[layer].ffn_norm,
      last ? weights_->encoder_final_norm : weights_->encoder[layer + 1].attention_norm);
}

// The size of batches that the products of this batch were tuned for.
int32_t CudaEncoder::TunedTokens() const {
  int32_t tokens = limits_.max_tokens;
  while (tokens / 2 >= std::max(shape_.tokens, kLeastTunedTokens)) tokens /= 2;
  return tokens;
}

// Decoder layers whose keys and values are multiplied at a time, as with few tokens one doesn't
// fill the device: as many as there is room for, and the same for all batches that are tuned
// together.
int32_t CudaEncoder::CrossLayersAtOnce() const {
  const auto layer_bytes = static_cast<int64_t>(ElementBytes(weights_->type)) * 2 *
                           weights_->spec.decoder_inner() * TunedTokens();
  const auto room = static_cast<int32_t>(static_cast<int64_t>(wide_.bytes()) / layer_bytes);
  return std::min({room, kMostCrossLayers, weights_->spec.decoder.layers});
}

int32_t CudaEncoder::CrossGroups() const {
  const int32_t at_once = CrossLayersAtOnce();
  return (weights_->spec.decoder.layers + at_once - 1) / at_once;
}

int32_t CudaEncoder::CrossLayersOf(int32_t group) const {
  const int32_t at_once = CrossLayersAtOnce();
  return std::min(at_once, weights_->spec.decoder.layers - group * at_once);
}

Status CudaEncoder::FillCrossBlocks(int32_t group) {
  const int32_t first_layer = group * CrossLayersAtOnce();
  kernels::ScatterKeyValuesArgs args;
  args.key_values = wide_.as();
  args.layers = CrossLayersOf(group);
  args.places = ids() + shape_.tokens;
  args.tokens = shape_.tokens;
  args.pool = pool_->memory.as();
  args.layout = pool_->layout;
  args.layer_offset = pool_->LayerOffset(first_layer);
  SEQ2SEQ_RETURN_IF_ERROR(matmul_->Run(CrossKeyValues(first_layer, args.layers), stream_.get()));
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(
      kernels::LaunchScatterKeyValues(weights_->type, args, {stream_.get()}));
  return OkStatus();
}

Status CudaEncoder::QueueLayer(int32_t layer) {
  if (layer == 0) SEQ2SEQ_RETURN_IF_ERROR(Start());
  SEQ2SEQ_RETURN_IF_ERROR(Attention(layer));
  return FeedForward(layer);
}

// Of the batch in one layer of the encoder, or in the keys and values of a group of the decoder's.
int64_t CudaEncoder::OperationsOf(int32_t part) const {
  const ModelSpec& spec = weights_->spec;
  const int64_t token_operations = int64_t{2} * spec.d_model * shape_.tokens;
  if (part >= spec.encoder.layers) {
    return token_operations * 2 * spec.decoder_inner() * CrossLayersOf(part - spec.encoder.layers);
  }
  const int64_t outputs = 4 * spec.encoder_inner() + (spec.gated_ffn ? 3 : 2) * spec.encoder.d_ff;
  return token_operations * outputs + kAttentionCost * 4 * spec.encoder_inner() * shape_.scores;
}

Status CudaEncoder::QueuePart(int32_t part) {
  const int32_t encoder_layers = weights_->spec.encoder.layers;
  return part < encoder_layers ? QueueLayer(part) : FillCrossBlocks(part - encoder_layers);
}

// Whether QueueSlice() would queue all parts at once.
bool CudaEncoder::IsOneSlice() const {
  int64_t operations = 0;
  for (int32_t part = 0; part + 1 < Parts(); ++part) operations += OperationsOf(part);
  return operations < kSliceOperations;
}

// Queues parts for about kSliceOperations, at least one.
Status CudaEncoder::QueueSlice() {
  if (bucket_ != nullptr) {
    SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaGraphLaunch(bucket_->graph.get(), stream_.get()));
    next_part_ = Parts();
    return OkStatus();
  }
  int64_t left = kSliceOperations;
  do {
    SEQ2SEQ_RETURN_IF_ERROR(QueuePart(next_part_));
    left -= OperationsOf(next_part_++);
  } while (next_part_ < Parts() && left > 0);
  return OkStatus();
}

// All products that can run, for batches of all sizes, on whatever is in the buffers.
Status CudaEncoder::Tune() {
  if (weights_->type == kernels::ElementType::kFloat32) return OkStatus();
  for (shape_.tokens = limits_.max_tokens; shape_.tokens >= kLeastTunedTokens; shape_.tokens /= 2) {
    std::vector<TokenMatmulArgs> products = {QueryKeyValue(0), AttentionOut(0), FfnIn(0), FfnOut(0),
                                             CrossKeyValues(0, CrossLayersOf(0))};
    const int32_t last_group = CrossLayersOf(CrossGroups() - 1);
    if (last_group != CrossLayersOf(0)) products.push_back(CrossKeyValues(0, last_group));
    for (const TokenMatmulArgs& args : products) {
      SEQ2SEQ_RETURN_IF_ERROR(matmul_->Tune(args, stream_.get()));
    }
  }
  return OkStatus();
}

// One after the other, ascending; each of batches that QueueSlice() would queue at once. Float32
// runs without: its products would be those of other shapes, with other algorithms.
Status CudaEncoder::CaptureGraphs() {
  if (weights_->type == kernels::ElementType::kFloat32) return OkStatus();
  const int32_t most = std::min(limits_.max_tokens, kMostGraphTokens);
  for (int32_t tokens = kGraphTokens; tokens <= most; tokens += kGraphTokens) {
    shape_ = {tokens, TilesOf(tokens) + kSpareTiles, int64_t{tokens} * tokens};
    if (!IsOneSlice()) break;
    SEQ2SEQ_ASSIGN_OR_RETURN(CudaGraph graph, CudaGraph::Capture(stream_.get(), [&]() -> Status {
                               for (int32_t part = 0; part < Parts(); ++part) {
                                 SEQ2SEQ_RETURN_IF_ERROR(QueuePart(part));
                               }
                               return OkStatus();
                             }));
    // Once without a source: the first launch takes longer.
    SEQ2SEQ_RETURN_IF_ERROR(Upload({}));
    SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaGraphLaunch(graph.get(), stream_.get()));
    SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream_.get()));
    buckets_.push_back({shape_, std::move(graph)});
  }
  return OkStatus();
}

Status CudaEncoder::WarmUp() {
  const int32_t tokens = limits_.warm_up_tokens;
  const std::vector<int32_t> ids(tokens, 0);
  std::vector<BlockId> blocks((tokens - 1) / kBlockTokens + 1);
  std::iota(blocks.begin(), blocks.end(), 0);
  const EncodeItem item{.ticket = 0, .source_ids = ids, .cross_blocks = blocks};
  SEQ2SEQ_RETURN_IF_ERROR(Encode({&item, 1}));
  return Wait();
}

Status CudaEncoder::Encode(std::span<const EncodeItem> batch) {
  slices_ = 0;
  next_part_ = 0;
  SEQ2SEQ_RETURN_IF_ERROR(UploadBatch(batch));
  while (true) {
    SEQ2SEQ_RETURN_IF_ERROR(turns_->Slice(stream_.get(), [this] { return QueueSlice(); }));
    SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaEventRecord(finished_[slices_ % 2].get(), stream_.get()));
    ++slices_;
    if (next_part_ == Parts()) return OkStatus();
    // While steps run the next slice is queued when this one has ended, so that a step comes
    // between them; else one is queued ahead, so that the device doesn't wait for this thread.
    SEQ2SEQ_RETURN_IF_ERROR(WaitForSlices(turns_->StepInFlight() ? slices_ : slices_ - 1));
  }
}

// Until the first `count` of the batch have ended; all but the last two queued have.
Status CudaEncoder::WaitForSlices(int32_t count) {
  if (count == 0) return OkStatus();
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(finished_[(count - 1) % 2].get()));
  return OkStatus();
}

Status CudaEncoder::Wait() { return WaitForSlices(slices_); }

Status CudaEncoder::Recover() {
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream_.get()));
  return OkStatus();
}

}  // namespace seq2seq
