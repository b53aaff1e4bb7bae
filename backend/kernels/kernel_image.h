// Which devices this build has kernels for.
#ifndef SEQ2SEQ_BACKEND_KERNELS_KERNEL_IMAGE_H_
#define SEQ2SEQ_BACKEND_KERNELS_KERNEL_IMAGE_H_

#include <cuda_runtime.h>

#include <span>

namespace seq2seq::kernels {

// The error that launches on the current device would have if this build had nothing for it.
cudaError_t CheckKernelImage();

// Compute capabilities that kernels were compiled for, times 100 (8.9 is 890), ascending.
std::span<const int> KernelArchitectures();

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_KERNEL_IMAGE_H_
