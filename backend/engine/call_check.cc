#include "backend/engine/call_check.h"

#include <algorithm>

#include "backend/core/format.h"
#include "backend/core/kv_blocks.h"

namespace seq2seq {

int32_t CachedTokens(const BindRecord& record) {
  const int64_t tokens = int64_t{record.position} +
                         static_cast<int64_t>(record.pending_tokens.size()) +
                         record.max_new_tokens - record.generated - 1;
  return static_cast<int32_t>(std::min<int64_t>(tokens, INT32_MAX));
}

CallCheck::CallCheck(const CallLimits& limits)
    : limits_(limits), bound_(limits.slots), bound_after_(limits.slots), in_row_(limits.slots) {}

Status CallCheck::CheckSource(const EncodeItem& item) const {
  const auto length = static_cast<int64_t>(item.source_ids.size());
  if (length == 0) return InvalidArgument("the source is empty; at least one token is needed");
  if (length > limits_.source_tokens) {
    return Internal(
        Format("the source has {} tokens; at most {} are allowed", length, limits_.source_tokens));
  }
  for (const int32_t id : item.source_ids) {
    if (id < 0 || id >= limits_.vocab_size) {
      return InvalidArgument(
          Format("the source has token {}; allowed: 0 to {}", id, limits_.vocab_size - 1));
    }
  }
  const auto capacity = static_cast<int64_t>(item.cross_blocks.size()) * limits_.block_tokens;
  if (capacity < length) {
    return Internal(Format("a source of {} tokens got cross blocks for {}", length, capacity));
  }
  for (const BlockId block : item.cross_blocks) {
    if (block < 0 || block >= limits_.total_blocks) {
      return Internal(Format("a source got block {}; there are {}", block, limits_.total_blocks));
    }
  }
  return OkStatus();
}

Status CallCheck::CheckPlan(const StepPlan& plan) {
  std::ranges::copy(bound_, bound_after_.begin());
  std::ranges::fill(in_row_, 0);
  for (const SlotId slot : plan.unbind) {
    if (!Exists(slot) || bound_after_[slot] == 0) {
      return Internal(Format("step {} unbinds slot {}, which is not bound", plan.step, slot));
    }
    bound_after_[slot] = 0;
  }
  for (const BindRecord& record : plan.bind) {
    if (!Exists(record.slot) || bound_after_[record.slot] != 0) {
      return Internal(Format("step {} binds slot {}, which does not exist or is bound", plan.step,
                             record.slot));
    }
    SEQ2SEQ_RETURN_IF_ERROR(CheckBind(record));
    bound_after_[record.slot] = 1;
  }
  for (const SlotId slot : plan.rows) {
    if (!Exists(slot) || bound_after_[slot] == 0 || in_row_[slot] != 0) {
      return Internal(
          Format("step {} has a row for slot {}, which is not bound or has two", plan.step, slot));
    }
    in_row_[slot] = 1;
  }
  return OkStatus();
}

Status CallCheck::CheckBind(const BindRecord& record) const {
  if (record.pending_tokens.empty() || record.position < 0 || record.generated < 0 ||
      record.max_new_tokens <= record.generated) {
    return Internal(Format(
        "the bind of slot {} has {} pending tokens, position {}, {} of {} new tokens", record.slot,
        record.pending_tokens.size(), record.position, record.generated, record.max_new_tokens));
  }
  for (const int32_t token : record.pending_tokens) {
    if (token < 0 || token >= limits_.vocab_size) {
      return Internal(Format("the bind of slot {} has token {}; the vocabulary has {}", record.slot,
                             token, limits_.vocab_size));
    }
  }
  const int32_t cached = CachedTokens(record);
  if (cached > limits_.decoder_tokens || record.source_length < 1 ||
      record.source_length > limits_.source_tokens) {
    return Internal(Format(
        "the bind of slot {} needs {} decoder and {} source positions; there are {} and {}",
        record.slot, cached, record.source_length, limits_.decoder_tokens, limits_.source_tokens));
  }
  SEQ2SEQ_RETURN_IF_ERROR(CheckBlocks(record.self_blocks, cached, "self", record.slot));
  return CheckBlocks(record.cross_blocks, record.source_length, "cross", record.slot);
}

Status CallCheck::CheckBlocks(std::span<const BlockId> blocks, int32_t tokens, const char* kind,
                              SlotId slot) const {
  if (static_cast<int64_t>(blocks.size()) < KvBlocksFor(tokens, limits_.block_tokens)) {
    return Internal(Format("the bind of slot {} has {} {} blocks for {} positions", slot,
                           blocks.size(), kind, tokens));
  }
  for (const BlockId block : blocks) {
    if (block < 0 || block >= limits_.total_blocks) {
      return Internal(Format("the bind of slot {} names {} block {}; there are {}", slot, kind,
                             block, limits_.total_blocks));
    }
  }
  return OkStatus();
}

void CallCheck::Apply(const StepPlan& plan) {
  for (const SlotId slot : plan.unbind) bound_[slot] = 0;
  for (const BindRecord& record : plan.bind) bound_[record.slot] = 1;
}

}  // namespace seq2seq
