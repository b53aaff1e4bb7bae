#include "backend/cpu/step_runner.h"

#include <algorithm>
#include <span>
#include <utility>

namespace seq2seq::cpu {

StepRunner::StepRunner(const Compute& compute, std::vector<int32_t> eos_token_ids,
                       const CallLimits& limits)
    : compute_(compute), eos_token_ids_(std::move(eos_token_ids)), slots_(limits) {}

Result<std::unique_ptr<StepRunner>> StepRunner::Create(const Weights* weights,
                                                       const Compute& compute, KvPool* kv,
                                                       StepRunnerOptions options) {
  const int32_t vocab = weights->spec().vocab_size;
  const CallLimits limits{.slots = options.max_slots,
                          .source_tokens = options.max_source_tokens,
                          .decoder_tokens = options.max_decoder_tokens,
                          .block_tokens = kPanelColumns,
                          .total_blocks = kv->total_blocks(),
                          .vocab_size = vocab};
  std::unique_ptr<StepRunner> runner(
      new StepRunner(compute, std::move(options.eos_token_ids), limits));
  SEQ2SEQ_ASSIGN_OR_RETURN(runner->decoder_,
                           Decoder::Create(weights, compute, kv,
                                           {.max_logits_rows = options.max_slots,
                                            .max_source_tokens = options.max_source_tokens,
                                            .max_decoder_tokens = options.max_decoder_tokens}));
  for (int32_t i = 0; i < compute.pool->threads(); ++i) runner->samplers_.emplace_back(vocab);
  runner->rows_.reserve(options.max_slots);
  runner->alive_.reserve(options.max_slots);
  runner->choices_.resize(options.max_slots);
  return runner;
}

Status StepRunner::Prepare(const StepPlan& plan) {
  SEQ2SEQ_RETURN_IF_ERROR(slots_.Check(plan));
  slots_.Apply(plan);
  step_ = plan.step;
  rows_.assign(plan.rows.begin(), plan.rows.end());
  return OkStatus();
}

void StepRunner::Feed(const Slot& slot, int32_t row) {
  for (int32_t i = 0; i < slot.pending_count; ++i) {
    decoder_->Add({.token = slot.pending[i],
                   .position = slot.position + i,
                   .self_blocks = slot.self_blocks,
                   .cross_blocks = slot.cross_blocks,
                   .source_length = slot.source_length,
                   .logits_row = i + 1 == slot.pending_count ? row : -1});
  }
}

TokenChoice StepRunner::Choose(const Slot& slot, int32_t row, Sampler* sampler) {
  std::span<const int32_t> banned;
  if (slot.generated < slot.min_new_tokens) banned = eos_token_ids_;
  return sampler->Choose({.logits = decoder_->logits(row),
                          .banned = banned,
                          .options = slot.sampling,
                          .generated = static_cast<uint64_t>(slot.generated)});
}

StopReason StepRunner::Append(const TokenChoice& choice, Slot* slot) const {
  slot->position += slot->pending_count;
  slot->pending[0] = choice.token;
  slot->pending_count = 1;
  slot->score += choice.logprob;
  ++slot->generated;
  StopReason stop = StopReason::kNone;
  if (std::ranges::find(eos_token_ids_, choice.token) != eos_token_ids_.end()) {
    stop = StopReason::kEos;
  } else if (slot->generated >= slot->max_new_tokens) {
    stop = StopReason::kLength;
  }
  slot->ended = stop != StopReason::kNone;
  return stop;
}

void StepRunner::Run(StepResult* result) {
  result->Clear();
  result->step = step_;
  alive_.clear();
  for (SlotId id : rows_) {
    Slot& slot = slots_[id];
    if (slot.ended) continue;
    Feed(slot, static_cast<int32_t>(alive_.size()));
    alive_.push_back(&slot);
  }
  const auto alive = static_cast<int32_t>(alive_.size());
  if (alive > 0) decoder_->ComputeLogits(alive);
  compute_.pool->Run(alive, [this](int32_t row, int32_t thread) {
    choices_[row] = Choose(*alive_[row], row, &samplers_[thread]);
  });
  int32_t next = 0;
  for (SlotId id : rows_) {
    RowResult row;
    row.slot = id;
    row.parent_row = static_cast<int32_t>(result->rows.size());
    row.first_token = static_cast<int32_t>(result->tokens.size());
    Slot& slot = slots_[id];
    if (!slot.ended) {
      const TokenChoice& choice = choices_[next++];
      row.stop = Append(choice, &slot);
      row.token_count = 1;
      result->tokens.push_back(choice.token);
      result->logprobs.push_back(choice.logprob);
    }
    row.score = slot.score;
    result->rows.push_back(row);
  }
}

}  // namespace seq2seq::cpu
