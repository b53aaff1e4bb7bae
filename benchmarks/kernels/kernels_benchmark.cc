// Times every kernel over two shapes of models, and what the device reaches at most.
//
//   kernels_benchmark [rows ...]
//
// Prints a JSON object; benchmarks/kernels/report.py makes tables, shares and a plot of it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "benchmarks/kernels/ceilings.h"
#include "benchmarks/kernels/decode_bench.h"
#include "benchmarks/kernels/encoder_bench.h"
#include "benchmarks/kernels/kernel_bench.h"

namespace seq2seq {
namespace {

// By the names of tools/lib/model_shapes.py.
const KernelShape kShapes[] = {
    {"t5_1_5b", 24, 1536, 24, 64, 3584, true},
    {"t5_small", 6, 512, 8, 64, 2048, false},
};
constexpr int32_t kEncodeTokens[] = {512, 2048, 8192};

class Printer {
 public:
  void Print(const std::vector<KernelTime>& times) {
    for (const KernelTime& time : times) {
      std::printf(
          "%s    {\"shape\": \"%s\", \"pass\": \"%s\", \"kernel\": \"%s\", \"rows\": %d, "
          "\"launches\": %d, \"microseconds\": %.3f, \"bytes\": %.0f, \"operations\": %.0f}",
          separator_, time.shape.c_str(), time.pass.c_str(), time.kernel.c_str(), time.rows,
          time.launches, time.microseconds, time.work.bytes, time.work.operations);
      separator_ = ",\n";
    }
    std::fflush(stdout);
  }

 private:
  const char* separator_ = "";
};

}  // namespace
}  // namespace seq2seq

int main(int argc, char** argv) {
  std::vector<int32_t> rows;
  for (int i = 1; i < argc; ++i) rows.push_back(std::atoi(argv[i]));
  if (rows.empty()) rows = {1, 16, 64, 256};
  const seq2seq::Ceilings ceilings = seq2seq::MeasureCeilings();
  std::printf(
      "{\n  \"ceilings\": {\"bytes_per_second\": %.5g, \"operations_per_second\": %.5g},\n"
      "  \"kernels\": [\n",
      ceilings.bytes_per_second, ceilings.operations_per_second);
  seq2seq::Printer printer;
  for (const seq2seq::KernelShape& shape : seq2seq::kShapes) {
    for (const int32_t count : rows) printer.Print(seq2seq::TimeDecodeKernels(shape, count));
    for (const int32_t tokens : seq2seq::kEncodeTokens) {
      printer.Print(seq2seq::TimeEncoderKernels(shape, tokens));
    }
  }
  std::printf("\n  ]\n}\n");
  return 0;
}
