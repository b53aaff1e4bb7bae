// What scheduler and engine say to each other for one decode step.
//
// A sequence lives in a *slot* while it runs. A *row* is a slot's place in one step's batch; rows
// are dense (0..n-1), slots are stable. Bind and unbind records move sequences in and out of slots
// and carry all the state that the engine keeps for one, so a paused sequence can give its slot
// away and come back to another. KV memory is named by *blocks*, accounted by backend/kv_cache.
#ifndef SEQ2SEQ_BACKEND_ENGINE_STEP_H_
#define SEQ2SEQ_BACKEND_ENGINE_STEP_H_

#include <cstdint>
#include <span>
#include <vector>

#include "backend/core/ids.h"
#include "backend/core/sampling_options.h"
#include "backend/core/status.h"

namespace seq2seq {

// Why the engine says that a sequence is over. The scheduler acts on it.
enum class StopReason : uint8_t {
  kNone,
  kEos,     // an end-of-sequence token was chosen (it is among the result's tokens)
  kLength,  // max_new_tokens were generated
};

// Puts a sequence into a slot: a fresh one after its encoding, or a paused one that comes back.
struct BindRecord {
  SlotId slot = 0;

  // Decoder tokens that are not in the self-attention cache yet, at least one: a fresh sequence's
  // decoder prefix (start token first), a resumed one's last token. The steps with a row for the
  // slot consume them, in one step or, as the engine sees fit, some in each of several; the step
  // that consumes the last one chooses the token after it.
  std::span<const int32_t> pending_tokens;
  int32_t position = 0;   // decoder tokens already in the self-attention cache; 0 when fresh
  int32_t generated = 0;  // new tokens chosen before this bind: length checks and random counter

  int32_t min_new_tokens = 0;  // EOS is banned while fewer have been chosen
  int32_t max_new_tokens = 0;  // >= 1, > generated
  SamplingOptions sampling;

  int32_t source_length = 0;  // encoder positions, > 0
  // ceil(source_length / block_tokens) blocks, of a source that was reported done before.
  std::span<const BlockId> cross_blocks;
  // Enough blocks for position + pending_tokens + the new tokens still allowed, less the last one,
  // which never enters the cache.
  std::span<const BlockId> self_blocks;
};

// One step. Prepared by the scheduler in storage it keeps (reserved once), read by the engine
// during Launch() only: the spans need to live no longer than that call.
struct StepPlan {
  uint64_t step = 0;             // counts up by one a launch
  std::vector<SlotId> unbind;    // applied first
  std::vector<BindRecord> bind;  // then these; a slot unbound above may be bound again
  std::vector<SlotId> rows;      // row -> slot, bound slots only, each at most once

  void Reserve(int32_t max_slots) {
    unbind.reserve(max_slots);
    bind.reserve(max_slots);
    rows.reserve(max_slots);
  }
  void Clear() {
    unbind.clear();
    bind.clear();
    rows.clear();
  }
};

struct RowResult {
  SlotId slot = 0;
  // The row of the same step whose history this row continues; its own unless beams were reordered.
  int32_t parent_row = 0;
  int32_t first_token = 0;  // index into StepResult::tokens and ::logprobs
  // New tokens, usually 1; 0 if pending tokens are left to consume, or if the slot had already
  // ended in a step launched before its end was known (the engine masks such slots). Pads never
  // show up here.
  int32_t token_count = 0;
  float score = 0.0F;  // sum of the log-probabilities of the new tokens so far
  StopReason stop = StopReason::kNone;
};

// What one step brought, in the plan's row order. Reused from step to step: reserve once.
struct StepResult {
  uint64_t step = 0;
  // An error means that the whole step failed: no row has a result, every sequence in it is lost.
  Status status;
  std::vector<RowResult> rows;
  std::vector<int32_t> tokens;
  // log-softmax of the raw logits (before bans and filters) at each token; 0 for rows that did not
  // ask for log-probabilities.
  std::vector<float> logprobs;

  void Reserve(int32_t max_slots) {
    rows.reserve(max_slots);
    tokens.reserve(max_slots);
    logprobs.reserve(max_slots);
  }
  void Clear() {
    status = OkStatus();
    rows.clear();
    tokens.clear();
    logprobs.clear();
  }
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_ENGINE_STEP_H_
