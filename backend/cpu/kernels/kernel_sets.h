// The tables by instruction set, whether or not this machine can run them. For kernel_table.cc.
#ifndef SEQ2SEQ_BACKEND_CPU_KERNELS_KERNEL_SETS_H_
#define SEQ2SEQ_BACKEND_CPU_KERNELS_KERNEL_SETS_H_

#include "backend/cpu/kernels/kernel_table.h"

namespace seq2seq::cpu {

// Null where the build's target architecture does not know the set.
const KernelTable* PortableKernels();
const KernelTable* Avx2Kernels();
const KernelTable* Avx512Kernels();

}  // namespace seq2seq::cpu

#endif  // SEQ2SEQ_BACKEND_CPU_KERNELS_KERNEL_SETS_H_
