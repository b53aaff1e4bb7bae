// cuBLASLt's products, for measurements: every failure ends the program.
#ifndef SEQ2SEQ_BENCHMARKS_KERNELS_TOKEN_PRODUCT_H_
#define SEQ2SEQ_BENCHMARKS_KERNELS_TOKEN_PRODUCT_H_

#include <cuda_runtime.h>

#include <memory>

#include "backend/cuda/token_matmul.h"
#include "backend/kernels/element_type.h"

namespace seq2seq {

class TokenProduct {
 public:
  explicit TokenProduct(kernels::ElementType type);

  // Chooses the fastest algorithm for products like this one. Waits for the device.
  void Tune(const TokenMatmulArgs& args);

  // Queues a product like one that was tuned; may be captured.
  cudaError_t Run(const TokenMatmulArgs& args, cudaStream_t stream);

 private:
  std::unique_ptr<TokenMatmul> matmul_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BENCHMARKS_KERNELS_TOKEN_PRODUCT_H_
