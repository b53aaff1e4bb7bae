#include "backend/cpu/compute.h"

#include <algorithm>

namespace seq2seq::cpu {
namespace {

// More chunks than threads, so that a thread that lost its core for a while can be helped.
constexpr int32_t kChunksPerThread = 4;
// Norms of fewer floats are done before another thread would have noticed.
constexpr int32_t kSerialNormFloats = 4096;

// Panels are handed out in pairs: few rows are computed two panels at a time.
int32_t PanelChunks(const Compute& compute, int32_t panels) {
  return std::min((panels + 1) / 2, compute.pool->threads() * kChunksPerThread);
}

// The first panel of a chunk.
int32_t ChunkPanel(int32_t panels, int32_t chunks, int32_t chunk) {
  const int64_t pairs = (panels + 1) / 2;
  return std::min(panels, static_cast<int32_t>(pairs * chunk / chunks) * 2);
}

GemmArgs ArgsFor(const Linear& linear, Rows x, int32_t rows, Rows y) {
  GemmArgs args;
  args.x = x.data;
  args.x_stride = x.stride;
  args.rows = rows;
  args.depth = linear.matrix.depth();
  args.panels = linear.matrix.data();
  args.dtype = linear.matrix.dtype();
  args.columns = linear.matrix.outputs();
  args.bias = linear.bias.empty() ? nullptr : linear.bias.data();
  args.y = y.data;
  args.y_stride = y.stride;
  return args;
}

}  // namespace

void RunLinear(const Compute& compute, const Linear& linear, Rows x, int32_t rows, Rows y,
               Store store) {
  const int32_t panels = linear.matrix.panels();
  const int32_t chunks = PanelChunks(compute, panels);
  GemmArgs shared = ArgsFor(linear, x, rows, y);
  shared.accumulate = store == Store::kAdd;
  compute.pool->Run(chunks, [&](int32_t chunk, int32_t) {
    GemmArgs args = shared;
    args.panel_begin = ChunkPanel(panels, chunks, chunk);
    args.panel_end = ChunkPanel(panels, chunks, chunk + 1);
    compute.kernels->gemm(args);
  });
}

void RunNorm(const Compute& compute, const std::vector<float>& weight, float epsilon, Rows x,
             int32_t rows, Rows out) {
  const auto size = static_cast<int32_t>(weight.size());
  const int32_t chunks =
      rows * size <= kSerialNormFloats ? 1 : std::min(rows, compute.pool->threads());
  compute.pool->Run(chunks, [&](int32_t chunk, int32_t) {
    const int32_t end = static_cast<int32_t>(int64_t{rows} * (chunk + 1) / chunks);
    for (auto row = static_cast<int32_t>(int64_t{rows} * chunk / chunks); row < end; ++row) {
      compute.kernels->rms_norm(x.row(row), weight.data(), epsilon, size, out.row(row));
    }
  });
}

void RunFeedForwardIn(const Compute& compute, const FeedForward& ffn, Activation activation, Rows x,
                      int32_t rows, Rows out, Rows up) {
  const bool gated = ffn.gate.matrix.outputs() > 0;
  const Linear& activated = gated ? ffn.gate : ffn.up;
  const int32_t panels = activated.matrix.panels();
  const int32_t chunks = PanelChunks(compute, panels);
  const GemmArgs activated_args = ArgsFor(activated, x, rows, out);
  const GemmArgs up_args = ArgsFor(ffn.up, x, rows, up);
  compute.pool->Run(chunks, [&](int32_t chunk, int32_t) {
    GemmArgs args = activated_args;
    args.panel_begin = ChunkPanel(panels, chunks, chunk);
    args.panel_end = ChunkPanel(panels, chunks, chunk + 1);
    compute.kernels->gemm(args);
    const int32_t first = args.panel_begin * kPanelColumns;
    const int32_t count = std::min(args.panel_end * kPanelColumns, args.columns) - first;
    if (gated) {
      GemmArgs scaled = up_args;
      scaled.panel_begin = args.panel_begin;
      scaled.panel_end = args.panel_end;
      compute.kernels->gemm(scaled);
    }
    for (int32_t row = 0; row < rows; ++row) {
      compute.kernels->activate(activation, out.row(row) + first,
                                gated ? up.row(row) + first : nullptr, count);
    }
  });
}

}  // namespace seq2seq::cpu
