// The end of a decode step: chooses each row's token and moves its slot on.
#ifndef SEQ2SEQ_BACKEND_KERNELS_CHOOSE_TOKEN_H_
#define SEQ2SEQ_BACKEND_KERNELS_CHOOSE_TOKEN_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "backend/kernels/launch.h"
#include "backend/kernels/projection.h"
#include "backend/kernels/step_state.h"

namespace seq2seq::kernels {

enum class RowStop : int32_t { kNone, kEos, kLength };

// What a step says about a row. Written straight to host memory that the device can address.
struct RowOutcome {
  int32_t slot = 0;
  int32_t count = 0;  // tokens: 1, or 0 if the slot had ended before
  int32_t token = 0;
  RowStop stop = RowStop::kNone;
  float logprob = 0.0F;  // 0 unless asked for
  float score = 0.0F;
};

struct ChooseTokenArgs {
  BeginPassArgs pass;                 // of the running pass, and where the next step begins
  const LogitsPart* parts = nullptr;  // [bucket][tiles]
  int32_t tiles = 0;
  // [bucket][vocabulary], of rows that sample; what is banned becomes -infinity.
  float* logits = nullptr;
  int32_t vocabulary = 0;
  const int32_t* eos_tokens = nullptr;
  int32_t eos_count = 0;           // up to 512
  RowOutcome* outcomes = nullptr;  // [ring][outcome_stride]
  int32_t outcome_stride = 0;
};

// Greedy: the largest logit, of equal ones the lowest id. Sampling: the filters and the draw of
// backend/engine/sampling.h, with sums in fixed point, so that a row's choice never depends on
// timing. Rows choose in the last pass of a step only, which then begins the next step, as
// LaunchBeginPass would if it had the same rows: if it has others, that is overwritten.
// `type`: the model's number format.
cudaError_t LaunchChooseTokens(ElementType type, const ChooseTokenArgs& args, int32_t bucket,
                               const LaunchContext& context);

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_CHOOSE_TOKEN_H_
