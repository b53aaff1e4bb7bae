#include "backend/testing/engine_driver.h"

#include <algorithm>
#include <chrono>

namespace seq2seq {
namespace {

constexpr std::chrono::seconds kDeadline(60);

// Calls poll() after every signal until it returns true.
template <typename Poll>
Status WaitUntil(Notifier* notifier, const Poll& poll) {
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (!poll()) {
    if (std::chrono::steady_clock::now() > deadline) return Internal("the engine gave no sign");
    notifier->WaitFor(std::chrono::seconds(1));
  }
  return OkStatus();
}

}  // namespace

EngineDriver::EngineDriver(Engine* engine, Notifier* notifier)
    : engine_(engine), notifier_(notifier) {
  plan_.Reserve(engine->info().max_slots);
  result_.Reserve(engine->info().max_slots);
  for (SlotId slot = engine->info().max_slots - 1; slot >= 0; --slot) free_slots_.push_back(slot);
}

std::vector<BlockId> EngineDriver::TakeBlocks(int64_t tokens) {
  const int32_t size = engine_->info().block_tokens;
  std::vector<BlockId> blocks((tokens + size - 1) / size);
  for (BlockId& block : blocks) block = next_block_++ % engine_->info().total_blocks;
  return blocks;
}

Result<std::vector<DriverSequence>> EngineDriver::Encode(std::span<const DriverRequest> requests) {
  std::vector<DriverSequence> sequences;
  for (const DriverRequest& request : requests) {
    DriverSequence& sequence = sequences.emplace_back();
    sequence.request = request;
    sequence.cross_blocks = TakeBlocks(static_cast<int64_t>(request.source.size()));
    sequence.self_blocks =
        TakeBlocks(static_cast<int64_t>(request.prefix.size()) + request.max_new_tokens - 1);
  }
  const EngineInfo& info = engine_->info();
  std::vector<DriverSequence*> batch;
  int64_t tokens = 0;
  for (DriverSequence& sequence : sequences) {
    const auto length = static_cast<int64_t>(sequence.request.source.size());
    if (!batch.empty() && (static_cast<int32_t>(batch.size()) == info.max_encode_items ||
                           tokens + length > info.max_encode_tokens)) {
      SEQ2SEQ_RETURN_IF_ERROR(EncodeBatch(batch));
      batch.clear();
      tokens = 0;
    }
    batch.push_back(&sequence);
    tokens += length;
  }
  if (!batch.empty()) SEQ2SEQ_RETURN_IF_ERROR(EncodeBatch(batch));
  return sequences;
}

Status EngineDriver::EncodeBatch(std::span<DriverSequence*> batch) {
  std::vector<EncodeItem> items;
  for (size_t i = 0; i < batch.size(); ++i) {
    items.push_back({i, batch[i]->request.source, batch[i]->cross_blocks});
  }
  SEQ2SEQ_RETURN_IF_ERROR(engine_->StartEncode(items));
  done_.clear();
  SEQ2SEQ_RETURN_IF_ERROR(WaitUntil(notifier_, [&] {
    engine_->PollEncoded(&done_);
    return done_.size() >= batch.size();
  }));
  for (const EncodeDone& done : done_) batch[done.ticket]->status = done.status;
  return OkStatus();
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

Status EngineDriver::Step(std::span<DriverSequence* const> rows) {
  ++plan_.step;
  plan_.Clear();
  plan_.unbind.swap(unbind_);
  for (const DriverSequence* sequence : rows) {
    if (sequence->bind) plan_.bind.push_back(RecordFor(*sequence));
    plan_.rows.push_back(sequence->slot);
  }
  SEQ2SEQ_RETURN_IF_ERROR(engine_->Launch(plan_));
  for (SlotId slot : plan_.unbind) std::erase(bound_slots_, slot);
  for (const BindRecord& record : plan_.bind) bound_slots_.push_back(record.slot);
  SEQ2SEQ_RETURN_IF_ERROR(WaitUntil(notifier_, [&] { return engine_->PollStep(&result_); }));
  SEQ2SEQ_RETURN_IF_ERROR(result_.status);
  if (result_.step != plan_.step || result_.rows.size() != rows.size()) {
    return Internal("the result belongs to another plan");
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const RowResult& row = result_.rows[i];
    DriverSequence& sequence = *rows[i];
    if (row.slot != sequence.slot) return Internal("a row of the result has another slot");
    for (int32_t token = row.first_token; token < row.first_token + row.token_count; ++token) {
      sequence.cached +=
          sequence.tokens.empty() ? static_cast<int32_t>(sequence.request.prefix.size()) : 1;
      sequence.tokens.push_back(result_.tokens[token]);
      sequence.logprobs.push_back(result_.logprobs[token]);
    }
    sequence.bind = false;
    sequence.score = row.score;
    if (row.token_count > 0) sequence.stop = row.stop;
  }
  return OkStatus();
}

Result<std::vector<DriverSequence>> EngineDriver::Generate(
    std::span<const DriverRequest> requests) {
  SEQ2SEQ_ASSIGN_OR_RETURN(std::vector<DriverSequence> sequences, Encode(requests));
  std::vector<DriverSequence*> running;
  for (DriverSequence& sequence : sequences) {
    if (!sequence.status) continue;
    Enter(&sequence);
    running.push_back(&sequence);
  }
  while (!running.empty()) {
    SEQ2SEQ_RETURN_IF_ERROR(Step(running));
    std::erase_if(running, [this](DriverSequence* sequence) {
      if (sequence->stop == StopReason::kNone) return false;
      Leave(sequence);
      return true;
    });
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
