#include "backend/scheduler/sequence_table.h"

#include <algorithm>
#include <cassert>
#include <new>
#include <string>
#include <utility>

#include "backend/scheduler/end_errors.h"
#include "backend/scheduler/kv_demand.h"

namespace seq2seq {

SequenceTable::SequenceTable(const EngineInfo& info, int32_t max_ahead)
    : max_slots_(info.max_slots),
      block_tokens_(info.block_tokens),
      pool_(info.total_blocks),
      storage_(static_cast<size_t>(info.max_slots) + max_ahead) {
  for (auto* list : {&spare_, &waiting_, &running_, &leaving_}) list->reserve(storage_.size());
  for (Sequence& sequence : storage_) spare_.push_back(&sequence);
  free_slots_.reserve(max_slots_);
  stale_slots_.reserve(max_slots_);
  for (SlotId slot = max_slots_ - 1; slot >= 0; --slot) free_slots_.push_back(slot);
}

void SequenceTable::Admit(std::unique_ptr<PendingRequest> pending) {
  Sequence* sequence = spare_.back();
  const KvDemand demand = KvDemandOf(pending->request, block_tokens_);
  try {
    sequence->blocks.resize(static_cast<size_t>(demand.total()));
  } catch (const std::bad_alloc&) {
    pending->sink->Fail({ErrorCode::kUnavailable, "out of memory"});
    return;
  }
  spare_.pop_back();  // from here on nothing can fail
  sequence->state = SequenceState::kAdmitted;
  sequence->ticket = ++last_ticket_;
  sequence->request = std::move(pending->request);
  sequence->sink = std::move(pending->sink);
  sequence->slot = -1;
  sequence->generated = 0;
  sequence->launches_in_flight = 0;
  sequence->cross_count = static_cast<int32_t>(demand.cross_blocks);
  [[maybe_unused]] const bool allocated = pool_.Allocate(sequence->blocks);
  assert(allocated);
  waiting_.push_back(sequence);
}

void SequenceTable::Join(Sequence* sequence) {
  sequence->slot = free_slots_.back();
  free_slots_.pop_back();
  sequence->state = SequenceState::kRunning;
  running_.push_back(sequence);
}

void SequenceTable::DropJoined() {
  std::erase_if(waiting_, [](const Sequence* it) { return it->state == SequenceState::kRunning; });
}

void SequenceTable::Release(Sequence* sequence) {
  pool_.Release(sequence->blocks);
  if (sequence->state == SequenceState::kRunning) {
    free_slots_.push_back(sequence->slot);
    stale_slots_.push_back(sequence->slot);
  }
  sequence->blocks.clear();
  sequence->request = {};
  sequence->ticket = 0;
  spare_.push_back(sequence);
}

void SequenceTable::SettleList(std::vector<Sequence*>& list) {
  size_t kept = 0;
  for (Sequence* sequence : list) {
    if (!sequence->ended() || (&list == &leaving_ && sequence->in_use())) {
      list[kept++] = sequence;
    } else if (sequence->in_use()) {
      leaving_.push_back(sequence);
    } else {
      Release(sequence);
    }
  }
  list.resize(kept);
}

void SequenceTable::Settle() {
  SettleList(leaving_);
  SettleList(waiting_);
  SettleList(running_);
}

void SequenceTable::FailAll(const Error& error) noexcept {
  for (const auto* list : {&running_, &waiting_}) {
    for (Sequence* sequence : *list) {
      if (sequence->ended()) continue;
      sequence->Fail(ErrorWithText(error.code, [&] { return error.message; }));
    }
  }
}

Sequence* SequenceTable::FindTicket(uint64_t ticket) const {
  for (const auto* list : {&waiting_, &leaving_}) {
    const auto found = std::ranges::find(*list, ticket, &Sequence::ticket);
    if (found != list->end()) return *found;
  }
  return nullptr;
}

Status SequenceTable::CheckIntegrity() const {
  SEQ2SEQ_RETURN_IF_ERROR(pool_.CheckIntegrity());
  if (!empty()) return OkStatus();
  if (pool_.used() != 0) {
    return Internal("no sequence is left, but " + std::to_string(pool_.used()) +
                    " KV blocks are in use");
  }
  if (used_slots() != 0) {
    return Internal("no sequence is left, but " + std::to_string(used_slots()) +
                    " slots are in use");
  }
  return OkStatus();
}

}  // namespace seq2seq
