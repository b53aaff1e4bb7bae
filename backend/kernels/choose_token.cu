#include "backend/kernels/choose_token.h"

#include "backend/kernels/device_math.cuh"
#include "backend/kernels/projection_epilogue.cuh"
#include "backend/kernels/row_sampler.cuh"

namespace seq2seq::kernels {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;

// The row's parts as one, in every thread. Summed in the same order whatever the batch.
__device__ LogitsPart ReduceParts(const LogitsPart* parts, int tiles, LogitsPart* shared) {
  LogitsPart part = EmptyPart();
  for (int tile = threadIdx.x; tile < tiles; tile += kThreads) part = MergeParts(part, parts[tile]);
  for (int mask = 1; mask < 32; mask *= 2) part = MergeParts(part, ShufflePart(part, mask));
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = part;
  __syncthreads();
  part = shared[0];
  for (int w = 1; w < kWarps; ++w) part = MergeParts(part, shared[w]);
  return part;
}

__device__ bool IsEos(const ChooseTokenArgs& args, int32_t token) {
  for (int i = 0; i < args.eos_count; ++i) {
    if (args.eos_tokens[i] == token) return true;
  }
  return false;
}

__device__ float LogProbability(const ChooseTokenArgs& args, const LogitsPart& part, float logit) {
  if (part.max == -INFINITY) return -logf(static_cast<float>(args.vocabulary));
  return logit - part.max - logf(part.sum_exp);
}

// Moves the slot on and reports the row.
__device__ void Finish(const ChooseTokenArgs& args, const RowInfo& info, int32_t token,
                       float logprob, RowOutcome* outcome) {
  SlotState& state = args.states[info.slot];
  state.position += max(state.pending_count, 1);
  state.pending_count = 0;
  state.generated += 1;
  state.next_token = token;
  state.score += logprob;
  RowStop stop = RowStop::kNone;
  if (IsEos(args, token)) {
    stop = RowStop::kEos;
  } else if (state.generated >= state.max_new_tokens) {
    stop = RowStop::kLength;
  }
  state.ended = stop == RowStop::kNone ? 0 : 1;
  RowOutcome result;
  result.slot = info.slot;
  result.count = 1;
  result.token = token;
  result.stop = stop;
  result.logprob = state.return_logprobs != 0 ? logprob : 0.0F;
  result.score = state.score;
  *outcome = result;
}

__global__ void __launch_bounds__(kThreads) ChooseTokensKernel(ChooseTokenArgs args) {
  __shared__ LogitsPart shared_parts[kWarps];
  __shared__ RowSampler<kThreads>::Shared sampler_shared;
  const int row = blockIdx.x;
  WaitForEarlierKernels();
  const StepHeader header = *args.header;
  const RowInfo info = args.row_infos[row];
  if (row >= header.rows || header.pass != header.passes - 1) return;
  RowOutcome* outcome = args.outcomes + int64_t{*args.ring} * args.outcome_stride + row;
  if ((info.flags & RowInfo::kChoose) == 0) {
    if (threadIdx.x == 0) {
      RowOutcome nothing;
      nothing.slot = info.slot;
      *outcome = nothing;
    }
    return;
  }
  const LogitsPart part =
      ReduceParts(args.parts + int64_t{row} * args.tiles, args.tiles, shared_parts);
  int32_t token = part.best_index < args.vocabulary ? part.best_index : 0;
  float logit = part.best;
  if ((info.flags & RowInfo::kSample) != 0 && part.best > -INFINITY) {
    SamplerRow sampler_row;
    sampler_row.logits = args.logits + int64_t{row} * args.vocabulary;
    sampler_row.vocabulary = args.vocabulary;
    sampler_row.banned = args.eos_tokens;
    sampler_row.banned_count = (info.flags & RowInfo::kBanEos) != 0 ? args.eos_count : 0;
    sampler_row.largest = part.best;
    sampler_row.state = args.states[info.slot];
    token = RowSampler<kThreads>(sampler_row, &sampler_shared).Draw();
    logit = sampler_row.logits[token];
  }
  __syncthreads();  // every thread has read the slot's state
  if (threadIdx.x == 0) Finish(args, info, token, LogProbability(args, part, logit), outcome);
}

}  // namespace

cudaError_t LaunchChooseTokens(const ChooseTokenArgs& args, int32_t bucket,
                               const LaunchContext& context) {
  return Launch(ChooseTokensKernel, {dim3(bucket), dim3(kThreads)}, context, args);
}

}  // namespace seq2seq::kernels
