#include "benchmarks/kernels/token_product.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "backend/core/status.h"
#include "backend/cuda/cublas_lt.h"
#include "benchmarks/kernels/kernel_bench.h"

namespace seq2seq {
namespace {

void Check(const Status& status) {
  if (status) return;
  std::fprintf(stderr, "product: %s\n", status.error().message.c_str());
  std::exit(1);
}

template <typename T>
T Take(Result<T> result) {
  Check(result ? OkStatus() : Status(std::unexpected(result.error())));
  return std::move(*result);
}

}  // namespace

TokenProduct::TokenProduct(kernels::ElementType type)
    : matmul_(Take(TokenMatmul::Create(Take(CublasLt::Load()), type))) {}

void TokenProduct::Tune(const TokenMatmulArgs& args) {
  cudaStream_t stream = nullptr;
  CheckCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  Check(matmul_->Tune(args, stream));
  // What the first run of a shape sets up is not for a capture.
  Check(matmul_->Run(args, stream));
  CheckCuda(cudaStreamSynchronize(stream), "product");
  CheckCuda(cudaStreamDestroy(stream), "stream");
}

cudaError_t TokenProduct::Run(const TokenMatmulArgs& args, cudaStream_t stream) {
  Check(matmul_->Run(args, stream));
  return cudaSuccess;
}

}  // namespace seq2seq
