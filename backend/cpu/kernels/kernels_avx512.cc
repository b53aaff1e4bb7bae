// The kernels for machines with AVX-512 (F, BW, DQ, VL); empty where the target architecture has
// none.
#include "backend/cpu/kernels/kernel_sets.h"

#if defined(__AVX512F__)
#include "backend/cpu/kernels/attention_inl.h"
#include "backend/cpu/kernels/elementwise_inl.h"
#include "backend/cpu/kernels/gemm_inl.h"
#endif

namespace seq2seq::cpu {

const KernelTable* Avx512Kernels() {
#if defined(__AVX512F__)
  static constexpr KernelTable kTable = {"avx512", Gemm, Attend, RmsNorm, Activate, Softmax};
  return &kTable;
#else
  return nullptr;
#endif
}

}  // namespace seq2seq::cpu
