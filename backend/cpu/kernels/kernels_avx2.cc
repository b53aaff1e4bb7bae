// The kernels for machines with AVX2, FMA and F16C; empty where the target architecture has none.
#include "backend/cpu/kernels/kernel_sets.h"

#if defined(__AVX2__)
#include "backend/cpu/kernels/attention_inl.h"
#include "backend/cpu/kernels/elementwise_inl.h"
#include "backend/cpu/kernels/gemm_inl.h"
#endif

namespace seq2seq::cpu {

const KernelTable* Avx2Kernels() {
#if defined(__AVX2__)
  static constexpr KernelTable kTable = {"avx2", Gemm, Attend, RmsNorm, Activate, Softmax};
  return &kTable;
#else
  return nullptr;
#endif
}

}  // namespace seq2seq::cpu
