// The kernels in what every machine of the target architecture runs.
#include "backend/cpu/kernels/attention_inl.h"
#include "backend/cpu/kernels/elementwise_inl.h"
#include "backend/cpu/kernels/gemm_inl.h"
#include "backend/cpu/kernels/kernel_sets.h"

namespace seq2seq::cpu {

const KernelTable* PortableKernels() {
  static constexpr KernelTable kTable = {"portable", Gemm, Attend, RmsNorm, Activate, Softmax};
  return &kTable;
}

}  // namespace seq2seq::cpu
