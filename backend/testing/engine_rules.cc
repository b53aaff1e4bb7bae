#include "backend/testing/engine_rules.h"

#include <algorithm>
#include <utility>

namespace seq2seq {
namespace {

std::string Count(const char* name, int64_t is, int64_t allowed) {
  return std::string(name) + " is " + std::to_string(is) + ", allowed is " +
         std::to_string(allowed);
}

}  // namespace

EngineRules::EngineRules(const EngineInfo& info)
    : info_(info), block_owners_(info.total_blocks), slot_owners_(info.max_slots) {}

int32_t EngineRules::BlocksNeeded(int32_t tokens) const {
  return (tokens + info_.block_tokens - 1) / info_.block_tokens;
}

void EngineRules::OnCall() {
  if (!caller_) caller_ = std::this_thread::get_id();
  if (*caller_ != std::this_thread::get_id()) Violate("the engine was called from two threads");
}

bool EngineRules::InFlightStep(uint64_t owner) const {
  return std::ranges::any_of(steps_, [owner](const FlyingStep& step) {
    return std::ranges::find(step.row_owners, owner) != step.row_owners.end();
  });
}

bool EngineRules::SlotInRange(SlotId slot, const std::string& where) {
  if (slot >= 0 && slot < info_.max_slots) return true;
  Violate(where + ": slot " + std::to_string(slot) + " is not in 0.." +
          std::to_string(info_.max_slots - 1));
  return false;
}

void EngineRules::TakeBlock(BlockId block, uint64_t owner, const std::string& where) {
  if (block < 0 || block >= info_.total_blocks) {
    Violate(where + ": block " + std::to_string(block) + " does not exist");
    return;
  }
  const uint64_t old = std::exchange(block_owners_[block], owner);
  const std::string text = where + ": block " + std::to_string(block);
  if (old == owner) Violate(text + " is named twice");
  const auto found = sequences_.find(old);
  if (old == owner || found == sequences_.end()) return;
  if (found->second.encoding) Violate(text + " belongs to a source that is being encoded");
  if (InFlightStep(old)) Violate(text + " is in use by a launched step");
  sequences_.erase(found);
}

void EngineRules::OnStartEncode(std::span<const EncodeItem> batch) {
  const auto items = static_cast<int64_t>(batch.size());
  int64_t tokens = 0;
  for (const EncodeItem& item : batch) tokens += static_cast<int64_t>(item.source_ids.size());
  if (items < 1 || items > info_.max_encode_items) {
    Violate(Count("items of a StartEncode", items, info_.max_encode_items));
  }
  if (items > 1 && tokens > info_.max_encode_tokens) {
    Violate(Count("tokens of a StartEncode", tokens, info_.max_encode_tokens));
  }
  if (static_cast<int32_t>(encodes_.size()) >= info_.max_encodes_in_flight) {
    Violate(Count("encodes in flight", encodes_.size() + 1, info_.max_encodes_in_flight));
  }
  std::vector<uint64_t> tickets;
  for (const EncodeItem& item : batch) {
    const std::string where = "encode of ticket " + std::to_string(item.ticket);
    const auto is_ours = [&](uint64_t other) { return other == item.ticket; };
    if (std::ranges::any_of(tickets, is_ours) || std::ranges::any_of(encodes_, [&](auto& other) {
          return std::ranges::any_of(other, is_ours);
        })) {
      Violate(where + ": the ticket is in flight already");
    }
    tickets.push_back(item.ticket);
    const auto length = static_cast<int32_t>(item.source_ids.size());
    if (length == 0) Violate(where + ": empty source");
    if (static_cast<int32_t>(item.cross_blocks.size()) != BlocksNeeded(length)) {
      Violate(where + ": " +
              Count("number of cross blocks", item.cross_blocks.size(), BlocksNeeded(length)));
    }
    const uint64_t owner = ++last_owner_;
    for (BlockId block : item.cross_blocks) TakeBlock(block, owner, where);
    Sequence& sequence = sequences_[owner];
    sequence.ticket = item.ticket;
    sequence.source_length = length;
    sequence.cross_blocks.assign(item.cross_blocks.begin(), item.cross_blocks.end());
  }
  encodes_.push_back(std::move(tickets));
}

void EngineRules::OnEncodePolled(uint64_t ticket, bool ok) {
  for (auto& tickets : encodes_) std::erase(tickets, ticket);
  std::erase_if(encodes_, [](const auto& tickets) { return tickets.empty(); });
  const auto found = std::ranges::find_if(sequences_, [ticket](const auto& entry) {
    return entry.second.ticket == ticket && entry.second.encoding;
  });
  if (found == sequences_.end()) return;
  found->second.encoding = false;
  if (!ok) sequences_.erase(found);
}

void EngineRules::CheckUnbind(SlotId slot) {
  if (!SlotInRange(slot, "unbind")) return;
  const uint64_t owner = std::exchange(slot_owners_[slot], 0);
  if (owner == 0) Violate("unbind of slot " + std::to_string(slot) + ", which is not bound");
  const auto found = sequences_.find(owner);
  if (found != sequences_.end()) found->second.slot.reset();
}

void EngineRules::CheckBindBlocks(const BindRecord& record, uint64_t owner,
                                  const std::string& where) {
  Sequence& sequence = sequences_.at(owner);
  if (!std::ranges::equal(sequence.cross_blocks, record.cross_blocks)) {
    Violate(where + ": the cross blocks are not those of one encoded source");
  }
  if (sequence.source_length != record.source_length) {
    Violate(where + ": " + Count("source_length", record.source_length, sequence.source_length));
  }
  const int32_t cached = record.position + static_cast<int32_t>(record.pending_tokens.size()) +
                         (record.max_new_tokens - record.generated) - 1;
  if (static_cast<int32_t>(record.self_blocks.size()) < BlocksNeeded(cached)) {
    Violate(where + ": " +
            Count("number of self blocks", record.self_blocks.size(), BlocksNeeded(cached)));
  }
  // A sequence that comes back may keep its blocks; those that it did not have are taken.
  for (BlockId block : record.self_blocks) {
    const bool kept = std::ranges::find(sequence.self_blocks, block) != sequence.self_blocks.end();
    if (!kept) TakeBlock(block, owner, where);
  }
  sequence.self_blocks.assign(record.self_blocks.begin(), record.self_blocks.end());
}

void EngineRules::CheckBind(const BindRecord& record) {
  const std::string where = "bind of slot " + std::to_string(record.slot);
  if (!SlotInRange(record.slot, where)) return;
  if (slot_owners_[record.slot] != 0) Violate(where + ": the slot is bound already");
  if (record.cross_blocks.empty() || record.cross_blocks[0] < 0 ||
      record.cross_blocks[0] >= info_.total_blocks) {
    Violate(where + ": no cross blocks, or one that does not exist");
    return;
  }
  const uint64_t owner = block_owners_[record.cross_blocks[0]];
  const auto found = sequences_.find(owner);
  if (found == sequences_.end() || found->second.encoding) {
    Violate(where + ": its cross blocks were not filled by an encode that ended well");
    return;
  }
  Sequence& sequence = found->second;
  const auto pending = static_cast<int32_t>(record.pending_tokens.size());
  if (sequence.slot) Violate(where + ": the sequence is in another slot");
  if (sequence.ended) Violate(where + ": the sequence has ended");
  if (pending < 1) Violate(where + ": no pending tokens");
  if (record.max_new_tokens <= record.generated) {
    Violate(where + ": " + Count("generated", record.generated, record.max_new_tokens - 1));
  }
  if (sequence.prefix == 0) sequence.prefix = pending;
  if (record.generated != sequence.generated) {
    Violate(where + ": " + Count("generated", record.generated, sequence.generated));
  }
  if (record.position + pending != sequence.prefix + sequence.generated) {
    Violate(where + ": " +
            Count("position + pending_tokens", record.position + pending,
                  sequence.prefix + sequence.generated));
  }
  CheckBindBlocks(record, owner, where);
  sequence.slot = record.slot;
  slot_owners_[record.slot] = owner;
}

void EngineRules::CheckRows(const StepPlan& plan) {
  FlyingStep flying{.step = plan.step, .row_owners = {}};
  for (SlotId slot : plan.rows) {
    const std::string where = "row of slot " + std::to_string(slot);
    if (!SlotInRange(slot, where)) continue;
    const uint64_t owner = slot_owners_[slot];
    const auto found = sequences_.find(owner);
    if (owner == 0) {
      Violate(where + ": the slot is not bound");
    } else if (found == sequences_.end()) {
      Violate(where + ": the sequence has lost its blocks to another");
    } else if (found->second.ended) {
      Violate(where + ": the sequence has ended");
    }
    if (std::ranges::find(flying.row_owners, owner) != flying.row_owners.end()) {
      Violate(where + ": named twice");
    }
    flying.row_owners.push_back(owner);
  }
  for (const BindRecord& record : plan.bind) {
    if (std::ranges::find(plan.rows, record.slot) == plan.rows.end()) {
      Violate("bind of slot " + std::to_string(record.slot) + ": the step has no row for it");
    }
  }
  steps_.push_back(std::move(flying));
}

void EngineRules::OnLaunch(const StepPlan& plan) {
  if (static_cast<int32_t>(steps_.size()) >= info_.max_steps_in_flight) {
    Violate(Count("steps in flight", steps_.size() + 1, info_.max_steps_in_flight));
  }
  if (last_step_ && plan.step != *last_step_ + 1) {
    Violate(Count("step", static_cast<int64_t>(plan.step), static_cast<int64_t>(*last_step_ + 1)));
  }
  if (plan.rows.empty()) Violate("a step without rows");
  last_step_ = plan.step;
  for (SlotId slot : plan.unbind) CheckUnbind(slot);
  for (const BindRecord& record : plan.bind) CheckBind(record);
  CheckRows(plan);
}

void EngineRules::OnStepPolled(const StepResult& result) {
  if (steps_.empty()) return;
  const FlyingStep flying = std::move(steps_.front());
  steps_.pop_front();
  for (size_t row = 0; row < result.rows.size(); ++row) {
    const auto found = sequences_.find(flying.row_owners[row]);
    if (found == sequences_.end()) continue;
    found->second.generated += result.rows[row].token_count;
    if (result.rows[row].stop != StopReason::kNone) found->second.ended = true;
  }
}

}  // namespace seq2seq
