#include "backend/cpu/slot_table.h"

#include <algorithm>

#include "backend/core/format.h"

namespace seq2seq::cpu {
namespace {

int32_t BlocksFor(int32_t tokens, int32_t block_tokens) {
  return (tokens + block_tokens - 1) / block_tokens;
}

// Positions that the sequence can ever hold in the cache: its last token never enters it.
int32_t CachedTokens(const BindRecord& record) {
  const int64_t tokens = int64_t{record.position} +
                         static_cast<int64_t>(record.pending_tokens.size()) +
                         record.max_new_tokens - record.generated - 1;
  return static_cast<int32_t>(std::min<int64_t>(tokens, INT32_MAX));
}

}  // namespace

SlotTable::SlotTable(const SlotLimits& limits)
    : limits_(limits),
      slots_(limits.slots),
      pending_(static_cast<size_t>(limits.slots) * limits.decoder_tokens),
      bound_(limits.slots),
      in_row_(limits.slots) {
  const size_t self = BlocksFor(limits.decoder_tokens, limits.block_tokens);
  const size_t cross = BlocksFor(limits.source_tokens, limits.block_tokens);
  blocks_.resize(limits.slots * (self + cross));
  for (int32_t i = 0; i < limits.slots; ++i) {
    slots_[i].pending = pending_.data() + static_cast<size_t>(i) * limits.decoder_tokens;
    slots_[i].self_blocks = blocks_.data() + i * (self + cross);
    slots_[i].cross_blocks = slots_[i].self_blocks + self;
  }
}

Status SlotTable::Check(const StepPlan& plan) {
  for (int32_t i = 0; i < limits_.slots; ++i) bound_[i] = slots_[i].bound;
  std::ranges::fill(in_row_, 0);
  for (SlotId slot : plan.unbind) {
    if (!Exists(slot) || !bound_[slot]) {
      return Internal(Format("step {} unbinds slot {}, which is not bound", plan.step, slot));
    }
    bound_[slot] = 0;
  }
  for (const BindRecord& record : plan.bind) {
    if (!Exists(record.slot) || bound_[record.slot]) {
      return Internal(Format("step {} binds slot {}, which does not exist or is bound", plan.step,
                             record.slot));
    }
    SEQ2SEQ_RETURN_IF_ERROR(CheckBind(record));
    bound_[record.slot] = 1;
  }
  for (SlotId slot : plan.rows) {
    if (!Exists(slot) || !bound_[slot] || in_row_[slot]) {
      return Internal(
          Format("step {} has a row for slot {}, which is not bound or has two", plan.step, slot));
    }
    in_row_[slot] = 1;
  }
  return OkStatus();
}

Status SlotTable::CheckBind(const BindRecord& record) const {
  if (record.pending_tokens.empty() || record.position < 0 || record.generated < 0 ||
      record.max_new_tokens <= record.generated) {
    return Internal(Format(
        "the bind of slot {} has {} pending tokens, position {}, {} of {} new tokens", record.slot,
        record.pending_tokens.size(), record.position, record.generated, record.max_new_tokens));
  }
  for (int32_t token : record.pending_tokens) {
    if (token < 0 || token >= limits_.vocab_size) {
      return Internal(Format("the bind of slot {} has token {}; the vocabulary has {}", record.slot,
                             token, limits_.vocab_size));
    }
  }
  const int32_t cached = CachedTokens(record);
  if (cached > limits_.decoder_tokens || record.source_length < 1 ||
      record.source_length > limits_.source_tokens) {
    return Internal(Format(
        "the bind of slot {} needs {} decoder and {} source positions; there are {} "
        "and {}",
        record.slot, cached, record.source_length, limits_.decoder_tokens, limits_.source_tokens));
  }
  SEQ2SEQ_RETURN_IF_ERROR(CheckBlocks(record.self_blocks, cached, "self", record.slot));
  return CheckBlocks(record.cross_blocks, record.source_length, "cross", record.slot);
}

Status SlotTable::CheckBlocks(std::span<const BlockId> blocks, int32_t tokens, const char* kind,
                              SlotId slot) const {
  if (static_cast<int64_t>(blocks.size()) < BlocksFor(tokens, limits_.block_tokens)) {
    return Internal(Format("the bind of slot {} has {} {} blocks for {} positions", slot,
                           blocks.size(), kind, tokens));
  }
  for (BlockId block : blocks) {
    if (block < 0 || block >= limits_.total_blocks) {
      return Internal(Format("the bind of slot {} names {} block {}; there are {}", slot, kind,
                             block, limits_.total_blocks));
    }
  }
  return OkStatus();
}

void SlotTable::Apply(const StepPlan& plan) {
  for (SlotId slot : plan.unbind) slots_[slot].bound = false;
  for (const BindRecord& record : plan.bind) {
    Slot& slot = slots_[record.slot];
    slot.bound = true;
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
    std::copy_n(record.self_blocks.begin(), BlocksFor(CachedTokens(record), limits_.block_tokens),
                slot.self_blocks);
    std::copy_n(record.cross_blocks.begin(), BlocksFor(record.source_length, limits_.block_tokens),
                slot.cross_blocks);
  }
}

}  // namespace seq2seq::cpu
