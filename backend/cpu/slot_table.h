// What the engine remembers of the sequences in its slots.
#ifndef SEQ2SEQ_BACKEND_CPU_SLOT_TABLE_H_
#define SEQ2SEQ_BACKEND_CPU_SLOT_TABLE_H_

#include <cstdint>
#include <vector>

#include "backend/core/ids.h"
#include "backend/core/sampling_options.h"
#include "backend/core/status.h"
#include "backend/engine/call_check.h"
#include "backend/engine/step.h"

namespace seq2seq::cpu {

struct Slot {
  bool ended = false;          // its stop was reported; rows of it are masked
  int32_t pending_count = 0;   // tokens not in the cache yet
  int32_t* pending = nullptr;  // [pending_count]
  int32_t position = 0;        // tokens in the cache
  int32_t generated = 0;
  int32_t min_new_tokens = 0;
  int32_t max_new_tokens = 0;
  int32_t source_length = 0;
  float score = 0.0F;
  SamplingOptions sampling;
  BlockId* self_blocks = nullptr;
  BlockId* cross_blocks = nullptr;
};

// Checks plans and applies their bind and unbind records. Allocates when made only. Not
// thread-safe.
class SlotTable {
 public:
  explicit SlotTable(const CallLimits& limits);

  // kInternal names the first record that breaks the agreement of step.h; nothing changes.
  [[nodiscard]] Status Check(const StepPlan& plan) { return check_.CheckPlan(plan); }
  // Applies the records of a checked plan.
  void Apply(const StepPlan& plan);

  Slot& operator[](SlotId slot) { return slots_[slot]; }

 private:
  CallLimits limits_;
  CallCheck check_;
  std::vector<Slot> slots_;
  std::vector<int32_t> pending_;  // [slots, decoder_tokens]
  std::vector<BlockId> blocks_;   // [slots, self blocks and cross blocks]
};

}  // namespace seq2seq::cpu

#endif  // SEQ2SEQ_BACKEND_CPU_SLOT_TABLE_H_
