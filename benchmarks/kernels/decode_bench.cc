#include "benchmarks/kernels/decode_bench.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "backend/kernels/choose_token.h"
#include "backend/kernels/decode_attention.h"
#include "backend/kernels/projected_attention.h"
#include "backend/kernels/projection.h"
#include "backend/kernels/step_state.h"

namespace seq2seq {
namespace {

using kernels::kBlockTokens;
using kernels::KvLayout;
using kernels::LaunchContext;
using kernels::ProjectionArgs;
using kernels::ProjectionOutput;
using kernels::RowInfo;

constexpr kernels::ElementType kType = kernels::ElementType::kBfloat16;
constexpr int32_t kSourceTokens = 512;
constexpr int32_t kPosition = 64;
constexpr int32_t kMaxDistance = 128;
constexpr int32_t kRowBlocks = (kSourceTokens + kPosition) / kBlockTokens + 1;

struct Product {
  const char* name;
  int32_t outputs;
  int32_t inputs;
  ProjectionOutput output;
  bool normed;
  int32_t launches;  // a step
};
// What Products() lists.
enum ProductIndex : uint8_t {
  kQueryKeyValue,
  kQuery,
  kAttended,
  kFeedForwardIn,
  kFeedForwardOut,
  kHead
};
// The products of a layer in the order of a step.
constexpr ProductIndex kLayerProducts[] = {kQueryKeyValue, kAttended,      kQuery,
                                           kAttended,      kFeedForwardIn, kFeedForwardOut};

class DecodeBench {
 public:
  DecodeBench(KernelShape shape, int32_t rows)
      : shape_(std::move(shape)),
        rows_(rows),
        capacity_((rows + 7) / 8 * 8),
        layout_(shape_.layers, shape_.heads, shape_.head_dim) {
    const size_t widest = std::max({size_t(shape_.vocabulary), size_t(2) * shape_.ffn});
    pool_ = RandomNumbers(size_t(rows) * kRowBlocks * layout_.BlockStride() * sizeof(uint16_t));
    weights_ = RandomNumbers(WeightBytes());
    floats_ = RandomNumbers(size_t(capacity_) * widest * sizeof(float));
    results_ = RandomNumbers(size_t(capacity_) * widest * sizeof(float));
    inputs_ = RandomNumbers(size_t(capacity_) * widest * sizeof(float));
    outputs_ = RandomNumbers(size_t(capacity_) * widest * sizeof(float));
    std::vector<int32_t> table(size_t(rows) * kRowBlocks);
    for (size_t i = 0; i < table.size(); ++i) {
      table[i] = static_cast<int32_t>(i * 7919 % table.size());
    }
    table_ = ToDevice(table);
    std::vector<RowInfo> infos(rows);
    for (int32_t i = 0; i < rows; ++i) {
      infos[i] = {i, kPosition, kSourceTokens, RowInfo::kActive | RowInfo::kChoose};
    }
    infos_ = ToDevice(infos);
    for (const bool cross : {false, true}) {
      fused_[cross] = kernels::CanProjectAndAttend(kType, FusedArgs(cross, 0));
    }
  }

  std::vector<KernelTime> Run() {
    TimeBegin();
    for (const Product& product : Products()) Project(product);
    Attend("self attention", false);
    Attend("cross attention", true);
    ProjectAndAttend("qkv and self attention", false);
    ProjectAndAttend("query and cross attention", true);
    Choose();
    TimeLayers();
    return std::move(times_);
  }

 private:
  // What an attention's queries come from.
  Product QueryProduct(bool cross) const {
    return {cross ? "query" : "qkv",
            (cross ? 1 : 3) * shape_.inner(),
            shape_.width,
            ProjectionOutput::kQueryKeyValue,
            true,
            SeparateLaunches(cross)};
  }

  int32_t SeparateLaunches(bool cross) const { return fused_[cross] ? 0 : shape_.layers; }

  std::vector<Product> Products() const {
    const int32_t width = shape_.width;
    const int32_t layers = shape_.layers;
    return {
        QueryProduct(false),
        QueryProduct(true),
        {"attention output", width, shape_.inner(), ProjectionOutput::kResidual, false, 2 * layers},
        {"feed-forward in", (shape_.gated ? 2 : 1) * shape_.ffn, width,
         shape_.gated ? ProjectionOutput::kGatedActivation : ProjectionOutput::kActivation, true,
         layers},
        {"feed-forward out", width, shape_.ffn, ProjectionOutput::kResidual, false, layers},
        {"head", shape_.vocabulary, width, ProjectionOutput::kLogits, true, 1},
    };
  }

  static double Elements(const Product& product) {
    return static_cast<double>(product.outputs) * product.inputs;
  }

  // Of a step's products, each with weights of its own.
  double StepWeightBytes() const {
    const std::vector<Product> products = Products();
    double layer = 0.0;
    for (const ProductIndex index : kLayerProducts) layer += 2.0 * Elements(products[index]);
    return shape_.layers * layer + 2.0 * Elements(products[kHead]);
  }

  size_t WeightBytes() const {
    auto most = static_cast<size_t>(StepWeightBytes());
    for (const Product& product : Products()) {
      const double bytes = 2.0 * Elements(product);
      most = std::max(most, static_cast<size_t>(bytes) * Turns(bytes));
    }
    return most;
  }

  void Note(const char* name, int32_t launches, KernelWork work, double microseconds) {
    times_.push_back({shape_.name, kDecodeStep, name, rows_, launches, microseconds, work});
  }

  kernels::Residual ResidualStream() const {
    return {As<float>(results_),
            outputs_.get(),
            As<float>(results_) + size_t(capacity_) * shape_.width,
            kernels::TileCount(shape_.width),
            shape_.width,
            capacity_};
  }

  ProjectionArgs Args(const Product& product, int32_t turn) const {
    return Args(product, turn, static_cast<size_t>(2.0 * Elements(product)) * turn);
  }

  // offset: bytes, of the weights.
  ProjectionArgs Args(const Product& product, int32_t turn, size_t offset) const {
    ProjectionArgs args;
    args.weights = As<char>(weights_) + offset;
    args.outputs = product.outputs;
    args.inputs = product.inputs;
    args.input = inputs_.get();
    args.rows = rows_;
    args.row_capacity = capacity_;
    args.max_splits = 4;
    args.row_infos = As<RowInfo>(infos_);
    if (product.normed) {
      const int32_t parts = kernels::TileCount(shape_.width);
      const float* sums = As<float>(floats_) + 2 * capacity_;
      args.factor = {sums,
                     parts,
                     parts,
                     1.0F / static_cast<float>(shape_.width),
                     1e-6F,
                     As<float>(floats_),
                     As<float>(floats_) + capacity_,
                     1.0F};
    }
    args.output = product.output;
    const int32_t layer = turn % shape_.layers;
    args.query_key_value = {
        As<float>(results_),           shape_.inner(),      pool_.get(), layout_,
        layer * layout_.LayerStride(), As<int32_t>(table_), kRowBlocks};
    args.residual.residual = ResidualStream();
    args.residual.norm_weight = As<float>(floats_);
    args.residual.scale = As<float>(floats_);
    args.activation = {outputs_.get(), kernels::ActivationKind::kGeluTanh};
    args.logits.parts = As<kernels::LogitsPart>(results_);
    return args;
  }

  void Project(const Product& product) {
    const double bytes = 2.0 * Elements(product);
    const double time =
        MedianMicroseconds(Turns(bytes), true, [&](int32_t turn, const LaunchContext& context) {
          return kernels::LaunchProjection(kType, Args(product, turn), context);
        });
    Note(product.name, product.launches, WorkOf(product), time);
  }

  KernelWork WorkOf(const Product& product) const {
    const double activations = 2.0 * rows_ * (product.inputs + product.outputs);
    return {2.0 * Elements(product) + activations, 2.0 * rows_ * Elements(product)};
  }

  kernels::DecodeAttentionArgs AttentionArgs(bool cross, int32_t layer) const {
    kernels::DecodeAttentionArgs args;
    args.query = As<float>(floats_);
    args.pool = pool_.get();
    args.layout = layout_;
    args.layer_offset = layer * layout_.LayerStride();
    args.blocks = As<int32_t>(table_);
    args.block_stride = kRowBlocks;
    args.row_infos = As<RowInfo>(infos_);
    args.rows = rows_;
    args.row_capacity = capacity_;
    args.cross = cross;
    args.bias = cross ? nullptr : As<float>(floats_);
    args.max_distance = cross ? 0 : kMaxDistance;
    args.splits = cross ? kernels::DecodeSplits(rows_, shape_.heads, 8) : 1;
    args.output = outputs_.get();
    return args;
  }

  // Of one layer's keys and values.
  KernelWork AttentionWork(bool cross) const {
    const int32_t length = cross ? kSourceTokens : kPosition + 1;
    const double numbers = 2.0 * rows_ * length * shape_.inner();
    return {2.0 * numbers, 2.0 * numbers};
  }

  void Attend(const char* name, bool cross) {
    const double time =
        MedianMicroseconds(shape_.layers, true, [&](int32_t layer, const LaunchContext& context) {
          return kernels::LaunchDecodeAttention(kType, AttentionArgs(cross, layer), context);
        });
    Note(name, SeparateLaunches(cross), AttentionWork(cross), time);
  }

  kernels::ProjectedAttentionArgs FusedArgs(bool cross, int32_t turn) const {
    return {Args(QueryProduct(cross), turn), AttentionArgs(cross, turn % shape_.layers)};
  }

  // Both in one kernel, where a step takes it.
  void ProjectAndAttend(const char* name, bool cross) {
    if (!fused_[cross]) return;
    KernelWork work = WorkOf(QueryProduct(cross));
    const double weight_bytes = 2.0 * Elements(QueryProduct(cross));
    const double time = MedianMicroseconds(
        Turns(weight_bytes), true, [&](int32_t turn, const LaunchContext& context) {
          return kernels::LaunchProjectedAttention(kType, FusedArgs(cross, turn), context);
        });
    const KernelWork attention = AttentionWork(cross);
    work.bytes += attention.bytes;
    work.operations += attention.operations;
    Note(name, shape_.layers, work, time);
  }

  // As the decoder launches them.
  cudaError_t LaunchBoth(const kernels::ProjectedAttentionArgs& args,
                         const LaunchContext& context) const {
    if (fused_[args.attention.cross]) {
      return kernels::LaunchProjectedAttention(kType, args, context);
    }
    const cudaError_t error = kernels::LaunchProjection(kType, args.projection, context);
    return error != cudaSuccess
               ? error
               : kernels::LaunchDecodeAttention(kType, args.attention, {context.stream, true});
  }

  // All layers and the head in the order of a step: stages of different sizes overlap otherwise
  // than those of a chain of one kind. Of no launch in a step, as its stages are listed.
  void TimeLayers() {
    constexpr auto kOfLayer = static_cast<int32_t>(std::size(kLayerProducts));
    const std::vector<Product> products = Products();
    const int32_t count = shape_.layers * kOfLayer + 1;
    size_t offset = 0;
    const auto launch = [&](int32_t i, const LaunchContext& context) {
      if (i == 0) offset = 0;
      const int32_t layer = i / kOfLayer;
      const ProductIndex index = layer < shape_.layers ? kLayerProducts[i % kOfLayer] : kHead;
      const ProjectionArgs args = Args(products[index], layer, offset);
      offset += static_cast<size_t>(2.0 * Elements(products[index]));
      return index == kQueryKeyValue || index == kQuery
                 ? LaunchBoth({args, AttentionArgs(index == kQuery, layer)}, context)
                 : kernels::LaunchProjection(kType, args, context);
    };
    const double time = count * MedianMicroseconds(count, true, launch);
    const double cache = shape_.layers * (AttentionWork(false).bytes + AttentionWork(true).bytes);
    const double weights = StepWeightBytes();
    Note("layers and head", 0, {weights + cache, rows_ * weights + cache}, time);
  }

  // A pass of all rows; what it does not point to otherwise is in the shared arrays.
  struct Pass {
    Pass(int32_t row_count, const std::vector<RowInfo>& infos, const kernels::SlotState& state)
        : header(ToDevice(std::vector<kernels::StepHeader>{{row_count, 0, 1, 0, 2}})),
          states(ToDevice(std::vector<kernels::SlotState>(row_count, state))),
          rows(ToDevice(infos)),
          rings(ToDevice(std::vector<int32_t>(row_count))) {
      std::vector<int32_t> slots(row_count);
      std::iota(slots.begin(), slots.end(), 0);
      row_slots = ToDevice(slots);
    }
    DeviceArray header;
    DeviceArray states;
    DeviceArray row_slots;
    DeviceArray rows;
    DeviceArray rings;
  };

  kernels::BeginPassArgs Args(const Pass& pass) const {
    kernels::BeginPassArgs args;
    args.header = As<kernels::StepHeader>(pass.header);
    args.row_slots = As<int32_t>(pass.row_slots);
    args.tables.states = As<kernels::SlotState>(pass.states);
    args.rows = As<RowInfo>(pass.rows);
    args.rings = As<int32_t>(pass.rings);
    args.embedding = weights_.get();
    args.norm_weight = As<float>(floats_);
    args.epsilon = 1e-6F;
    args.norm_scale = As<float>(floats_);
    args.residual = ResidualStream();
    return args;
  }

  void TimeBegin() {
    const Pass pass(rows_, std::vector<RowInfo>(rows_), {});
    const kernels::BeginPassArgs args = Args(pass);
    const double time = MedianMicroseconds(16, false, [&](int32_t, const LaunchContext& context) {
      return kernels::LaunchBeginPass(kType, args, rows_, context);
    });
    // Embedding, residual and what the first projection reads. A step of the last one's rows has it
    // done by the choice.
    Note("begin", 0, {8.0 * rows_ * shape_.width, 0.0}, time);
  }

  // Logits as a model's head gives them: spread like a normal distribution. In their parts what the
  // head says of them.
  void Choose() {
    const int32_t tiles = kernels::TileCount(shape_.vocabulary);
    std::mt19937 engine(17);
    std::normal_distribution<float> normal(0.0F, 2.5F);
    std::vector<float> logits(size_t(rows_) * shape_.vocabulary);
    for (float& logit : logits) logit = normal(engine);
    std::vector<kernels::LogitsPart> parts;
    for (size_t first = 0; first < logits.size(); first += shape_.vocabulary) {
      for (int32_t token = 0; token < shape_.vocabulary; token += kernels::kTileOutputs) {
        const float* begin = &logits[first + token];
        const float* end =
            begin + std::min<int32_t>(kernels::kTileOutputs, shape_.vocabulary - token);
        const float* best = std::max_element(begin, end);
        kernels::LogitsPart part{*best, token + static_cast<int32_t>(best - begin), *best, 0.0F};
        for (const float* logit = begin; logit != end; ++logit) {
          part.sum_exp += std::exp(*logit - part.max);
        }
        parts.push_back(part);
      }
    }
    const DeviceArray device_parts = ToDevice(parts);
    const DeviceArray device_logits = ToDevice(logits);
    const DeviceArray outcomes = ToDevice(std::vector<kernels::RowOutcome>(2 * rows_));
    kernels::ChooseTokenArgs args;
    args.parts = As<kernels::LogitsPart>(device_parts);
    args.tiles = tiles;
    args.logits = As<float>(device_logits);
    args.vocabulary = shape_.vocabulary;
    // No EOS: a row that ended would have nothing to do in the launches after.
    args.outcomes = As<kernels::RowOutcome>(outcomes);
    args.outcome_stride = rows_;
    kernels::SlotState state;
    state.max_new_tokens = 1 << 30;
    state.return_logprobs = 1;
    const double part_bytes = sizeof(kernels::LogitsPart) * tiles;
    Choose("choose greedily", state, part_bytes, args);
    state.do_sample = 1;
    const double logit_bytes = part_bytes + sizeof(float) * shape_.vocabulary;
    state.min_p = 0.05F;
    Choose("sample, min-p", state, logit_bytes, args);
    state.min_p = 0.0F;
    state.typical_p = 0.9F;
    Choose("sample, typical-p", state, logit_bytes, args);
    state.typical_p = 1.0F;
    state.top_p = 0.9F;
    Choose("sample, top-p", state, logit_bytes, args);
    // The tiles that hold the k largest logits.
    state.top_k = 50;
    Choose("sample, top-k and top-p", state,
           part_bytes + sizeof(float) * state.top_k * kernels::kTileOutputs, args);
  }

  // A choice that reads `row_bytes` a row.
  void Choose(const char* name, const kernels::SlotState& state, double row_bytes,
              kernels::ChooseTokenArgs args) {
    const bool sample = state.do_sample != 0;
    std::vector<RowInfo> infos(rows_);
    for (int32_t i = 0; i < rows_; ++i) {
      infos[i] = {i, kPosition, kSourceTokens,
                  RowInfo::kActive | RowInfo::kChoose | (sample ? RowInfo::kSample : 0)};
    }
    const Pass pass(rows_, infos, state);
    args.pass = Args(pass);
    const double time = MedianMicroseconds(8, true, [&](int32_t, const LaunchContext& context) {
      return kernels::LaunchChooseTokens(kType, args, rows_, context);
    });
    Note(name, sample ? 0 : 1, {rows_ * row_bytes, 0.0}, time);
  }

  KernelShape shape_;
  int32_t rows_;
  int32_t capacity_;
  KvLayout layout_;
  bool fused_[2] = {false, false};  // [cross] a step projects and attends in one kernel
  DeviceArray pool_;
  DeviceArray table_;
  DeviceArray infos_;
  DeviceArray weights_;
  DeviceArray floats_;
  DeviceArray results_;
  DeviceArray inputs_;
  DeviceArray outputs_;
  std::vector<KernelTime> times_;
};

}  // namespace

std::vector<KernelTime> TimeDecodeKernels(const KernelShape& shape, int32_t rows) {
  return DecodeBench(shape, rows).Run();
}

}  // namespace seq2seq
