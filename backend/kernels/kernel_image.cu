#include "backend/kernels/kernel_image.h"

namespace seq2seq::kernels {
namespace {

constexpr int kArchitectures[] = {__CUDA_ARCH_LIST__};

__global__ void ProbeKernel() {}

}  // namespace

cudaError_t CheckKernelImage() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, ProbeKernel);
}

std::span<const int> KernelArchitectures() { return kArchitectures; }

}  // namespace seq2seq::kernels
