#include "backend/scheduler/step_planner.h"

namespace seq2seq {

StepPlanner::StepPlanner(Engine* engine, SequenceTable* table)
    : engine_(engine), table_(table), flying_(engine->info().max_steps_in_flight) {
  const int32_t max_slots = engine->info().max_slots;
  plan_.Reserve(max_slots);
  result_.Reserve(max_slots);
  for (auto& rows : flying_) rows.reserve(max_slots);
}

void StepPlanner::AddBind(Sequence* sequence) {
  const Request& request = sequence->request;
  table_->Join(sequence);
  plan_.bind.push_back({.slot = sequence->slot,
                        .pending_tokens = request.decoder_prefix,
                        .position = 0,
                        .generated = 0,
                        .min_new_tokens = request.min_new_tokens,
                        .max_new_tokens = request.max_new_tokens,
                        .sampling = request.sampling,
                        .source_length = static_cast<int32_t>(request.source_ids.size()),
                        .cross_blocks = sequence->cross_blocks(),
                        .self_blocks = sequence->self_blocks()});
}

void StepPlanner::Plan() {
  plan_.Clear();
  for (Sequence* sequence : table_->waiting()) {
    if (table_->free_slots() == 0) break;
    if (sequence->state == SequenceState::kEncoded && !sequence->ended()) AddBind(sequence);
  }
  if (!plan_.bind.empty()) table_->DropJoined();
  std::vector<Sequence*>& rows = flying_[(oldest_ + flying_count_) % flying_.size()];
  rows.clear();
  for (Sequence* sequence : table_->running()) {
    const int32_t expected = sequence->generated + sequence->launches_in_flight;
    if (sequence->ended() || expected >= sequence->request.max_new_tokens) continue;
    plan_.rows.push_back(sequence->slot);
    rows.push_back(sequence);
  }
  if (plan_.rows.empty()) return;
  const auto& stale = table_->stale_slots();
  plan_.unbind.insert(plan_.unbind.end(), stale.begin(), stale.end());
  plan_.step = launches_;
}

Status StepPlanner::LaunchSteps() {
  while (flying_count_ < flying_.size()) {
    Plan();
    if (plan_.rows.empty()) return OkStatus();
    SEQ2SEQ_RETURN_IF_ERROR(engine_->Launch(plan_));
    table_->ClearStaleSlots();
    for (Sequence* sequence : flying_[(oldest_ + flying_count_) % flying_.size()]) {
      ++sequence->launches_in_flight;
    }
    ++flying_count_;
    ++launches_;
  }
  return OkStatus();
}

std::optional<EndedStep> StepPlanner::Poll() {
  if (flying_count_ == 0 || !engine_->PollStep(&result_)) return std::nullopt;
  const std::vector<Sequence*>& rows = flying_[oldest_];
  for (Sequence* sequence : rows) --sequence->launches_in_flight;
  oldest_ = (oldest_ + 1) % flying_.size();
  --flying_count_;
  return EndedStep{.result = result_, .rows = rows};
}

}  // namespace seq2seq
