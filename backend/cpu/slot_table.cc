#include "backend/cpu/slot_table.h"

#include <algorithm>

#include "backend/core/kv_blocks.h"

namespace seq2seq::cpu {

SlotTable::SlotTable(const CallLimits& limits)
    : limits_(limits),
      check_(limits),
      slots_(limits.slots),
      pending_(static_cast<size_t>(limits.slots) * limits.decoder_tokens) {
  const size_t self = KvBlocksFor(limits.decoder_tokens, limits.block_tokens);
  const size_t cross = KvBlocksFor(limits.source_tokens, limits.block_tokens);
  blocks_.resize(limits.slots * (self + cross));
  for (int32_t i = 0; i < limits.slots; ++i) {
    slots_[i].pending = pending_.data() + static_cast<size_t>(i) * limits.decoder_tokens;
    slots_[i].self_blocks = blocks_.data() + i * (self + cross);
    slots_[i].cross_blocks = slots_[i].self_blocks + self;
  }
}

void SlotTable::Apply(const StepPlan& plan) {
  check_.Apply(plan);
  for (const BindRecord& record : plan.bind) {
    Slot& slot = slots_[record.slot];
    slot.ended = false;
    slot.pending_count = static_cast<int32_t>(record.pending_tokens.size());
    std::ranges::copy(record.pending_tokens, slot.pending);
    slot.position = record.position;
    slot.generated = record.generated;
    slot.min_new_tokens = record.min_new_tokens;
    slot.max_new_tokens = record.max_new_tokens;
    slot.source_length = record.source_length;
    slot.score = 0.0F;
    slot.sampling = record.sampling;
    // Surplus blocks are never reached.
    std::copy_n(record.self_blocks.begin(), KvBlocksFor(CachedTokens(record), limits_.block_tokens),
                slot.self_blocks);
    std::copy_n(record.cross_blocks.begin(),
                KvBlocksFor(record.source_length, limits_.block_tokens), slot.cross_blocks);
  }
}

}  // namespace seq2seq::cpu
