#include "backend/testing/fake_engine.h"

#include <algorithm>
#include <utility>

namespace seq2seq {
namespace {

template <typename T>
bool Contains(const std::vector<T>& values, const T& value) {
  return std::ranges::find(values, value) != values.end();
}

template <typename T>
std::vector<T> Copy(std::span<const T> values) {
  return {values.begin(), values.end()};
}

LaunchedStep CopyPlan(const StepPlan& plan) {
  LaunchedStep copy{.step = plan.step, .unbind = plan.unbind, .bind = {}, .rows = plan.rows};
  for (const BindRecord& record : plan.bind) {
    copy.bind.push_back({.slot = record.slot,
                         .pending_tokens = Copy(record.pending_tokens),
                         .position = record.position,
                         .generated = record.generated,
                         .min_new_tokens = record.min_new_tokens,
                         .max_new_tokens = record.max_new_tokens,
                         .sampling = record.sampling,
                         .source_length = record.source_length,
                         .cross_blocks = Copy(record.cross_blocks),
                         .self_blocks = Copy(record.self_blocks)});
  }
  return copy;
}

}  // namespace

FakeEngine::FakeEngine(FakeEngineOptions options, Notifier* notifier)
    : options_(std::move(options)),
      notifier_(notifier),
      rules_(options_.info),
      slots_(options_.info.max_slots) {
  if (options_.manual) return;
  encode_thread_ = std::thread([this] { EncodeThread(); });
  step_thread_ = std::thread([this] { StepThread(); });
}

FakeEngine::~FakeEngine() { Retire(); }

void FakeEngine::Retire() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (encode_thread_.joinable()) encode_thread_.join();
  if (step_thread_.joinable()) step_thread_.join();
  std::lock_guard lock(mutex_);
  notifier_ = nullptr;
  encodes_.clear();
  steps_.clear();
}

Status FakeEngine::Health() const {
  std::lock_guard lock(mutex_);
  if (lost_) return Unavailable("the fake engine is lost: " + *lost_);
  return OkStatus();
}

Status FakeEngine::StartEncode(std::span<const EncodeItem> batch) {
  std::lock_guard lock(mutex_);
  rules_.OnCall();
  if (lost_) return Unavailable("the fake engine is lost: " + *lost_);
  if (refuse_start_encodes_ > 0) {
    --refuse_start_encodes_;
    return Internal("the fake engine was told to refuse StartEncode");
  }
  rules_.OnStartEncode(batch);
  std::vector<uint64_t> tickets;
  for (const EncodeItem& item : batch) {
    encodes_.push_back({.ordinal = encodes_started_++,
                        .ticket = item.ticket,
                        .source_ids = item.source_ids,
                        .cross_blocks = item.cross_blocks,
                        .source_copy = Copy(item.source_ids),
                        .blocks_copy = Copy(item.cross_blocks),
                        .ended = false,
                        .status = {}});
    tickets.push_back(item.ticket);
  }
  encode_batches_.push_back(std::move(tickets));
  changed_.notify_all();
  return OkStatus();
}

void FakeEngine::PollEncoded(std::vector<EncodeDone>* done) {
  std::lock_guard lock(mutex_);
  rules_.OnCall();
  while (!encodes_.empty() && encodes_.front().ended) {
    if (done->size() == done->capacity()) rules_.Violate("PollEncoded without reserved room");
    Encode& encode = encodes_.front();
    rules_.OnEncodePolled(encode.ticket, encode.status.has_value());
    done->push_back({.ticket = encode.ticket, .status = std::move(encode.status)});
    encodes_.pop_front();
  }
}

Status FakeEngine::Launch(const StepPlan& plan) {
  std::lock_guard lock(mutex_);
  rules_.OnCall();
  if (lost_) return Unavailable("the fake engine is lost: " + *lost_);
  if (refuse_launches_ > 0) {
    --refuse_launches_;
    return Internal("the fake engine was told to refuse Launch");
  }
  rules_.OnLaunch(plan);
  launched_.push_back(CopyPlan(plan));
  steps_.push_back({.ordinal = static_cast<int64_t>(launched_.size()) - 1,
                    .plan = launched_.back(),
                    .ended = false,
                    .result = {}});
  changed_.notify_all();
  return OkStatus();
}

bool FakeEngine::PollStep(StepResult* result) {
  std::lock_guard lock(mutex_);
  rules_.OnCall();
  if (steps_.empty() || !steps_.front().ended) return false;
  if (result->rows.capacity() < static_cast<size_t>(options_.info.max_slots)) {
    rules_.Violate("PollStep without reserved room");
  }
  const StepResult& ended = steps_.front().result;
  rules_.OnStepPolled(ended);
  // Keeps the caller's storage, as an engine does that does not allocate.
  result->Clear();
  result->step = ended.step;
  result->status = ended.status;
  result->rows.insert(result->rows.end(), ended.rows.begin(), ended.rows.end());
  result->tokens.insert(result->tokens.end(), ended.tokens.begin(), ended.tokens.end());
  result->logprobs.insert(result->logprobs.end(), ended.logprobs.begin(), ended.logprobs.end());
  steps_.pop_front();
  changed_.notify_all();
  return true;
}

void FakeEngine::EndEncode(Encode* encode) {
  encode->ended = true;
  if (lost_) {
    encode->status = Internal("the fake engine was lost: " + *lost_);
    return;
  }
  if (!std::ranges::equal(encode->source_ids, encode->source_copy) ||
      !std::ranges::equal(encode->cross_blocks, encode->blocks_copy)) {
    rules_.Violate("what ticket " + std::to_string(encode->ticket) +
                   " names changed before the encode ended");
  }
  if (Contains(fail_tickets_, encode->ticket) || Contains(fail_encodes_, encode->ordinal)) {
    encode->status = Internal("the fake engine was told to fail this encode");
    return;
  }
  if (!encode->blocks_copy.empty()) sources_[encode->blocks_copy[0]] = encode->source_copy;
}

void FakeEngine::ExecuteRow(SlotId slot_id, StepResult* result) {
  Slot& slot = slots_[slot_id];
  RowResult row{.slot = slot_id,
                .parent_row = static_cast<int32_t>(result->rows.size()),
                .first_token = static_cast<int32_t>(result->tokens.size()),
                .token_count = 0,
                .score = slot.score,
                .stop = StopReason::kNone};
  slot.pending = std::max(0, slot.pending - options_.prefix_tokens_a_step);
  if (!slot.ended && !slot.source_ids.empty() && slot.pending == 0) {
    const int32_t token =
        FakeToken(options_.tokens, slot.source_ids, slot.generated, slot.min_new_tokens);
    slot.score += FakeLogprob(slot.generated);
    result->tokens.push_back(token);
    result->logprobs.push_back(slot.return_logprobs ? FakeLogprob(slot.generated) : 0.0F);
    ++slot.generated;
    if (token == options_.tokens.eos_token) {
      row.stop = StopReason::kEos;
    } else if (slot.generated >= slot.max_new_tokens) {
      row.stop = StopReason::kLength;
    }
    slot.ended = row.stop != StopReason::kNone;
    row.token_count = 1;
    row.score = slot.score;
  }
  result->rows.push_back(row);
}

void FakeEngine::EndStep(Step* step) {
  if (fail_step_ == step->ordinal && !lost_) {
    LoseDeviceLocked("step " + std::to_string(step->ordinal) + " failed as told");
    return;  // has ended this step too
  }
  step->ended = true;
  step->result.step = step->plan.step;
  if (lost_) {
    step->result.status = Internal("the fake engine was lost: " + *lost_);
    return;
  }
  for (const BindCopy& bind : step->plan.bind) {
    const auto source =
        bind.cross_blocks.empty() ? sources_.end() : sources_.find(bind.cross_blocks[0]);
    slots_[bind.slot] = {
        .source_ids = source == sources_.end() ? std::vector<int32_t>{} : source->second,
        .pending = static_cast<int32_t>(bind.pending_tokens.size()),
        .generated = bind.generated,
        .min_new_tokens = bind.min_new_tokens,
        .max_new_tokens = bind.max_new_tokens,
        .return_logprobs = bind.sampling.return_logprobs,
        .ended = false,
        .score = 0.0F};
  }
  for (SlotId slot : step->plan.rows) ExecuteRow(slot, &step->result);
}

void FakeEngine::LoseDeviceLocked(const std::string& why) {
  if (lost_) return;
  lost_ = why;
  for (Encode& encode : encodes_) {
    if (!encode.ended) EndEncode(&encode);
  }
  for (Step& step : steps_) {
    if (!step.ended) EndStep(&step);
  }
}

FakeEngine::Encode* FakeEngine::OldestRunningEncode() {
  const auto found = std::ranges::find(encodes_, false, &Encode::ended);
  return found == encodes_.end() ? nullptr : &*found;
}

FakeEngine::Step* FakeEngine::OldestRunningStep() {
  const auto found = std::ranges::find(steps_, false, &Step::ended);
  return found == steps_.end() ? nullptr : &*found;
}

void FakeEngine::Ring() {
  if (notifier_ != nullptr) notifier_->Notify();
}

void FakeEngine::EncodeThread() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || OldestRunningEncode() != nullptr; });
    if (OldestRunningEncode() == nullptr) return;
    if (options_.encode_delay.count() > 0) {
      changed_.wait_for(lock, options_.encode_delay, [this] { return stopping_; });
    }
    // Looked up again: a lost device may have ended it meanwhile.
    if (Encode* encode = OldestRunningEncode()) EndEncode(encode);
    Ring();
  }
}

void FakeEngine::StepThread() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || OldestRunningStep() != nullptr; });
    if (OldestRunningStep() == nullptr) return;
    if (options_.step_delay.count() > 0) {
      changed_.wait_for(lock, options_.step_delay, [this] { return stopping_; });
    }
    if (Step* step = OldestRunningStep()) EndStep(step);
    Ring();
  }
}

std::vector<std::string> FakeEngine::violations() const {
  std::lock_guard lock(mutex_);
  return rules_.violations();
}

void FakeEngine::FailEncode(uint64_t ticket) {
  std::lock_guard lock(mutex_);
  fail_tickets_.push_back(ticket);
}

void FakeEngine::FailNthEncode(int64_t n) {
  std::lock_guard lock(mutex_);
  fail_encodes_.push_back(n);
}

void FakeEngine::FailNthStep(int64_t n) {
  std::lock_guard lock(mutex_);
  fail_step_ = n;
}

void FakeEngine::LoseDevice() {
  std::lock_guard lock(mutex_);
  LoseDeviceLocked("told so");
  Ring();
}

void FakeEngine::RefuseStartEncodes(int count) {
  std::lock_guard lock(mutex_);
  refuse_start_encodes_ = count;
}

void FakeEngine::RefuseLaunches(int count) {
  std::lock_guard lock(mutex_);
  refuse_launches_ = count;
}

int FakeEngine::CompleteEncodes(int count) {
  std::lock_guard lock(mutex_);
  int completed = 0;
  for (; completed < count; ++completed) {
    Encode* encode = OldestRunningEncode();
    if (encode == nullptr) break;
    EndEncode(encode);
  }
  if (completed > 0) Ring();
  return completed;
}

bool FakeEngine::CompleteStep() {
  std::lock_guard lock(mutex_);
  Step* step = OldestRunningStep();
  if (step == nullptr) return false;
  EndStep(step);
  Ring();
  return true;
}

std::vector<std::vector<uint64_t>> FakeEngine::encode_batches() const {
  std::lock_guard lock(mutex_);
  return encode_batches_;
}

std::vector<LaunchedStep> FakeEngine::launched_steps() const {
  std::lock_guard lock(mutex_);
  return launched_;
}

int64_t FakeEngine::encodes_started() const {
  std::lock_guard lock(mutex_);
  return encodes_started_;
}

int64_t FakeEngine::steps_launched() const {
  std::lock_guard lock(mutex_);
  return static_cast<int64_t>(launched_.size());
}

int FakeEngine::encodes_in_flight() const {
  std::lock_guard lock(mutex_);
  return static_cast<int>(encodes_.size());
}

int FakeEngine::steps_in_flight() const {
  std::lock_guard lock(mutex_);
  return static_cast<int>(steps_.size());
}

bool FakeEngine::WaitEncodesStarted(int64_t sources, std::chrono::milliseconds timeout) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [&] { return encodes_started_ >= sources; });
}

bool FakeEngine::WaitStepsLaunched(int64_t steps, std::chrono::milliseconds timeout) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout,
                           [&] { return static_cast<int64_t>(launched_.size()) >= steps; });
}

}  // namespace seq2seq
