// One decode step: slots in, chosen tokens out.
#ifndef SEQ2SEQ_BACKEND_CPU_STEP_RUNNER_H_
#define SEQ2SEQ_BACKEND_CPU_STEP_RUNNER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/core/ids.h"
#include "backend/core/status.h"
#include "backend/cpu/compute.h"
#include "backend/cpu/decoder.h"
#include "backend/cpu/kv_pool.h"
#include "backend/cpu/slot_table.h"
#include "backend/cpu/weights.h"
#include "backend/engine/sampling.h"
#include "backend/engine/step.h"

namespace seq2seq::cpu {

struct StepRunnerOptions {
  int32_t max_slots = 0;
  int32_t max_source_tokens = 0;
  int32_t max_decoder_tokens = 0;
  std::vector<int32_t> eos_token_ids;
};

// Keeps the slots, feeds their tokens to the decoder, chooses the next ones and says who is over.
// One thread at a time; borrows all of its arguments. Memory: all allocated by Create().
class StepRunner {
 public:
  [[nodiscard]] static Result<std::unique_ptr<StepRunner>> Create(const Weights* weights,
                                                                  const Compute& compute,
                                                                  KvPool* kv,
                                                                  StepRunnerOptions options);

  // Takes the plan over; with an error nothing changes.
  [[nodiscard]] Status Prepare(const StepPlan& plan);
  // Runs the prepared step and replaces *result.
  void Run(StepResult* result);

 private:
  StepRunner(const Compute& compute, std::vector<int32_t> eos_token_ids, const CallLimits& limits);

  // Gives the decoder what is not in the cache yet; the last token's logits go to `row`.
  void Feed(const Slot& slot, int32_t row);
  TokenChoice Choose(const Slot& slot, int32_t row, Sampler* sampler);
  // Accounts for the chosen token.
  StopReason Append(const TokenChoice& choice, Slot* slot) const;

  Compute compute_;
  std::vector<int32_t> eos_token_ids_;
  SlotTable slots_;
  std::unique_ptr<Decoder> decoder_;
  std::vector<Sampler> samplers_;  // one a thread
  uint64_t step_ = 0;
  std::vector<SlotId> rows_;
  std::vector<Slot*> alive_;          // rows that have not ended: the rows of the logits
  std::vector<TokenChoice> choices_;  // of alive_
};

}  // namespace seq2seq::cpu

#endif  // SEQ2SEQ_BACKEND_CPU_STEP_RUNNER_H_
