#include "backend/cpu/kernels/kernel_table.h"

#include "backend/cpu/kernels/kernel_sets.h"

namespace seq2seq::cpu {
namespace {

#if defined(__x86_64__)
bool MachineRuns(KernelLevel level) {
  switch (level) {
    case KernelLevel::kPortable:
      return true;
    case KernelLevel::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("f16c");
    case KernelLevel::kAvx512:
      return MachineRuns(KernelLevel::kAvx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl");
  }
  return false;
}
#else
bool MachineRuns(KernelLevel level) { return level == KernelLevel::kPortable; }
#endif

}  // namespace

KernelLevel BestKernelLevel() {
  for (KernelLevel level : {KernelLevel::kAvx512, KernelLevel::kAvx2}) {
    if (FindKernels(level) != nullptr) return level;
  }
  return KernelLevel::kPortable;
}

const KernelTable* FindKernels(KernelLevel level) {
  if (!MachineRuns(level)) return nullptr;
  switch (level) {
    case KernelLevel::kPortable:
      return PortableKernels();
    case KernelLevel::kAvx2:
      return Avx2Kernels();
    case KernelLevel::kAvx512:
      return Avx512Kernels();
  }
  return nullptr;
}

}  // namespace seq2seq::cpu
