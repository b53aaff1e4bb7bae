// The matrix kernel beside OpenBLAS, on one thread each, for the products of T5-small: GFLOP/s,
// medians of interleaved rounds. It is why the CPU engine multiplies with a kernel of its own.
//
//   gemm_benchmark [rounds]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "backend/core/dtype.h"
#include "backend/cpu/kernels/kernel_table.h"
#include "cblas.h"

namespace seq2seq::cpu {
namespace {

struct Shape {
  int32_t outputs;
  int32_t depth;
};

constexpr Shape kShapes[] = {{512, 512}, {2048, 512}, {512, 2048}, {32128, 512}};
constexpr int32_t kRows[] = {1, 8, 32, 128, 512};
constexpr double kSecondsPerSample = 0.05;

// 64-byte aligned, as the engine keeps its weights.
class Floats {
 public:
  explicit Floats(size_t size)
      : data_(static_cast<float*>(std::aligned_alloc(64, (size * 4 + 63) / 64 * 64)), std::free) {
    std::minstd_rand random(static_cast<uint32_t>(size));
    std::uniform_real_distribution<float> values(-1.0F, 1.0F);
    for (size_t i = 0; i < size; ++i) data_.get()[i] = values(random);
  }
  float* data() { return data_.get(); }

 private:
  std::unique_ptr<float, void (*)(void*)> data_;
};

// Seconds that one call takes, over enough calls to be measured.
double SecondsPerCall(const std::function<void()>& call) {
  const auto begin = std::chrono::steady_clock::now();
  int calls = 0;
  double seconds = 0.0;
  do {
    call();
    ++calls;
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  } while (seconds < kSecondsPerSample);
  return seconds / calls;
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void Compare(const KernelTable& kernels, Shape shape, int32_t rows, int rounds) {
  const auto outputs = static_cast<size_t>(shape.outputs);
  const auto depth = static_cast<size_t>(shape.depth);
  // The stride that the engine gives activations: rows of a tile don't compete for cache sets.
  const size_t x_stride = depth + kLaneFloats;
  Floats x(rows * x_stride);
  Floats weights(outputs * depth);  // random: [outputs, depth] to one, panels to the other
  Floats y(rows * outputs);
  const GemmArgs args = {.x = x.data(),
                         .x_stride = x_stride,
                         .rows = rows,
                         .depth = shape.depth,
                         .panels = reinterpret_cast<const std::byte*>(weights.data()),
                         .dtype = DType::kFloat32,
                         .panel_begin = 0,
                         .panel_end = shape.outputs / kPanelColumns,
                         .columns = shape.outputs,
                         .y = y.data(),
                         .y_stride = outputs};
  std::vector<double> ours;
  std::vector<double> theirs;
  for (int round = 0; round < rounds; ++round) {
    ours.push_back(SecondsPerCall([&] { kernels.gemm(args); }));
    theirs.push_back(SecondsPerCall([&] {
      scipy_cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, shape.outputs, shape.depth,
                        1.0F, x.data(), static_cast<int>(x_stride), weights.data(), shape.depth,
                        0.0F, y.data(), shape.outputs);
    }));
  }
  const double gflop = 2e-9 * rows * static_cast<double>(outputs * depth);
  const double own = Median(ours);
  const double blas = Median(theirs);
  std::printf("| %5d | %5d x %4d | %8.1f | %8.1f | %5.2fx |\n", rows, shape.outputs, shape.depth,
              gflop / own, gflop / blas, blas / own);
}

}  // namespace
}  // namespace seq2seq::cpu

int main(int argc, char** argv) {
  using namespace seq2seq::cpu;
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 7;
  scipy_openblas_set_num_threads(1);
  const KernelTable* kernels = FindKernels(BestKernelLevel());
  std::printf("kernel set: %s; %s\n\n", kernels->name, scipy_openblas_get_config());
  std::printf("|  rows | outputs x in |  GFLOP/s | OpenBLAS |  ratio |\n");
  std::printf("|------:|-------------:|---------:|---------:|-------:|\n");
  for (const Shape shape : kShapes) {
    for (const int32_t rows : kRows) Compare(*kernels, shape, rows, rounds);
  }
  return 0;
}
