// Times each stage of a decode step on its own: chains of one kernel, as many as the model has
// layers, each with weights or blocks of its own, launched as dependents in a captured graph.
//
//   decode_kernels_benchmark [rows ...]
//
// Prints microseconds a stage and the share of the memory bandwidth that its bytes take.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "backend/kernels/decode_attention.h"
#include "backend/kernels/projection.h"

namespace seq2seq::kernels {
namespace {

constexpr ElementType kType = ElementType::kBfloat16;
constexpr double kBytesPerSecond = 4.29e12;  // measured for a device-to-device copy
constexpr int32_t kLayers = 24;
constexpr int32_t kWidth = 1536;
constexpr int32_t kHeads = 24;
constexpr int32_t kHeadDim = 64;
constexpr int32_t kFfn = 3584;
constexpr int32_t kVocabulary = 32128;
constexpr int32_t kSource = 512;
constexpr int32_t kPosition = 64;

void CheckCuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("FAILED: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

void* Allocate(size_t bytes) {
  void* data = nullptr;
  CheckCuda(cudaMalloc(&data, bytes), "cudaMalloc");
  std::vector<uint16_t> numbers(1 << 20);
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<uint16_t>(0x3c00 + (i * 2654435761U >> 9) % 256 + (i % 2) * 0x8000);
  }
  for (size_t done = 0; done < bytes; done += numbers.size() * 2) {
    CheckCuda(cudaMemcpy(static_cast<char*>(data) + done, numbers.data(),
                         std::min(numbers.size() * 2, bytes - done), cudaMemcpyHostToDevice),
              "cudaMemcpy");
  }
  return data;
}

class Bench {
 public:
  explicit Bench(int32_t rows) : rows_(rows), capacity_((rows + 7) / 8 * 8) {
    CheckCuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    const KvLayout layout{kLayers, kHeads, kHeadDim, 16};
    const int32_t blocks = (kSource + kPosition + 16) / 16;
    pool_ = Allocate(size_t(rows) * blocks * layout.BlockStride() * 2);
    std::vector<int32_t> table(size_t(rows) * blocks);
    for (size_t i = 0; i < table.size(); ++i)
      table[i] = static_cast<int32_t>(i * 7919 % table.size());
    stride_ = blocks;
    CheckCuda(cudaMalloc(&table_, table.size() * 4), "cudaMalloc");
    CheckCuda(cudaMemcpy(table_, table.data(), table.size() * 4, cudaMemcpyHostToDevice), "copy");
    std::vector<RowInfo> infos(rows);
    for (int32_t i = 0; i < rows; ++i) infos[i] = {i, kPosition, kSource, 3};
    CheckCuda(cudaMalloc(&infos_, rows * sizeof(RowInfo)), "cudaMalloc");
    CheckCuda(cudaMemcpy(infos_, infos.data(), rows * sizeof(RowInfo), cudaMemcpyHostToDevice),
              "c");
    weights_ = Allocate(size_t(kLayers) * 2 * kFfn * kWidth * 2);
    floats_ = static_cast<float*>(Allocate(size_t(capacity_) * kVocabulary * 4));
    more_ = static_cast<float*>(Allocate(size_t(capacity_) * kVocabulary * 4));
    halves_ = Allocate(size_t(capacity_) * 2 * kFfn * 4);
    more_halves_ = Allocate(size_t(capacity_) * 2 * kFfn * 4);
  }

  // launch(layer, context); bytes: of one stage.
  void Time(const char* name, int32_t count, double bytes,
            const std::function<cudaError_t(int32_t, const LaunchContext&)>& launch) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    CheckCuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capture");
    for (int32_t i = 0; i < count; ++i) CheckCuda(launch(i, {stream_, i > 0}), name);
    CheckCuda(cudaStreamEndCapture(stream_, &graph), "capture");
    CheckCuda(cudaGraphInstantiate(&exec, graph, 0), "graph");
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    CheckCuda(cudaEventCreate(&begin), "event");
    CheckCuda(cudaEventCreate(&end), "event");
    std::vector<float> times;
    for (int i = 0; i < 25; ++i) {
      CheckCuda(cudaEventRecord(begin, stream_), "record");
      CheckCuda(cudaGraphLaunch(exec, stream_), "launch");
      CheckCuda(cudaEventRecord(end, stream_), "record");
      CheckCuda(cudaEventSynchronize(end), name);
      float ms = 0.0F;
      CheckCuda(cudaEventElapsedTime(&ms, begin, end), "elapsed");
      if (i >= 5) times.push_back(ms);
    }
    std::nth_element(times.begin(), times.begin() + 10, times.end());
    const double microseconds = 1000.0 * times[10] / count;
    total_ += microseconds * (count == kLayers ? kLayers : 1);
    std::printf("  %-10s %7.2f us a stage, %5.1f %% of bandwidth\n", name, microseconds,
                100.0 * bytes / kBytesPerSecond / microseconds * 1e6);
    CheckCuda(cudaGraphExecDestroy(exec), "graph");
    CheckCuda(cudaGraphDestroy(graph), "graph");
  }

  ProjectionArgs Projection(int32_t layer, int32_t outputs, int32_t inputs, bool normed) const {
    ProjectionArgs args;
    args.weights = static_cast<const char*>(weights_) + size_t(layer) * outputs * inputs * 2;
    args.outputs = outputs;
    args.inputs = inputs;
    args.input = halves_;
    args.rows = rows_;
    args.row_capacity = capacity_;
    args.max_splits = 4;
    args.row_infos = infos_;
    if (normed) {
      args.factor = {floats_, kWidth / 16, kWidth / 16, 1.0F / kWidth, 1e-6F, floats_, more_, 1.0F};
    }
    return args;
  }

  void Project(const char* name, int32_t outputs, int32_t inputs, ProjectionOutput output,
               bool normed) {
    const KvLayout layout{kLayers, kHeads, kHeadDim, 16};
    const int32_t count = output == ProjectionOutput::kLogits ? 3 : kLayers;
    Time(name, count, 2.0 * outputs * inputs, [&](int32_t layer, const LaunchContext& context) {
      ProjectionArgs args = Projection(layer, outputs, inputs, normed);
      args.output = output;
      args.query_key_value = {more_,  kWidth, pool_, layout, layer * layout.LayerStride(),
                              table_, stride_};
      args.residual.residual = {more_,       more_halves_, more_ + size_t(capacity_) * kWidth,
                                kWidth / 16, kWidth,       capacity_};
      args.residual.norm_weight = floats_;
      args.residual.scale = floats_;
      args.activation = {more_halves_, ActivationKind::kGeluTanh};
      args.logits.parts = reinterpret_cast<LogitsPart*>(more_);
      return LaunchProjection(kType, args, context);
    });
  }

  void Attend(const char* name, bool cross, int32_t splits) {
    const KvLayout layout{kLayers, kHeads, kHeadDim, 16};
    const int32_t length = cross ? kSource : kPosition + 1;
    Time(name, kLayers, 4.0 * rows_ * length * kWidth,
         [&](int32_t layer, const LaunchContext& context) {
           DecodeAttentionArgs args;
           args.query = floats_;
           args.pool = pool_;
           args.layout = layout;
           args.layer_offset = layer * layout.LayerStride();
           args.blocks = table_;
           args.block_stride = stride_;
           args.row_infos = infos_;
           args.rows = rows_;
           args.row_capacity = capacity_;
           args.cross = cross;
           args.bias = cross ? nullptr : floats_;
           args.max_distance = cross ? 0 : 128;
           args.splits = splits;
           args.output = more_halves_;
           return LaunchDecodeAttention(kType, args, context);
         });
  }

  void Run() {
    std::printf("%d rows\n", rows_);
    Project("qkv", 3 * kWidth, kWidth, ProjectionOutput::kQueryKeyValue, true);
    for (const int32_t splits : {1, 2, 4, 8}) {
      if (rows_ * kHeads * splits > 1600 && splits > 1) continue;
      std::printf("  splits %d\n", splits);
      const double before = total_;
      Attend("self", false, splits);
      Attend("cross", true, splits);
      if (splits > 1) total_ = before;
    }
    Project("out", kWidth, kWidth, ProjectionOutput::kResidual, false);
    Project("query", kWidth, kWidth, ProjectionOutput::kQueryKeyValue, true);
    Project("out", kWidth, kWidth, ProjectionOutput::kResidual, false);
    Project("gate up", 2 * kFfn, kWidth, ProjectionOutput::kGatedActivation, true);
    Project("down", kWidth, kFfn, ProjectionOutput::kResidual, false);
    Project("head", kVocabulary, kWidth, ProjectionOutput::kLogits, true);
    std::printf("  sum of a step's stages %.1f us\n", total_);
  }

 private:
  int32_t rows_;
  int32_t capacity_;
  int32_t stride_ = 0;
  cudaStream_t stream_ = nullptr;
  void* pool_ = nullptr;
  int32_t* table_ = nullptr;
  RowInfo* infos_ = nullptr;
  void* weights_ = nullptr;
  float* floats_ = nullptr;
  float* more_ = nullptr;
  void* halves_ = nullptr;
  void* more_halves_ = nullptr;
  double total_ = 0.0;
};

}  // namespace
}  // namespace seq2seq::kernels

int main(int argc, char** argv) {
  using namespace seq2seq::kernels;  // NOLINT: a benchmark's main
  if (argc < 2) {
    for (const int32_t rows : {1, 8, 16, 32, 64, 256}) Bench(rows).Run();
  }
  for (int i = 1; i < argc; ++i) Bench(std::atoi(argv[i])).Run();
  return 0;
}
