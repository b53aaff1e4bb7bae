#include "benchmarks/kernels/encoder_bench.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "backend/kernels/encoder_attention.h"
#include "backend/kernels/kv_layout.h"
#include "backend/kernels/rms_norm.h"
#include "backend/kernels/token_ops.h"
#include "benchmarks/kernels/token_product.h"

namespace seq2seq {
namespace {

using kernels::kBlockTokens;
using kernels::KvLayout;
using kernels::LaunchContext;
using kernels::QueryTile;

constexpr kernels::ElementType kType = kernels::ElementType::kBfloat16;
constexpr int32_t kSourceTokens = 512;
constexpr int32_t kMaxDistance = 128;
// An encoder's buffers are made for so many tokens, and its products of cross keys and values for
// as many layers at a time as these have room for, but no more than kMostCrossLayers.
constexpr int32_t kMostTokens = 8192;
constexpr int32_t kMostCrossLayers = 8;

class EncoderBench {
 public:
  EncoderBench(KernelShape shape, int32_t tokens)
      : shape_(std::move(shape)),
        tokens_(tokens),
        layout_(shape_.layers, shape_.heads, shape_.head_dim),
        products_(kType) {
    CheckCuda(kernels::PrepareEncoderAttention(), "encoder attention");
    floats_ = RandomNumbers(TurnSpace(Bytes(shape_.width) * 2));
    inputs_ = RandomNumbers(TurnSpace(Bytes(Widest())));
    outputs_ = RandomNumbers(TurnSpace(Bytes(Widest())));
    weights_ = RandomNumbers(TurnSpace(WeightBytes(Widest(), shape_.width)));
    pool_ = RandomNumbers(size_t(tokens_ / kBlockTokens) * layout_.BlockStride() * kNumberBytes);
    std::vector<QueryTile> tiles;
    for (int32_t token = 0; token < tokens_; token += kernels::kQueryTile) {
      const int32_t query = token % kSourceTokens;
      tiles.push_back(
          {.first_token = token - query, .length = kSourceTokens, .first_query = query});
    }
    tile_count_ = static_cast<int32_t>(tiles.size());
    tiles_ = ToDevice(tiles);
    std::vector<int32_t> ids(tokens_);
    std::vector<int32_t> places(tokens_);
    const int32_t blocks = tokens_ / kBlockTokens;
    for (int32_t i = 0; i < tokens_; ++i) {
      ids[i] = static_cast<int32_t>(int64_t{i} * 7919 % shape_.vocabulary);
      const int32_t block = static_cast<int32_t>(int64_t{i / kBlockTokens} * 7919 % blocks);
      places[i] = block * kBlockTokens + i % kBlockTokens;
    }
    ids_ = ToDevice(ids);
    places_ = ToDevice(places);
  }

  std::vector<KernelTime> Run() {
    const int32_t layers = shape_.layers;
    const int32_t inner = shape_.inner();
    const int32_t ffn_in = (shape_.gated ? 2 : 1) * shape_.ffn;
    Embed();
    Norm();
    Multiply("qkv", layers, 3 * inner, shape_.width, false);
    Attend();
    Multiply("attention output", layers, shape_.width, inner, true);
    Multiply("feed-forward in", layers, ffn_in, shape_.width, false);
    Activate();
    Multiply("feed-forward out", layers, shape_.width, shape_.ffn, true);
    const int32_t at_once = CrossLayers();
    const int32_t groups = (layers + at_once - 1) / at_once;
    Multiply("cross keys, values", groups, at_once * 2 * inner, shape_.width, false);
    Scatter(at_once, groups);
    return std::move(times_);
  }

 private:
  static constexpr size_t kNumberBytes = 2;

  // Of an operand with so many numbers a token.
  size_t Bytes(int32_t width) const { return size_t(tokens_) * width * kNumberBytes; }
  static size_t WeightBytes(int32_t outputs, int32_t inputs) {
    return size_t(outputs) * inputs * kNumberBytes;
  }
  static void* Place(const DeviceArray& array, int32_t turn, size_t bytes) {
    return As<char>(array) + turn * bytes;
  }

  int32_t CrossLayers() const {
    const int32_t room = int32_t{kMostTokens} * WidestActivation() / (2 * shape_.inner()) / tokens_;
    return std::clamp(room, 1, std::min(kMostCrossLayers, shape_.layers));
  }
  int32_t WidestActivation() const {
    return std::max(3 * shape_.inner(), (shape_.gated ? 2 : 1) * shape_.ffn);
  }
  int32_t Widest() const {
    return std::max(WidestActivation(), CrossLayers() * 2 * shape_.inner());
  }

  // launch(turn, context): `work.bytes` decide how many turns there are.
  void Time(const char* name, int32_t launches, KernelWork work, const Launcher& launch) {
    const double time = MedianMicroseconds(Turns(work.bytes), false, launch);
    times_.push_back({shape_.name, kEncode, name, tokens_, launches, time, work});
  }

  void Embed() {
    const double bytes = 1.5 * Bytes(shape_.width) * 2;
    Time("embed", 1, {bytes, 0.0}, [&](int32_t turn, const LaunchContext& context) {
      auto* values = static_cast<float*>(Place(floats_, turn, 2 * Bytes(shape_.width)));
      return kernels::LaunchEmbedTokens(kType, weights_.get(), As<int32_t>(ids_), tokens_,
                                        shape_.width, values, context);
    });
  }

  void Norm() {
    const size_t bytes = Bytes(shape_.width);
    Time("norm", 2 * shape_.layers + 1, {3.0 * bytes, 0.0},
         [&](int32_t turn, const LaunchContext& context) {
           kernels::RmsNormParams params;
           params.residual = static_cast<float*>(Place(floats_, turn, 2 * bytes));
           params.weight = weights_.get();
           params.output = Place(outputs_, turn, bytes);
           params.rows = tokens_;
           params.width = shape_.width;
           params.activation_type = kType;
           return kernels::RmsNorm(params, context.stream);
         });
  }

  void Multiply(const char* name, int32_t launches, int32_t outputs, int32_t inputs, bool add) {
    const size_t weight_bytes = WeightBytes(outputs, inputs);
    const auto args = [&](int32_t turn) {
      TokenMatmulArgs product;
      product.weight = Place(weights_, turn, weight_bytes);
      product.input = Place(inputs_, turn, Bytes(inputs));
      product.output =
          add ? Place(floats_, turn, 2 * Bytes(outputs)) : Place(outputs_, turn, Bytes(outputs));
      product.outputs = outputs;
      product.inputs = inputs;
      product.tokens = tokens_;
      product.accumulate = add;
      return product;
    };
    products_.Tune(args(0));
    // Sums in float32 are read and written.
    const double bytes = weight_bytes + Bytes(inputs) + (add ? 4.0 : 1.0) * Bytes(outputs);
    const double operations = 2.0 * tokens_ * outputs * inputs;
    Time(name, launches, {bytes, operations}, [&](int32_t turn, const LaunchContext& context) {
      return products_.Run(args(turn), context.stream);
    });
  }

  void Attend() {
    const int32_t inner = shape_.inner();
    // Queries with keys, and weights with values.
    const double operations = 4.0 * inner * tokens_ * kSourceTokens;
    Time("attention", shape_.layers, {4.0 * Bytes(inner), operations},
         [&](int32_t turn, const LaunchContext& context) {
           kernels::EncoderAttentionArgs args;
           args.query_key_value = Place(inputs_, turn, 3 * Bytes(inner));
           args.output = Place(outputs_, turn, Bytes(inner));
           args.tiles = As<QueryTile>(tiles_);
           args.tile_count = tile_count_;
           args.tokens = tokens_;
           args.heads = shape_.heads;
           args.head_dim = shape_.head_dim;
           args.bias = As<float>(weights_);
           args.max_distance = kMaxDistance;
           return kernels::LaunchEncoderAttention(kType, args, context);
         });
  }

  void Activate() {
    const size_t in = Bytes((shape_.gated ? 2 : 1) * shape_.ffn);
    const size_t out = Bytes(shape_.ffn);
    Time("activation", shape_.layers, {double(in + out), 0.0},
         [&](int32_t turn, const LaunchContext& context) {
           kernels::ActivateTokensArgs args;
           args.input = Place(inputs_, turn, in);
           args.output = Place(outputs_, turn, out);
           args.tokens = tokens_;
           args.width = shape_.ffn;
           args.kind =
               shape_.gated ? kernels::ActivationKind::kGeluTanh : kernels::ActivationKind::kRelu;
           args.gated = shape_.gated;
           return kernels::LaunchActivateTokens(kType, args, context);
         });
  }

  void Scatter(int32_t at_once, int32_t launches) {
    const size_t bytes = Bytes(at_once * 2 * shape_.inner());
    Time("scatter keys, values", launches, {2.0 * bytes, 0.0},
         [&](int32_t turn, const LaunchContext& context) {
           kernels::ScatterKeyValuesArgs args;
           args.key_values = Place(inputs_, turn, bytes);
           args.layers = at_once;
           args.places = As<int32_t>(places_);
           args.tokens = tokens_;
           args.pool = pool_.get();
           args.layout = layout_;
           const int32_t first = turn * at_once % (shape_.layers - at_once + 1);
           args.layer_offset = first * layout_.LayerStride();
           return kernels::LaunchScatterKeyValues(kType, args, context);
         });
  }

  KernelShape shape_;
  int32_t tokens_;
  KvLayout layout_;
  TokenProduct products_;
  int32_t tile_count_ = 0;
  DeviceArray floats_;
  DeviceArray inputs_;
  DeviceArray outputs_;
  DeviceArray weights_;
  DeviceArray pool_;
  DeviceArray tiles_;
  DeviceArray ids_;
  DeviceArray places_;
  std::vector<KernelTime> times_;
};

}  // namespace

std::vector<KernelTime> TimeEncoderKernels(const KernelShape& shape, int32_t tokens) {
  return EncoderBench(shape, tokens).Run();
}

}  // namespace seq2seq
