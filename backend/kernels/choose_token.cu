#include "backend/kernels/choose_token.h"

#include "backend/kernels/begin_row.cuh"
#include "backend/kernels/device_math.cuh"
#include "backend/kernels/projection_epilogue.cuh"
#include "backend/kernels/row_sampler.cuh"
#include "backend/kernels/with_element_type.cuh"

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

// With more a block would have to wait for a multiprocessor that has no other.
constexpr int kMaxRegisters = 104;

struct Choice {
  int32_t token = 0;
  float logit = 0.0F;
};

// What a row's block does once its token is chosen. Made of what no kernel of this pass but this
// one writes.
template <typename T>
class RowEnd {
 public:
  __device__ __forceinline__ RowEnd(const ChooseTokenArgs& args, int row)
      : args_(args),
        row_(row),
        header_(*args.pass.header),
        info_(args.pass.rows[row]),
        ring_(args.pass.rings[row]),
        own_eos_(static_cast<int>(threadIdx.x) < args.eos_count ? args.eos_tokens[threadIdx.x]
                                                                : -1),
        residual_(args.pass, row) {}

  __device__ __forceinline__ const StepHeader& header() const { return header_; }
  __device__ __forceinline__ const RowInfo& info() const { return info_; }
  __device__ __forceinline__ bool chooses() const { return (info_.flags & RowInfo::kChoose) != 0; }

  // part: the row's, but for its sum, which is this thread's share.
  __device__ __forceinline__ void Finish(const Choice& choice, const LogitsPart& part,
                                         Shared* shared) {
    // The next step feeds this token, if it isn't the row's last.
    residual_.Fetch(choice.token);
    const float sum_exp = WarpSum(part.sum_exp);
    if (threadIdx.x % 32 == 0) shared->sums_exp[threadIdx.x / 32] = sum_exp;
    residual_.Share(shared->squares);
    const bool eos = __syncthreads_or(own_eos_ == choice.token) != 0;
    if (threadIdx.x == 0 && row_ < header_.rows) {
      const BeginPassArgs& pass = args_.pass;
      RowOutcome outcome{info_.slot};
      SlotState state = shared->state;
      if (chooses()) {
        const float logprob = LogProbability(args_, part, choice.logit, shared->sums_exp);
        outcome = MoveOn(info_.slot, choice.token, logprob, eos, &state);
        pass.tables.states[info_.slot] = state;
      }
      args_.outcomes[int64_t{ring_} * args_.outcome_stride + row_] = outcome;
      pass.rows[row_] = StartOf(info_.slot, state, 0, 1, pass.tables).info;
      pass.rings[row_] = (ring_ + 1) % header_.ring_size;
    }
    residual_.Store(shared->squares);
  }

 private:
  const ChooseTokenArgs& args_;
  int row_;
  StepHeader header_;
  RowInfo info_;
  int32_t ring_;
  int32_t own_eos_;
  ResidualStart<T> residual_;
};

// The end of a row that samples. Neither inlined nor returned from with anything to go on with, so
// that greedy rows keep their registers, and their code, which comes from memory in every step, has
// none of this in its way.
template <typename T>
__device__ __noinline__ void SampleRow(const ChooseTokenArgs& args, const LogitsPart part,
                                       Shared* shared) {
  const int row = blockIdx.x;
  SamplerRow sampler_row;
  sampler_row.logits = args.logits + int64_t{row} * args.vocabulary;
  sampler_row.vocabulary = args.vocabulary;
  sampler_row.parts = args.parts + int64_t{row} * args.tiles;
  sampler_row.tiles = args.tiles;
  sampler_row.banned = args.eos_tokens;
  const bool bans = (args.pass.rows[row].flags & RowInfo::kBanEos) != 0;
  sampler_row.banned_count = bans ? args.eos_count : 0;
  sampler_row.largest = part.best;
  sampler_row.state = shared->state;
  const int32_t token = RowSampler(sampler_row).Draw();
  RowEnd<T>(args, row).Finish({token, sampler_row.logits[token]}, part, shared);
}

template <typename T>
__global__ void __maxnreg__(kMaxRegisters)
    ChooseTokensKernel(const __grid_constant__ ChooseTokenArgs args) {
  __shared__ Shared shared;
  const int row = blockIdx.x;
  RowEnd<T> end(args, row);
  CopyState(args.pass.tables.states[end.info().slot], &shared.state);
  TouchParameters(args);

  WaitForEarlierKernels();
  if (end.header().pass != end.header().passes - 1) return;
  PartsReduction reduction;
  Choice choice;
  if (end.chooses()) {
    reduction.Read(args.parts + int64_t{row} * args.tiles, args.tiles);
    reduction.Share(&shared.parts);
    __syncthreads();
    reduction.Merge(shared.parts);
    const LogitsPart& part = reduction.part();
    if ((end.info().flags & RowInfo::kSample) != 0 && part.best > -INFINITY) {
      SampleRow<T>(args, part, &shared);
      return;
    }
    choice = {part.best_index < args.vocabulary ? part.best_index : 0, part.best};
  }
  end.Finish(choice, reduction.part(), &shared);
}

}  // namespace

cudaError_t LaunchChooseTokens(ElementType type, const ChooseTokenArgs& args, int32_t bucket,
                               const LaunchContext& context) {
  if (args.eos_count > kRowThreads) return cudaErrorInvalidValue;
  const LaunchShape shape{dim3(bucket), dim3(kRowThreads)};
  return WithElementType(type, [&](auto element) {
    return Launch(ChooseTokensKernel<decltype(element)>, shape, context, args);
  });
}

}  // namespace seq2seq::kernels
