#include "backend/kernels/choose_token.h"

#include "backend/kernels/begin_row.cuh"
#include "backend/kernels/device_math.cuh"
#include "backend/kernels/projection_epilogue.cuh"
#include "backend/kernels/row_sampler.cuh"

namespace seq2seq::kernels {
namespace {

// A row's parts as one. Every thread has a share of the tiles and sums it in the same order,
// whatever the batch. Read(), Share(), a barrier, Merge().
class PartsReduction {
 public:
  struct Shared {
    uint32_t best[kRowWarps];
    int32_t best_index[kRowWarps];
    uint32_t max[kRowWarps];
  };

  __device__ __forceinline__ void Read(const LogitsPart* parts, int tiles) {
    for (int first = threadIdx.x; first < tiles; first += kRowThreads * kReads) {
      LogitsPart read[kReads];
#pragma unroll
      for (int i = 0; i < kReads; ++i) {
        const int tile = first + i * kRowThreads;
        const uint4 bits = LoadFresh(reinterpret_cast<const uint4*>(parts) + min(tile, tiles - 1));
        read[i] = {__uint_as_float(bits.x), static_cast<int32_t>(bits.y), __uint_as_float(bits.z),
                   tile < tiles ? __uint_as_float(bits.w) : 0.0F};
      }
      Add(read);
    }
  }

  __device__ __forceinline__ void Share(Shared* shared) const {
    const Reduced own = Reduce(EqualKey(part_.best), part_.best_index, EqualKey(part_.max));
    if (threadIdx.x % 32 != 0) return;
    const int warp = threadIdx.x / 32;
    shared->best[warp] = own.best;
    shared->best_index[warp] = own.best_index;
    shared->max[warp] = own.max;
  }

  __device__ __forceinline__ void Merge(const Shared& shared) {
    const int warp = threadIdx.x % kRowWarps;
    const Reduced all = Reduce(shared.best[warp], shared.best_index[warp], shared.max[warp]);
    const float max = FromOrderedKey(all.max);
    part_ = {FromOrderedKey(all.best), all.best_index, max, SumTo(max)};
  }

  // Of the whole row after Merge(), but for sum_exp, which is this thread's share.
  __device__ __forceinline__ const LogitsPart& part() const { return part_; }

 private:
  static constexpr int kReads = 4;  // in flight at a time

  struct Reduced {
    uint32_t best;
    int32_t best_index;
    uint32_t max;
  };

  // Zeros of both signs are equal logits.
  __device__ __forceinline__ static uint32_t EqualKey(float value) {
    return OrderedKey(value + 0.0F);
  }

  __device__ __forceinline__ static Reduced Reduce(uint32_t best, int32_t index, uint32_t max) {
    const uint32_t largest = __reduce_max_sync(kFullWarp, best);
    return {largest, __reduce_min_sync(kFullWarp, best == largest ? index : INT32_MAX),
            __reduce_max_sync(kFullWarp, max)};
  }

  // The sum of exponentials as if `max` were the largest logit.
  __device__ __forceinline__ float SumTo(float max) const {
    return part_.sum_exp > 0.0F ? part_.sum_exp * expf(part_.max - max) : 0.0F;
  }

  // Parts whose indices are above those before.
  __device__ __forceinline__ void Add(const LogitsPart (&read)[kReads]) {
    float max = part_.max;
#pragma unroll
    for (int i = 0; i < kReads; ++i) {
      max = fmaxf(max, read[i].max);
      if (read[i].best > part_.best) {
        part_.best = read[i].best;
        part_.best_index = read[i].best_index;
      }
    }
    float sum = SumTo(max);
#pragma unroll
    for (int i = 0; i < kReads; ++i) {
      sum += read[i].sum_exp > 0.0F ? read[i].sum_exp * expf(read[i].max - max) : 0.0F;
    }
    part_.max = max;
    part_.sum_exp = sum;
  }

  LogitsPart part_ = {-INFINITY, INT32_MAX, -INFINITY, 0.0F};  // of no tile
};

struct Shared {
  PartsReduction::Shared parts;
  float sums_exp[kRowWarps];
  float squares[kRowWarps];
  SlotState state;  // before this step
  RowSampler<kRowThreads>::Shared sampler;
};

__device__ __forceinline__ void CopyState(const SlotState& state, SlotState* copy) {
  constexpr int kWords = sizeof(SlotState) / sizeof(uint32_t);
  if (threadIdx.x >= kWords) return;
  reinterpret_cast<uint32_t*>(copy)[threadIdx.x] =
      reinterpret_cast<const uint32_t*>(&state)[threadIdx.x];
}

// The row's log-probability of a logit; part: but for its sum, which is in shared memory.
__device__ float LogProbability(const ChooseTokenArgs& args, const LogitsPart& part, float logit,
                                const float (&sums_exp)[kRowWarps]) {
  if (part.max == -INFINITY) return -logf(static_cast<float>(args.vocabulary));
  float sum = 0.0F;
#pragma unroll
  for (int w = 0; w < kRowWarps; ++w) sum += sums_exp[w];
  return logit - part.max - logf(sum);
}

// Moves a slot on by a token, and returns what the step says of its row.
__device__ RowOutcome MoveOn(int32_t slot, int32_t token, float logprob, bool eos,
                             SlotState* state) {
  state->position += max(state->pending_count, 1);
  state->pending_count = 0;
  state->generated += 1;
  state->next_token = token;
  state->score += logprob;
  RowStop stop = RowStop::kNone;
  if (eos) {
    stop = RowStop::kEos;
  } else if (state->generated >= state->max_new_tokens) {
    stop = RowStop::kLength;
  }
  state->ended = stop == RowStop::kNone ? 0 : 1;
  return {slot, 1, token, stop, state->return_logprobs != 0 ? logprob : 0.0F, state->score};
}

struct Choice {
  int32_t token = 0;
  float logit = 0.0F;
};

// Draws the row's token, whose best logit is `best`; all threads of the block. Not inlined: greedy
// rows' code is contiguous without it, and half of their time is its way to the instruction cache.
__device__ __noinline__ int32_t Draw(const ChooseTokenArgs& args, int row, int32_t flags,
                                     float best, Shared* shared) {
  SamplerRow sampler_row;
  sampler_row.logits = args.logits + int64_t{row} * args.vocabulary;
  sampler_row.vocabulary = args.vocabulary;
  sampler_row.banned = args.eos_tokens;
  sampler_row.banned_count = (flags & RowInfo::kBanEos) != 0 ? args.eos_count : 0;
  sampler_row.largest = best;
  sampler_row.state = shared->state;
  return RowSampler<kRowThreads>(sampler_row, &shared->sampler).Draw();
}

// The row's token; all threads of the block. The sum in reduction's part stays this thread's share.
__device__ __forceinline__ Choice Choose(const ChooseTokenArgs& args, int row, const RowInfo& info,
                                         PartsReduction* reduction, Shared* shared) {
  reduction->Read(args.parts + int64_t{row} * args.tiles, args.tiles);
  reduction->Share(&shared->parts);
  __syncthreads();
  reduction->Merge(shared->parts);
  const LogitsPart& part = reduction->part();
  if ((info.flags & RowInfo::kSample) == 0 || part.best == -INFINITY) {
    return {part.best_index < args.vocabulary ? part.best_index : 0, part.best};
  }
  const int32_t token = Draw(args, row, info.flags, part.best, shared);
  return {token, args.logits[int64_t{row} * args.vocabulary + token]};
}

template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    ChooseTokensKernel(const __grid_constant__ ChooseTokenArgs args) {
  __shared__ Shared shared;
  const int row = blockIdx.x;
  // No kernel of this pass but this one writes what is read here.
  const BeginPassArgs& pass = args.pass;
  const StepHeader header = *pass.header;
  const RowInfo info = pass.rows[row];
  const int32_t ring = pass.rings[row];
  CopyState(pass.tables.states[info.slot], &shared.state);
  const int32_t own_eos =
      static_cast<int>(threadIdx.x) < args.eos_count ? args.eos_tokens[threadIdx.x] : -1;
  ResidualStart<T> residual(pass, row);
  TouchParameters(args);

  WaitForEarlierKernels();
  if (header.pass != header.passes - 1) return;
  const bool chooses = (info.flags & RowInfo::kChoose) != 0;
  PartsReduction reduction;
  Choice choice;
  if (chooses) choice = Choose(args, row, info, &reduction, &shared);
  // The next step feeds this token, if it isn't the row's last.
  residual.Fetch(choice.token);
  const float sum_exp = WarpSum(reduction.part().sum_exp);
  if (threadIdx.x % 32 == 0) shared.sums_exp[threadIdx.x / 32] = sum_exp;
  residual.Share(shared.squares);
  const bool eos = __syncthreads_or(own_eos == choice.token) != 0;
  if (threadIdx.x == 0 && row < header.rows) {
    RowOutcome outcome{info.slot};
    SlotState state = shared.state;
    if (chooses) {
      const float logprob = LogProbability(args, reduction.part(), choice.logit, shared.sums_exp);
      outcome = MoveOn(info.slot, choice.token, logprob, eos, &state);
      pass.tables.states[info.slot] = state;
    }
    args.outcomes[int64_t{ring} * args.outcome_stride + row] = outcome;
    pass.rows[row] = StartOf(info.slot, state, 0, 1, pass.tables).info;
    pass.rings[row] = (ring + 1) % header.ring_size;
  }
  residual.Store(shared.squares);
}

}  // namespace

cudaError_t LaunchChooseTokens(ElementType type, const ChooseTokenArgs& args, int32_t bucket,
                               const LaunchContext& context) {
  if (args.eos_count > kRowThreads) return cudaErrorInvalidValue;
  const LaunchShape shape{dim3(bucket), dim3(kRowThreads)};
  switch (type) {
    case ElementType::kFloat32:
      return Launch(ChooseTokensKernel<float>, shape, context, args);
    case ElementType::kFloat16:
      return Launch(ChooseTokensKernel<__half>, shape, context, args);
    case ElementType::kBfloat16:
      return Launch(ChooseTokensKernel<__nv_bfloat16>, shape, context, args);
  }
  return cudaErrorInvalidValue;
}

}  // namespace seq2seq::kernels
