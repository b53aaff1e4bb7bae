#include "backend/testing/batch_runner.h"

#include "backend/core/format.h"

namespace seq2seq {
namespace {

constexpr double kDeadlineMs = 120'000.0;

}  // namespace

double BatchRunner::Now() const {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin_)
      .count();
}

Result<std::vector<BatchOutcome>> BatchRunner::Run(const std::vector<BatchRequest>& requests) {
  begin_ = std::chrono::steady_clock::now();
  sequences_.assign(requests.size(), {});
  next_encode_ = 0;
  encoded_count_ = 0;
  ended_ = 0;
  last_step_end_ = 0.0;
  step_ms_.clear();
  encoded_.clear();
  SEQ2SEQ_RETURN_IF_ERROR(HandOutBlocks(requests));
  std::vector<BatchOutcome> outcomes(requests.size());
  while (ended_ < requests.size() || steps_in_flight_ > 0) {
    if (Now() > kDeadlineMs) return Internal("the batch did not end in time");
    SEQ2SEQ_RETURN_IF_ERROR(StartEncode(requests));
    SEQ2SEQ_ASSIGN_OR_RETURN(bool progress, TakeEncoded());
    SEQ2SEQ_ASSIGN_OR_RETURN(const bool took, TakeStep(&outcomes));
    SEQ2SEQ_ASSIGN_OR_RETURN(const bool launched, LaunchStep(requests));
    progress = progress || took || launched;
    if (!progress) notifier_->WaitFor(std::chrono::milliseconds(1));
  }
  total_ms_ = Now();
  return outcomes;
}

Status BatchRunner::HandOutBlocks(const std::vector<BatchRequest>& requests) {
  const EngineInfo& info = engine_->info();
  if (requests.size() > static_cast<size_t>(info.max_slots)) {
    return InvalidArgument(Format("{} requests for {} slots", requests.size(), info.max_slots));
  }
  int32_t next = 0;
  const auto take = [&](size_t tokens, std::vector<BlockId>* blocks) {
    const size_t count = (tokens + info.block_tokens - 1) / info.block_tokens;
    for (size_t i = 0; i < count; ++i) blocks->push_back(next++);
  };
  for (size_t i = 0; i < requests.size(); ++i) {
    take(requests[i].source.size(), &sequences_[i].cross_blocks);
    take(requests[i].prefix.size() + requests[i].max_new_tokens - 1, &sequences_[i].self_blocks);
  }
  if (next <= info.total_blocks) return OkStatus();
  return InvalidArgument(Format("{} KV blocks are needed of {}", next, info.total_blocks));
}

Status BatchRunner::StartEncode(const std::vector<BatchRequest>& requests) {
  const EngineInfo& info = engine_->info();
  if (encodes_in_flight_ >= info.max_encodes_in_flight) return OkStatus();
  std::vector<EncodeItem> batch;
  size_t tokens = 0;
  while (next_encode_ < requests.size() &&
         batch.size() < static_cast<size_t>(info.max_encode_items)) {
    const std::vector<int32_t>& source = requests[next_encode_].source;
    const bool fits = tokens + source.size() <= static_cast<size_t>(info.max_encode_tokens);
    if (!batch.empty() && !fits) break;
    batch.push_back({next_encode_, source, sequences_[next_encode_].cross_blocks});
    tokens += source.size();
    ++next_encode_;
  }
  if (batch.empty()) return OkStatus();
  ++encodes_in_flight_;
  return engine_->StartEncode(batch);
}

Result<bool> BatchRunner::TakeEncoded() {
  encoded_.clear();
  engine_->PollEncoded(&encoded_);
  for (const EncodeDone& done : encoded_) {
    SEQ2SEQ_RETURN_IF_ERROR(done.status);
    sequences_[done.ticket].encoded = true;
    if (++encoded_count_ == sequences_.size()) encode_ms_ = Now();
  }
  if (encoded_.empty()) return false;
  --encodes_in_flight_;
  return true;
}

Result<bool> BatchRunner::LaunchStep(const std::vector<BatchRequest>& requests) {
  if (steps_in_flight_ >= engine_->info().max_steps_in_flight) return false;
  if (start_ == Start::kTogether && encoded_count_ < sequences_.size()) return false;
  plan_.Clear();
  for (size_t i = 0; i < sequences_.size(); ++i) {
    Sequence& sequence = sequences_[i];
    const BatchRequest& request = requests[i];
    if (!sequence.encoded || sequence.ended || sequence.launched == request.max_new_tokens)
      continue;
    if (!sequence.bound) {
      sequence.bound = true;
      BindRecord bind;
      bind.slot = static_cast<SlotId>(i);
      bind.pending_tokens = request.prefix;
      bind.min_new_tokens = request.min_new_tokens;
      bind.max_new_tokens = request.max_new_tokens;
      bind.sampling = request.sampling;
      bind.source_length = static_cast<int32_t>(request.source.size());
      bind.cross_blocks = sequence.cross_blocks;
      bind.self_blocks = sequence.self_blocks;
      plan_.bind.push_back(bind);
    }
    plan_.rows.push_back(static_cast<SlotId>(i));
    ++sequence.launched;
  }
  if (plan_.rows.empty()) return false;
  plan_.step = step_++;
  SEQ2SEQ_RETURN_IF_ERROR(engine_->Launch(plan_));
  ++steps_in_flight_;
  return true;
}

Result<bool> BatchRunner::TakeStep(std::vector<BatchOutcome>* outcomes) {
  if (!engine_->PollStep(&result_)) return false;
  --steps_in_flight_;
  SEQ2SEQ_RETURN_IF_ERROR(result_.status);
  const double now = Now();
  for (const RowResult& row : result_.rows) {
    BatchOutcome& outcome = (*outcomes)[row.slot];
    if (row.token_count == 0) continue;
    if (outcome.tokens.empty()) outcome.first_token_ms = now;
    for (int32_t i = row.first_token; i < row.first_token + row.token_count; ++i) {
      outcome.tokens.push_back(result_.tokens[i]);
      outcome.logprobs.push_back(result_.logprobs[i]);
    }
    outcome.score = row.score;
    outcome.stop = row.stop;
    if (row.stop != StopReason::kNone) {
      sequences_[row.slot].ended = true;
      ++ended_;
    }
  }
  if (last_step_end_ > 0.0 && result_.rows.size() == sequences_.size()) {
    step_ms_.push_back(now - last_step_end_);
  }
  last_step_end_ = now;
  return true;
}

}  // namespace seq2seq
