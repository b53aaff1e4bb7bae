#include "backend/cuda/token_matmul.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "backend/core/format.h"
#include "backend/cuda/cuda_event.h"
#include "backend/cuda/cuda_status.h"

namespace seq2seq {
namespace {

using kernels::ElementType;

// Values of cuBLAS's and CUDA's enumerations.
constexpr int kFloat32 = 0;          // CUDA_R_32F
constexpr int kFloat16 = 2;          // CUDA_R_16F
constexpr int kBFloat16 = 14;        // CUDA_R_16BF
constexpr int kComputeFloat32 = 68;  // CUBLAS_COMPUTE_32F
constexpr int32_t kTransposed = 1;   // CUBLAS_OP_T
constexpr int kTransposeA = 3;       // CUBLASLT_MATMUL_DESC_TRANSA
constexpr int kEpilogue = 7;         // CUBLASLT_MATMUL_DESC_EPILOGUE
constexpr int kBiasPointer = 8;      // CUBLASLT_MATMUL_DESC_BIAS_POINTER
constexpr int32_t kAddBias = 4;      // CUBLASLT_EPILOGUE_BIAS
constexpr int kMaxWorkspace = 1;     // CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES

constexpr cublaslt::Code kAllocationFailed = 3;  // CUBLAS_STATUS_ALLOC_FAILED

constexpr size_t kWorkspaceBytes = size_t{32} << 20;
// Shapes remembered: a few per number of tokens in a batch.
constexpr size_t kMaxPlans = 4096;
// Tuning: algorithms that are timed, how often, and the share of the best time so far that a later
// one must come below; the heuristic has its reasons for the order.
constexpr int kProposals = 8;
constexpr int kTimedRounds = 3;
constexpr int kTimedRuns = 3;
constexpr float kClearlyBetter = 0.99F;

int TypeCode(ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
      return kFloat32;
    case ElementType::kFloat16:
      return kFloat16;
    case ElementType::kBfloat16:
      return kBFloat16;
  }
  return kFloat32;
}

Status LtStatus(cublaslt::Code code, const char* what) {
  if (code == 0) return OkStatus();
  if (code == kAllocationFailed) return OutOfMemory(Format("cuBLASLt: {}", what));
  return Internal(Format("cuBLASLt: {} failed with status {}", what, code));
}

}  // namespace

class TokenMatmul::Plan {
 public:
  explicit Plan(std::shared_ptr<const CublasLt> lt) : lt_(std::move(lt)) {}
  ~Plan() {
    for (const cublaslt::Descriptor layout : {weight, input, output}) {
      if (layout != nullptr) lt_->layout_destroy(layout);
    }
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  cublaslt::Descriptor weight = nullptr;
  cublaslt::Descriptor input = nullptr;
  cublaslt::Descriptor output = nullptr;
  cublaslt::Algorithm algorithm{};

 private:
  std::shared_ptr<const CublasLt> lt_;
};

TokenMatmul::TokenMatmul(std::shared_ptr<const CublasLt> lt, ElementType type)
    : lt_(std::move(lt)), type_(type) {}

Result<std::unique_ptr<TokenMatmul>> TokenMatmul::Create(std::shared_ptr<const CublasLt> lt,
                                                         ElementType type) {
  std::unique_ptr<TokenMatmul> matmul(new TokenMatmul(std::move(lt), type));
  const CublasLt& calls = *matmul->lt_;
  SEQ2SEQ_RETURN_IF_ERROR(LtStatus(calls.create(&matmul->handle_), "cublasLtCreate"));
  SEQ2SEQ_RETURN_IF_ERROR(matmul->MakeDescription(&matmul->matmul_));
  SEQ2SEQ_RETURN_IF_ERROR(matmul->MakeDescription(&matmul->biased_));
  SEQ2SEQ_RETURN_IF_ERROR(LtStatus(
      calls.matmul_desc_set_attribute(matmul->biased_, kEpilogue, &kAddBias, sizeof(kAddBias)),
      "cublasLtMatmulDescSetAttribute"));
  SEQ2SEQ_RETURN_IF_ERROR(
      LtStatus(calls.preference_create(&matmul->preference_), "cublasLtMatmulPreferenceCreate"));
  SEQ2SEQ_RETURN_IF_ERROR(
      LtStatus(calls.preference_set_attribute(matmul->preference_, kMaxWorkspace, &kWorkspaceBytes,
                                              sizeof(kWorkspaceBytes)),
               "cublasLtMatmulPreferenceSetAttribute"));
  SEQ2SEQ_ASSIGN_OR_RETURN(matmul->workspace_, DeviceBuffer::Allocate(kWorkspaceBytes));
  return matmul;
}

TokenMatmul::~TokenMatmul() {
  plans_.clear();
  if (preference_ != nullptr) lt_->preference_destroy(preference_);
  for (const cublaslt::Descriptor description : {matmul_, biased_}) {
    if (description != nullptr) lt_->matmul_desc_destroy(description);
  }
  if (handle_ != nullptr) lt_->destroy(handle_);
}

TokenMatmul::Kind TokenMatmul::KindOf(const TokenMatmulArgs& args) {
  return {args.outputs, args.inputs, args.accumulate, args.bias != nullptr};
}

Status TokenMatmul::MakeDescription(cublaslt::Descriptor* description) {
  SEQ2SEQ_RETURN_IF_ERROR(LtStatus(lt_->matmul_desc_create(description, kComputeFloat32, kFloat32),
                                   "cublasLtMatmulDescCreate"));
  return LtStatus(
      lt_->matmul_desc_set_attribute(*description, kTransposeA, &kTransposed, sizeof(kTransposed)),
      "cublasLtMatmulDescSetAttribute");
}

// The bias is part of a product's description; its number format is the output's unless said
// otherwise.
Result<cublaslt::Descriptor> TokenMatmul::DescriptionFor(const TokenMatmulArgs& args) const {
  if (args.bias == nullptr) return matmul_;
  SEQ2SEQ_RETURN_IF_ERROR(
      LtStatus(lt_->matmul_desc_set_attribute(biased_, kBiasPointer, &args.bias, sizeof(args.bias)),
               "cublasLtMatmulDescSetAttribute"));
  return biased_;
}

// Row-major [tokens][n] is column-major [n][tokens], so the weight is the transposed left operand.
Result<std::unique_ptr<TokenMatmul::Plan>> TokenMatmul::MakePlan(
    const TokenMatmulArgs& args) const {
  auto plan = std::make_unique<Plan>(lt_);
  const int type = TypeCode(type_);
  SEQ2SEQ_RETURN_IF_ERROR(
      LtStatus(lt_->layout_create(&plan->weight, type, args.inputs, args.outputs, args.inputs),
               "cublasLtMatrixLayoutCreate"));
  SEQ2SEQ_RETURN_IF_ERROR(
      LtStatus(lt_->layout_create(&plan->input, type, args.inputs, args.tokens, args.inputs),
               "cublasLtMatrixLayoutCreate"));
  SEQ2SEQ_RETURN_IF_ERROR(
      LtStatus(lt_->layout_create(&plan->output, args.accumulate ? kFloat32 : type, args.outputs,
                                  args.tokens, args.outputs),
               "cublasLtMatrixLayoutCreate"));
  return plan;
}

Result<std::vector<cublaslt::Heuristic>> TokenMatmul::Propose(const TokenMatmulArgs& args,
                                                              const Plan& plan, int most) const {
  SEQ2SEQ_ASSIGN_OR_RETURN(const cublaslt::Descriptor matmul, DescriptionFor(args));
  std::vector<cublaslt::Heuristic> proposals(most);
  int found = 0;
  SEQ2SEQ_RETURN_IF_ERROR(
      LtStatus(lt_->get_heuristic(handle_, matmul, plan.weight, plan.input, plan.output,
                                  plan.output, preference_, most, proposals.data(), &found),
               "cublasLtMatmulAlgoGetHeuristic"));
  if (found == 0) return Internal("cuBLASLt has no algorithm for a product of the encoder");
  proposals.resize(found);
  return proposals;
}

// An algorithm fits batches of other sizes too, as a rule.
Result<bool> TokenMatmul::UseTuned(const TokenMatmulArgs& args, Plan* plan) const {
  const auto found = tuned_.find(KindOf(args));
  if (found == tuned_.end()) return false;
  SEQ2SEQ_ASSIGN_OR_RETURN(const cublaslt::Descriptor matmul, DescriptionFor(args));
  const std::vector<Tuned>& sizes = found->second;
  auto size = std::ranges::find_if(sizes, [&](const Tuned& t) { return t.tokens >= args.tokens; });
  if (size == sizes.end()) --size;
  cublaslt::Heuristic checked{};
  const cublaslt::Code code =
      lt_->algorithm_check(handle_, matmul, plan->weight, plan->input, plan->output, plan->output,
                           &size->algorithm, &checked);
  if (code != 0 || checked.workspace_bytes > kWorkspaceBytes) return false;
  plan->algorithm = size->algorithm;
  return true;
}

Result<const TokenMatmul::Plan*> TokenMatmul::PlanFor(const TokenMatmulArgs& args) {
  const Key key{KindOf(args), args.tokens};
  if (const auto found = plans_.find(key); found != plans_.end()) return found->second.get();
  if (plans_.size() >= kMaxPlans) plans_.clear();
  SEQ2SEQ_ASSIGN_OR_RETURN(std::unique_ptr<Plan> plan, MakePlan(args));
  SEQ2SEQ_ASSIGN_OR_RETURN(const bool tuned, UseTuned(args, plan.get()));
  if (!tuned) {
    SEQ2SEQ_ASSIGN_OR_RETURN(const std::vector<cublaslt::Heuristic> proposals,
                             Propose(args, *plan, 1));
    plan->algorithm = proposals[0].algorithm;
  }
  return plans_.emplace(key, std::move(plan)).first->second.get();
}

Status TokenMatmul::RunPlan(const TokenMatmulArgs& args, const Plan& plan,
                            cudaStream_t stream) const {
  SEQ2SEQ_ASSIGN_OR_RETURN(const cublaslt::Descriptor matmul, DescriptionFor(args));
  const float alpha = 1.0F;
  const float beta = args.accumulate ? 1.0F : 0.0F;
  return LtStatus(lt_->matmul(handle_, matmul, &alpha, args.weight, plan.weight, args.input,
                              plan.input, &beta, args.output, plan.output, args.output, plan.output,
                              &plan.algorithm, workspace_.as(), kWorkspaceBytes, stream),
                  "cublasLtMatmul");
}

// Milliseconds: the best of some, after one that loads the kernel.
Result<float> TokenMatmul::TimePlan(const TokenMatmulArgs& args, const Plan& plan,
                                    cudaStream_t stream) const {
  SEQ2SEQ_ASSIGN_OR_RETURN(const CudaEvent begin, CudaEvent::CreateTimed());
  SEQ2SEQ_ASSIGN_OR_RETURN(const CudaEvent end, CudaEvent::CreateTimed());
  float best = std::numeric_limits<float>::infinity();
  SEQ2SEQ_RETURN_IF_ERROR(RunPlan(args, plan, stream));
  for (int round = 0; round < kTimedRounds; ++round) {
    SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaEventRecord(begin.get(), stream));
    for (int i = 0; i < kTimedRuns; ++i) SEQ2SEQ_RETURN_IF_ERROR(RunPlan(args, plan, stream));
    SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaEventRecord(end.get(), stream));
    SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(end.get()));
    float milliseconds = 0.0F;
    SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()));
    best = std::min(best, milliseconds);
  }
  return best;
}

Status TokenMatmul::Tune(const TokenMatmulArgs& args, cudaStream_t stream) {
  SEQ2SEQ_ASSIGN_OR_RETURN(const std::unique_ptr<Plan> plan, MakePlan(args));
  SEQ2SEQ_ASSIGN_OR_RETURN(const std::vector<cublaslt::Heuristic> proposals,
                           Propose(args, *plan, kProposals));
  Tuned best{args.tokens, {}};
  float best_milliseconds = std::numeric_limits<float>::infinity();
  Status failure;
  for (const cublaslt::Heuristic& proposal : proposals) {
    plan->algorithm = proposal.algorithm;
    const Result<float> milliseconds = TimePlan(args, *plan, stream);
    if (!milliseconds) {
      failure = std::unexpected(milliseconds.error());
      // Whether it is the proposal's failure alone.
      SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream));
      continue;
    }
    if (*milliseconds >= best_milliseconds * kClearlyBetter) continue;
    best_milliseconds = *milliseconds;
    best.algorithm = proposal.algorithm;
  }
  if (std::isinf(best_milliseconds)) return failure;
  std::vector<Tuned>& sizes = tuned_[KindOf(args)];
  sizes.push_back(best);
  std::ranges::sort(sizes, {}, &Tuned::tokens);
  return OkStatus();
}

Status TokenMatmul::Run(const TokenMatmulArgs& args, cudaStream_t stream) {
  SEQ2SEQ_ASSIGN_OR_RETURN(const Plan* plan, PlanFor(args));
  return RunPlan(args, *plan, stream);
}

}  // namespace seq2seq
