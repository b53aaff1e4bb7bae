#include "backend/testing/faulty_engine.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "backend/core/format.h"
#include "backend/testing/device_trap.h"

namespace seq2seq {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;
constexpr int64_t kMostMs = 3'600'000;

Result<std::optional<int64_t>> ReadNumber(const char* variable, int64_t most) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return std::optional<int64_t>();
  const std::string_view digits = text;
  int64_t value = 0;
  const auto [stop, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (code != std::errc() || stop != digits.data() + digits.size() || value < 0 || value > most) {
    return InvalidArgument(Format("environment variable {} is '{}'; a number in [0, {}] is allowed",
                                  variable, text, most));
  }
  return std::optional<int64_t>(value);
}

}  // namespace

Result<EngineFaults> EngineFaultsFromEnvironment() {
  EngineFaults faults;
  SEQ2SEQ_ASSIGN_OR_RETURN(const auto delay_ms, ReadNumber("SEQ2SEQ_TEST_STEP_DELAY_MS", kMostMs));
  faults.step_delay_ns = delay_ms.value_or(0) * kNsPerMs;
  SEQ2SEQ_ASSIGN_OR_RETURN(faults.fail_step, ReadNumber("SEQ2SEQ_TEST_FAIL_STEP", INT64_MAX));
  SEQ2SEQ_ASSIGN_OR_RETURN(faults.trap_step, ReadNumber("SEQ2SEQ_TEST_TRAP_STEP", INT64_MAX));
  SEQ2SEQ_ASSIGN_OR_RETURN(const auto token,
                           ReadNumber("SEQ2SEQ_TEST_FAIL_ENCODE_TOKEN", INT32_MAX));
  if (token) faults.fail_encode_token = static_cast<int32_t>(*token);
  return faults;
}

FaultyEngine::FaultyEngine(std::unique_ptr<Engine> engine, const EngineFaults& faults,
                           const Clock* clock)
    : engine_(std::move(engine)), faults_(faults), clock_(clock) {}

Status FaultyEngine::Health() const {
  {
    std::lock_guard lock(mutex_);
    if (failed_) return Unavailable("the engine failed as SEQ2SEQ_TEST_FAIL_STEP says");
  }
  return engine_->Health();
}

bool FaultyEngine::MustFail(const EncodeItem& item) const {
  return faults_.fail_encode_token &&
         std::ranges::find(item.source_ids, *faults_.fail_encode_token) != item.source_ids.end();
}

Status FaultyEngine::StartEncode(std::span<const EncodeItem> batch) {
  SEQ2SEQ_RETURN_IF_ERROR(Health());
  SEQ2SEQ_RETURN_IF_ERROR(engine_->StartEncode(batch));
  for (const EncodeItem& item : batch) {
    if (MustFail(item)) doomed_.push_back(item.ticket);
  }
  return OkStatus();
}

void FaultyEngine::PollEncoded(std::vector<EncodeDone>* done) {
  const size_t before = done->size();
  engine_->PollEncoded(done);
  for (size_t i = before; i < done->size(); ++i) {
    EncodeDone& encode = (*done)[i];
    if (std::erase(doomed_, encode.ticket) == 0) continue;
    encode.status = Internal(Format("the encode failed as SEQ2SEQ_TEST_FAIL_ENCODE_TOKEN={} says",
                                    *faults_.fail_encode_token));
  }
}

Status FaultyEngine::Launch(const StepPlan& plan) {
  SEQ2SEQ_RETURN_IF_ERROR(Health());
  // The step before has made the engine's device this thread's current one.
  if (++steps_launched_ == faults_.trap_step) SEQ2SEQ_RETURN_IF_ERROR(TrapDevice());
  SEQ2SEQ_RETURN_IF_ERROR(engine_->Launch(plan));
  last_due_ns_ = std::max(clock_->NowNs(), last_due_ns_) + faults_.step_delay_ns;
  due_ns_.push_back(last_due_ns_);
  return OkStatus();
}

bool FaultyEngine::PollStep(StepResult* result) {
  if (due_ns_.empty() || clock_->NowNs() < due_ns_.front()) return false;
  if (!engine_->PollStep(result)) return false;
  due_ns_.pop_front();
  ++steps_polled_;
  std::lock_guard lock(mutex_);
  if (steps_polled_ == faults_.fail_step) failed_ = true;
  if (failed_) {
    const uint64_t step = result->step;
    result->Clear();
    result->step = step;
    result->status = Internal("the step failed as SEQ2SEQ_TEST_FAIL_STEP says");
  }
  return true;
}

Result<std::unique_ptr<Engine>> FaultyEngineFactory::Create(const EngineOptions& options,
                                                            Notifier* notifier) {
  SEQ2SEQ_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, factory_->Create(options, notifier));
  return std::make_unique<FaultyEngine>(std::move(engine), faults_, clock_.get());
}

}  // namespace seq2seq
