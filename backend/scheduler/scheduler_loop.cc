#include "backend/scheduler/scheduler_loop.h"

#include <cassert>
#include <exception>
#include <string>

#include "backend/scheduler/admission.h"
#include "backend/scheduler/departures.h"
#include "backend/scheduler/end_errors.h"
#include "backend/scheduler/result_applier.h"

namespace seq2seq {

SchedulerLoop::SchedulerLoop(const SchedulerContext& context)
    : context_(context),
      policy_(PolicyFor(context.engine->info())),
      table_(context.engine->info(), policy_.max_ahead),
      encodes_(context.engine, &table_, policy_),
      steps_(context.engine, &table_) {
  const EngineInfo& info = context_.engine->info();
  ReportGauges();
  context_.queue->AddListener(context_.notifier, info.total_blocks, info.block_tokens);
}

SchedulerLoop::~SchedulerLoop() { context_.queue->RemoveListener(context_.notifier); }

void SchedulerLoop::RunOnce() {
  try {
    Work();
  } catch (const std::exception& thrown) {
    FailEngine(ErrorWithText(ErrorCode::kInternal, [&] {
      return "the scheduler was stopped by an exception: " + std::string(thrown.what());
    }));
    table_.Settle();
  }
  ReportGauges();
  assert(!table_.empty() || table_.CheckIntegrity());
}

void SchedulerLoop::Work() {
  TakeInSteps();
  TakeInEncodes();
  if (serving_) {
    // An engine can fail while it has no work to report it with.
    if (Status health = context_.engine->Health(); !health) FailEngine(health.error());
  }
  if (serving_) {
    const int64_t now_ns = context_.clock->NowNs();
    EndCancelledAndLate(now_ns, table_);
    context_.queue->Sweep(now_ns);
  }
  table_.Settle();
  if (serving_) {
    if (admitting_) {
      AdmitFromQueue(*context_.queue, context_.notifier, policy_.max_ahead, table_);
    }
    // Steps first: the sequences that run shouldn't wait for an encode that is started with them.
    Status status = steps_.LaunchSteps();
    if (status) status = encodes_.Start(steps_.launches(), MoreComing());
    if (!status) FailEngine(status.error());
    table_.Settle();
  }
}

void SchedulerLoop::TakeInSteps() {
  while (const auto step = steps_.Poll()) {
    const Result<int64_t> delivered = ApplyStep(*step);
    if (!delivered) {
      FailEngine(delivered.error());
    } else if (*delivered > 0) {
      context_.observer->OnGeneratedTokens(*delivered);
    }
  }
}

void SchedulerLoop::TakeInEncodes() {
  if (!encodes_.in_flight()) return;
  const int64_t source_tokens = encodes_.Poll();
  if (source_tokens > 0) context_.observer->OnSourceTokens(source_tokens);
}

void SchedulerLoop::FailEngine(const Error& error) noexcept {
  if (!serving_) return;
  try {
    context_.observer->OnEngineFailure(error);
  } catch (const std::exception&) {
    // Clients are told all the same.
  }
  Leave(ErrorWithText(ErrorCode::kInternal, [&] { return "the engine failed: " + error.message; }));
}

void SchedulerLoop::Retire() {
  if (!admitting_) return;
  admitting_ = false;
  context_.queue->RemoveListener(context_.notifier);
}

void SchedulerLoop::Stop() {
  Leave(ErrorWithText(ErrorCode::kUnavailable,
                      [] { return std::string("the model instance is shutting down"); }));
  table_.Settle();
  ReportGauges();
}

void SchedulerLoop::Leave(const Error& error) noexcept {
  if (!serving_) return;
  serving_ = false;
  admitting_ = false;
  context_.queue->RemoveListener(context_.notifier);
  table_.FailAll(error);
}

bool SchedulerLoop::MoreComing() const { return admitting_ && context_.queue->size() > 0; }

bool SchedulerLoop::Idle() const { return Empty() && !MoreComing(); }

void SchedulerLoop::ReportGauges() noexcept {
  const SchedulerGauges now{.active_sequences = table_.used_slots(),
                            .waiting_sequences = static_cast<int32_t>(table_.waiting().size()),
                            .kv_blocks_used = table_.pool().used(),
                            .kv_blocks_total = table_.pool().total()};
  if (now == gauges_) return;
  try {
    context_.observer->OnGauges(now);
    gauges_ = now;
  } catch (const std::exception&) {
    // Reported the next time.
  }
}

}  // namespace seq2seq
