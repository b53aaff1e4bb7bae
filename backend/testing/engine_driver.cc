#include "backend/testing/engine_driver.h"

#include <algorithm>

#include "backend/core/format.h"

namespace seq2seq {
namespace {

constexpr std::chrono::seconds kDeadline(60);

// Calls poll(), which returns Result<bool>, after every signal until it returns true.
template <typename Poll>
Status WaitUntil(Notifier* notifier, const Poll& poll) {
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (true) {
    SEQ2SEQ_ASSIGN_OR_RETURN(const bool done, poll());
    if (done) return OkStatus();
    if (std::chrono::steady_clock::now() > deadline) return Internal("the engine gave no sign");
    notifier->WaitFor(std::chrono::seconds(1));
  }
}

}  // namespace

DriverRequest TinyRequest(int32_t seed, int32_t source_length, int32_t new_tokens) {
  DriverRequest request;
  for (int32_t i = 0; i < source_length; ++i) {
    request.source.push_back(2 + (seed * 13 + i * 7 + i * i) % 38);
  }
  request.min_new_tokens = new_tokens;
  request.max_new_tokens = new_tokens;
  request.sampling.return_logprobs = true;
  return request;
}

EngineDriver::EngineDriver(Engine* engine, Notifier* notifier)
    : engine_(engine), notifier_(notifier) {
  plan_.Reserve(engine->info().max_slots);
  result_.Reserve(engine->info().max_slots);
  for (SlotId slot = engine->info().max_slots - 1; slot >= 0; --slot) free_slots_.push_back(slot);
}

double EngineDriver::Now() const {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin_)
      .count();
}

Result<std::vector<BlockId>> EngineDriver::TakeBlocks(int64_t tokens) {
  const EngineInfo& info = engine_->info();
  std::vector<BlockId> blocks((tokens + info.block_tokens - 1) / info.block_tokens);
  for (BlockId& block : blocks) block = next_block_++;
  if (next_block_ <= info.total_blocks) return blocks;
  return InvalidArgument(Format("{} KV blocks are needed of {}", next_block_, info.total_blocks));
}

// Sequences with blocks of their own.
Result<std::vector<DriverSequence>> EngineDriver::Admit(std::span<const DriverRequest> requests) {
  std::vector<DriverSequence> sequences;
  for (const DriverRequest& request : requests) {
    DriverSequence& sequence = sequences.emplace_back();
    sequence.request = request;
    SEQ2SEQ_ASSIGN_OR_RETURN(sequence.cross_blocks,
                             TakeBlocks(static_cast<int64_t>(request.source.size())));
    SEQ2SEQ_ASSIGN_OR_RETURN(
        sequence.self_blocks,
        TakeBlocks(static_cast<int64_t>(request.prefix.size()) + request.max_new_tokens - 1));
  }
  next_encode_ = 0;
  encoded_count_ = 0;
  return sequences;
}

// Starts as many encodes as the engine takes.
Status EngineDriver::StartEncodes(std::span<DriverSequence> sequences) {
  const EngineInfo& info = engine_->info();
  while (next_encode_ < sequences.size() &&
         static_cast<int32_t>(encodes_.size()) < info.max_encodes_in_flight) {
    std::vector<EncodeItem> batch;
    int64_t tokens = 0;
    const size_t encode = next_encode_;
    for (; next_encode_ < sequences.size(); ++next_encode_) {
      DriverSequence& sequence = sequences[next_encode_];
      tokens += static_cast<int64_t>(sequence.request.source.size());
      const bool full = static_cast<int32_t>(batch.size()) == info.max_encode_items ||
                        tokens > info.max_encode_tokens;
      if (!batch.empty() && full) break;
      sequence.encode = encode;
      batch.push_back({next_encode_, sequence.request.source, sequence.cross_blocks});
    }
    SEQ2SEQ_RETURN_IF_ERROR(engine_->StartEncode(batch));
    encodes_[encode] = batch.size();
  }
  return OkStatus();
}

void EngineDriver::TakeEncoded(std::span<DriverSequence> sequences) {
  done_.clear();
  engine_->PollEncoded(&done_);
  for (const EncodeDone& done : done_) {
    DriverSequence& sequence = sequences[done.ticket];
    sequence.encoded = true;
    sequence.status = done.status;
    ++encoded_count_;
    if (--encodes_[sequence.encode] == 0) encodes_.erase(sequence.encode);
  }
}

Result<std::vector<DriverSequence>> EngineDriver::Encode(std::span<const DriverRequest> requests) {
  SEQ2SEQ_ASSIGN_OR_RETURN(std::vector<DriverSequence> sequences, Admit(requests));
  SEQ2SEQ_RETURN_IF_ERROR(WaitUntil(notifier_, [&]() -> Result<bool> {
    TakeEncoded(sequences);
    SEQ2SEQ_RETURN_IF_ERROR(StartEncodes(sequences));
    return encoded_count_ == sequences.size();
  }));
  return sequences;
}

void EngineDriver::Enter(DriverSequence* sequence) {
  sequence->slot = free_slots_.back();
  free_slots_.pop_back();
  sequence->bind = true;
}

void EngineDriver::Leave(DriverSequence* sequence) {
  if (!sequence->bind) unbind_.push_back(sequence->slot);
  free_slots_.push_back(sequence->slot);
  sequence->slot = -1;
  sequence->bind = false;
}

BindRecord EngineDriver::RecordFor(const DriverSequence& sequence) const {
  const DriverRequest& request = sequence.request;
  BindRecord record;
  record.slot = sequence.slot;
  record.position = sequence.cached;
  record.generated = static_cast<int32_t>(sequence.tokens.size());
  record.min_new_tokens = request.min_new_tokens;
  record.max_new_tokens = request.max_new_tokens;
  record.sampling = request.sampling;
  record.source_length = static_cast<int32_t>(request.source.size());
  record.cross_blocks = sequence.cross_blocks;
  record.self_blocks = sequence.self_blocks;
  if (sequence.tokens.empty()) {
    record.pending_tokens = request.prefix;
  } else {
    record.pending_tokens = std::span(sequence.tokens).last(1);
  }
  return record;
}

Status EngineDriver::LaunchStep(std::span<DriverSequence* const> rows) {
  ++plan_.step;
  plan_.Clear();
  plan_.unbind.swap(unbind_);
  FlyingStep flying{plan_.step, {}};
  for (DriverSequence* sequence : rows) {
    if (sequence->bind) plan_.bind.push_back(RecordFor(*sequence));
    plan_.rows.push_back(sequence->slot);
    flying.rows.emplace_back(sequence, sequence->slot);
  }
  SEQ2SEQ_RETURN_IF_ERROR(engine_->Launch(plan_));
  for (const SlotId slot : plan_.unbind) std::erase(bound_slots_, slot);
  for (const BindRecord& record : plan_.bind) bound_slots_.push_back(record.slot);
  for (DriverSequence* sequence : rows) {
    sequence->bind = false;
    ++sequence->launched;
  }
  flying_.push_back(std::move(flying));
  return OkStatus();
}

// Whether the oldest step in flight has ended.
Result<bool> EngineDriver::TakeStep() {
  if (flying_.empty() || !engine_->PollStep(&result_)) return false;
  const FlyingStep step = std::move(flying_.front());
  flying_.pop_front();
  SEQ2SEQ_RETURN_IF_ERROR(result_.status);
  if (result_.step != step.step || result_.rows.size() != step.rows.size()) {
    return Internal("the result belongs to another plan");
  }
  for (size_t i = 0; i < step.rows.size(); ++i) {
    const RowResult& row = result_.rows[i];
    DriverSequence& sequence = *step.rows[i].first;
    if (row.slot != step.rows[i].second) return Internal("a row of the result has another slot");
    for (int32_t token = row.first_token; token < row.first_token + row.token_count; ++token) {
      sequence.cached +=
          sequence.tokens.empty() ? static_cast<int32_t>(sequence.request.prefix.size()) : 1;
      sequence.tokens.push_back(result_.tokens[token]);
      sequence.logprobs.push_back(result_.logprobs[token]);
    }
    if (row.token_count == 0) {
      --sequence.launched;  // its prefix takes more steps, or it has ended
      continue;
    }
    if (sequence.first_token_ms == 0.0) sequence.first_token_ms = Now();
    sequence.score = row.score;
    sequence.stop = row.stop;
  }
  return true;
}

Status EngineDriver::AwaitStep() {
  return WaitUntil(notifier_, [&] { return TakeStep(); });
}

Status EngineDriver::Step(std::span<DriverSequence* const> rows) {
  SEQ2SEQ_RETURN_IF_ERROR(LaunchStep(rows));
  return AwaitStep();
}

// Launches a step of all sequences that may have more tokens to come; false if there is none.
Result<bool> EngineDriver::LaunchReady(std::span<DriverSequence> sequences, DecodeStart start) {
  if (static_cast<int32_t>(flying_.size()) >= engine_->info().max_steps_in_flight) return false;
  if (start == DecodeStart::kTogether && encoded_count_ < sequences.size()) return false;
  std::vector<DriverSequence*> rows;
  for (DriverSequence& sequence : sequences) {
    const bool ready = sequence.encoded && sequence.status && sequence.stop == StopReason::kNone &&
                       sequence.launched < sequence.request.max_new_tokens;
    if (!ready) continue;
    if (sequence.slot < 0) Enter(&sequence);
    rows.push_back(&sequence);
  }
  if (rows.empty()) return false;
  SEQ2SEQ_RETURN_IF_ERROR(LaunchStep(rows));
  return true;
}

void EngineDriver::NoteStepEnd(size_t sequences) {
  const double now = Now();
  if (last_step_end_ > 0.0 && result_.rows.size() == sequences) {
    times_.steps.push_back(now - last_step_end_);
  }
  last_step_end_ = now;
}

Result<std::vector<DriverSequence>> EngineDriver::Generate(std::span<const DriverRequest> requests,
                                                           DecodeStart start) {
  if (requests.size() > free_slots_.size()) {
    return InvalidArgument(Format("{} requests for {} slots", requests.size(), free_slots_.size()));
  }
  begin_ = std::chrono::steady_clock::now();
  times_ = {};
  last_step_end_ = 0.0;
  SEQ2SEQ_ASSIGN_OR_RETURN(std::vector<DriverSequence> sequences, Admit(requests));
  SEQ2SEQ_RETURN_IF_ERROR(WaitUntil(notifier_, [&]() -> Result<bool> {
    TakeEncoded(sequences);
    SEQ2SEQ_RETURN_IF_ERROR(StartEncodes(sequences));
    for (bool worked = true; worked;) {
      SEQ2SEQ_ASSIGN_OR_RETURN(const bool took, TakeStep());
      if (took) NoteStepEnd(sequences.size());
      SEQ2SEQ_ASSIGN_OR_RETURN(const bool launched, LaunchReady(sequences, start));
      worked = took || launched;
    }
    return encoded_count_ == sequences.size() && flying_.empty();
  }));
  times_.total = Now();
  for (DriverSequence& sequence : sequences) {
    if (sequence.slot >= 0) Leave(&sequence);
  }
  return sequences;
}

void EngineDriver::Reset() {
  next_block_ = 0;
  unbind_ = bound_slots_;
  free_slots_.clear();
  for (SlotId slot = engine_->info().max_slots - 1; slot >= 0; --slot) free_slots_.push_back(slot);
}

}  // namespace seq2seq
