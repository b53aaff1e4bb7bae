// Times every kernel over the shapes of published models.
//
//   kernels_benchmark [rows ...]
//
// Prints a JSON array; benchmarks/kernels/report.py makes tables, shares and a plot of it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "benchmarks/kernels/decode_bench.h"
#include "benchmarks/kernels/kernel_bench.h"

namespace seq2seq {
namespace {

const KernelShape kShapes[] = {
    {"t5-small", 6, 512, 8, 64, 2048, false},
    {"1.5b", 24, 1536, 24, 64, 3584, true},
    {"flan-t5-xl", 24, 2048, 32, 64, 5120, true},
};

void Print(const KernelTime& time, bool first) {
  std::printf(
      "%s  {\"shape\": \"%s\", \"kernel\": \"%s\", \"rows\": %d, \"launches\": %d, "
      "\"microseconds\": %.3f, \"bytes\": %.0f, \"operations\": %.0f}",
      first ? "" : ",\n", time.shape.c_str(), time.kernel.c_str(), time.rows, time.launches,
      time.microseconds, time.work.bytes, time.work.operations);
}

}  // namespace
}  // namespace seq2seq

int main(int argc, char** argv) {
  std::vector<int32_t> rows;
  for (int i = 1; i < argc; ++i) rows.push_back(std::atoi(argv[i]));
  if (rows.empty()) rows = {1, 16, 64, 256};
  bool first = true;
  std::printf("[\n");
  for (const seq2seq::KernelShape& shape : seq2seq::kShapes) {
    for (const int32_t count : rows) {
      for (const seq2seq::KernelTime& time : seq2seq::TimeDecodeKernels(shape, count)) {
        seq2seq::Print(time, first);
        first = false;
      }
    }
  }
  std::printf("\n]\n");
  return 0;
}
