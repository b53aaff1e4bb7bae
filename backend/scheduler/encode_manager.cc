#include "backend/scheduler/encode_manager.h"

#include <algorithm>
#include <utility>

#include "backend/scheduler/end_errors.h"

namespace seq2seq {

EncodeManager::EncodeManager(Engine* engine, SequenceTable* table, const SchedulingPolicy& policy)
    : engine_(engine),
      table_(table),
      policy_(policy),
      unreported_(engine->info().max_encodes_in_flight) {
  const EngineInfo& info = engine->info();
  batch_.reserve(info.max_encode_items);
  items_.reserve(info.max_encode_items);
  done_.reserve(static_cast<size_t>(info.max_encode_items) * info.max_encodes_in_flight);
}

int64_t EncodeManager::Poll() {
  done_.clear();
  engine_->PollEncoded(&done_);
  int64_t source_tokens = 0;
  for (EncodeDone& done : done_) {
    Sequence* sequence = table_->FindTicket(done.ticket);
    if (sequence == nullptr || sequence->state != SequenceState::kEncoding) continue;
    if (--unreported_[sequence->encode_batch] == 0) --batches_in_flight_;
    sequence->state = SequenceState::kEncoded;
    if (done.status) {
      source_tokens += static_cast<int64_t>(sequence->request.source_ids.size());
    } else if (!sequence->ended()) {
      sequence->Fail(ErrorWithText(ErrorCode::kInternal, [&] {
        return "the engine could not encode the source: " + done.status.error().message;
      }));
    }
  }
  return source_tokens;
}

bool EncodeManager::Wanted(uint64_t launches, bool more_coming) const {
  if (batches_in_flight_ >= engine_->info().max_encodes_in_flight) return false;
  const bool between_steps = started_any_ && launches == launches_at_start_;
  if (between_steps && !table_->running().empty()) return false;
  int32_t admitted = 0;
  for (const Sequence* sequence : table_->waiting()) {
    if (sequence->state == SequenceState::kAdmitted) ++admitted;
  }
  const int32_t on_their_way = static_cast<int32_t>(table_->waiting().size()) - admitted;
  if (admitted == 0) return false;
  return !more_coming || admitted >= policy_.encode_gather || table_->free_slots() > on_their_way;
}

void EncodeManager::Gather() {
  const EngineInfo& info = engine_->info();
  batch_.clear();
  items_.clear();
  int64_t tokens = 0;
  for (Sequence* sequence : table_->waiting()) {
    if (sequence->state != SequenceState::kAdmitted || sequence->ended()) continue;
    tokens += static_cast<int64_t>(sequence->request.source_ids.size());
    // A source longer than the limit goes alone; order of arrival decides, not what would fit.
    if (!batch_.empty() && tokens > info.max_encode_tokens) return;
    batch_.push_back(sequence);
    items_.push_back({.ticket = sequence->ticket,
                      .source_ids = sequence->request.source_ids,
                      .cross_blocks = sequence->cross_blocks()});
    if (static_cast<int32_t>(batch_.size()) == info.max_encode_items) return;
  }
}

Status EncodeManager::Start(uint64_t launches, bool more_coming) {
  if (!Wanted(launches, more_coming)) return OkStatus();
  Gather();
  if (batch_.empty()) return OkStatus();
  started_any_ = true;
  launches_at_start_ = launches;
  if (Status started = engine_->StartEncode(items_); !started) {
    if (!engine_->Health()) return started;
    for (Sequence* sequence : batch_) {
      sequence->Fail(ErrorWithText(ErrorCode::kInternal, [&] {
        return "the engine refused to encode the source: " + started.error().message;
      }));
    }
    return OkStatus();
  }
  const auto place = std::ranges::find(unreported_, 0) - unreported_.begin();
  unreported_[place] = static_cast<int32_t>(batch_.size());
  ++batches_in_flight_;
  for (Sequence* sequence : batch_) {
    sequence->state = SequenceState::kEncoding;
    sequence->encode_batch = static_cast<int32_t>(place);
  }
  return OkStatus();
}

}  // namespace seq2seq
