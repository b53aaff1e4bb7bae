// The kernels of an encode, and cuBLASLt's products between them.
#ifndef SEQ2SEQ_BENCHMARKS_KERNELS_ENCODER_BENCH_H_
#define SEQ2SEQ_BENCHMARKS_KERNELS_ENCODER_BENCH_H_

#include <cstdint>
#include <vector>

#include "benchmarks/kernels/kernel_bench.h"

namespace seq2seq {

// Every stage of an encode of `tokens` tokens in bfloat16: sources of 512 tokens, packed. `tokens`
// is a multiple of 512, at most 8192.
std::vector<KernelTime> TimeEncoderKernels(const KernelShape& shape, int32_t tokens);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BENCHMARKS_KERNELS_ENCODER_BENCH_H_
