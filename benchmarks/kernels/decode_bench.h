// The kernels of a decode step.
#ifndef SEQ2SEQ_BENCHMARKS_KERNELS_DECODE_BENCH_H_
#define SEQ2SEQ_BENCHMARKS_KERNELS_DECODE_BENCH_H_

#include <cstdint>
#include <vector>

#include "benchmarks/kernels/kernel_bench.h"

namespace seq2seq {

// Every stage of a step of `rows` sequences in bfloat16, 512 source tokens and 64 decoder tokens
// each.
std::vector<KernelTime> TimeDecodeKernels(const KernelShape& shape, int32_t rows);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BENCHMARKS_KERNELS_DECODE_BENCH_H_
