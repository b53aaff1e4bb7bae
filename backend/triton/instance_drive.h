// What decodes for an instance.
#ifndef SEQ2SEQ_BACKEND_TRITON_INSTANCE_DRIVE_H_
#define SEQ2SEQ_BACKEND_TRITON_INSTANCE_DRIVE_H_

#include <memory>

#include "backend/core/notifier.h"
#include "backend/engine/engine.h"
#include "backend/scheduler/scheduler.h"
#include "backend/triton/instance_account.h"
#include "backend/triton/instance_metrics.h"

namespace seq2seq {

// An engine, the scheduler that drives it, and what both work with.
struct InstanceDrive {
  Notifier notifier;
  std::shared_ptr<InstanceMetrics> metrics;
  std::unique_ptr<Engine> engine;
  std::shared_ptr<InstanceAccount> account;  // uses the engine
  std::unique_ptr<Scheduler> scheduler;

  ~InstanceDrive() {
    scheduler.reset();
    // Requests that came through the instance may be served by another, or wait for a sender.
    if (account != nullptr) account->Detach();
    metrics->OnGauges(SchedulerGauges{});
  }
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TRITON_INSTANCE_DRIVE_H_
