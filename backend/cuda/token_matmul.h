// Large products of the encoder, through cuBLASLt.
#ifndef SEQ2SEQ_BACKEND_CUDA_TOKEN_MATMUL_H_
#define SEQ2SEQ_BACKEND_CUDA_TOKEN_MATMUL_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "backend/core/status.h"
#include "backend/cuda/cublas_lt.h"
#include "backend/cuda/device_buffer.h"
#include "backend/kernels/element_type.h"

namespace seq2seq {

struct TokenMatmulArgs {
  const void* weight = nullptr;  // [outputs][inputs], the model's number format
  const void* input = nullptr;   // [tokens][inputs], likewise
  const void* bias = nullptr;    // [outputs], the output's number format, or null
  void* output = nullptr;        // [tokens][outputs]
  int32_t outputs = 0;
  int32_t inputs = 0;
  int32_t tokens = 0;
  // False: output = product, in the model's number format. True: output += product, in float32.
  bool accumulate = false;
};

// output[token][out] = sum over in of weight[out][in] input[token][in] + bias[out], sums in float32
// (never TF32). One thread; remembers the algorithm it chose for a shape.
class TokenMatmul {
 public:
  [[nodiscard]] static Result<std::unique_ptr<TokenMatmul>> Create(
      std::shared_ptr<const CublasLt> lt, kernels::ElementType type);
  ~TokenMatmul();
  TokenMatmul(const TokenMatmul&) = delete;
  TokenMatmul& operator=(const TokenMatmul&) = delete;

  // Times what cuBLASLt proposes for products like `args`, on its own operands, and remembers the
  // best for batches of up to so many tokens. Proposals that fail are left out; it is an error if
  // all do. For load time: waits for `stream`.
  [[nodiscard]] Status Tune(const TokenMatmulArgs& args, cudaStream_t stream);

  // Queues the product on `stream`. Without Tune() as cuBLASLt's heuristic says.
  [[nodiscard]] Status Run(const TokenMatmulArgs& args, cudaStream_t stream);

 private:
  class Plan;  // layouts and algorithm of one shape
  // Outputs, inputs, accumulate, whether there is a bias.
  using Kind = std::tuple<int32_t, int32_t, bool, bool>;
  using Key = std::pair<Kind, int32_t>;  // and tokens
  struct Tuned {
    int32_t tokens = 0;
    cublaslt::Algorithm algorithm;
  };

  TokenMatmul(std::shared_ptr<const CublasLt> lt, kernels::ElementType type);
  static Kind KindOf(const TokenMatmulArgs& args);
  Status MakeDescription(cublaslt::Descriptor* description);
  Result<cublaslt::Descriptor> DescriptionFor(const TokenMatmulArgs& args) const;
  Result<std::unique_ptr<Plan>> MakePlan(const TokenMatmulArgs& args) const;
  Result<std::vector<cublaslt::Heuristic>> Propose(const TokenMatmulArgs& args, const Plan& plan,
                                                   int most) const;
  Result<bool> UseTuned(const TokenMatmulArgs& args, Plan* plan) const;
  Result<const Plan*> PlanFor(const TokenMatmulArgs& args);
  Status RunPlan(const TokenMatmulArgs& args, const Plan& plan, cudaStream_t stream) const;
  Result<float> TimePlan(const TokenMatmulArgs& args, const Plan& plan, cudaStream_t stream) const;

  std::shared_ptr<const CublasLt> lt_;
  kernels::ElementType type_;
  cublaslt::Handle handle_ = nullptr;
  cublaslt::Descriptor matmul_ = nullptr;
  cublaslt::Descriptor biased_ = nullptr;  // names the bias of the product that is being queued
  cublaslt::Descriptor preference_ = nullptr;
  DeviceBuffer workspace_;
  std::map<Key, std::unique_ptr<Plan>> plans_;
  std::map<Kind, std::vector<Tuned>> tuned_;  // by tokens
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CUDA_TOKEN_MATMUL_H_
