// What a scheduler does each time that it wakes, without the thread that it does it on.
#ifndef SEQ2SEQ_BACKEND_SCHEDULER_SCHEDULER_LOOP_H_
#define SEQ2SEQ_BACKEND_SCHEDULER_SCHEDULER_LOOP_H_

#include <string>

#include "backend/core/status.h"
#include "backend/scheduler/encode_manager.h"
#include "backend/scheduler/scheduler_context.h"
#include "backend/scheduler/scheduling_policy.h"
#include "backend/scheduler/sequence_table.h"
#include "backend/scheduler/step_planner.h"

namespace seq2seq {

// Scheduler runs it on its thread; tests run it step by step. After construction one thread.
class SchedulerLoop {
 public:
  // Joins the queue's listeners.
  explicit SchedulerLoop(const SchedulerContext& context);
  // The engine has nothing of it (Drained()). Leaves the queue if Stop() was never called.
  ~SchedulerLoop();
  SchedulerLoop(const SchedulerLoop&) = delete;
  SchedulerLoop& operator=(const SchedulerLoop&) = delete;

  // Takes in what the engine has finished, ends cancelled and late requests, admits, launches steps
  // and starts encodes. Never blocks; allocates only to admit a request or to report an error. An
  // exception (of no memory, as a rule) counts as a failure of the engine.
  void RunOnce();

  // Leaves the queue, at the first call: what is here is served on, and nothing more is taken.
  void Retire();

  // Leaves the queue and fails every request with kUnavailable. RunOnce() then only takes in what
  // the engine still finishes.
  void Stop();

  // Nothing is with the engine.
  bool Drained() const { return !steps_.in_flight() && !encodes_.in_flight(); }
  // No sequence is here and nothing is with the engine.
  bool Empty() const { return table_.empty() && Drained(); }
  // Nothing to do before the notifier rings.
  bool Idle() const;
  // OK if no block or slot is lost; while idle, if all of them are free.
  [[nodiscard]] Status CheckIntegrity() const { return table_.CheckIntegrity(); }

 private:
  void Work();
  void TakeInSteps();
  void TakeInEncodes();
  void FailEngine(const Error& error) noexcept;
  void Leave(const Error& error) noexcept;
  bool MoreComing() const;  // requests wait that may come here
  void ReportGauges() noexcept;

  const SchedulerContext context_;
  const SchedulingPolicy policy_;
  SequenceTable table_;
  EncodeManager encodes_;
  StepPlanner steps_;
  bool serving_ = true;    // until the engine fails or Stop()
  bool admitting_ = true;  // until any of these, or Retire()
  SchedulerGauges gauges_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_SCHEDULER_SCHEDULER_LOOP_H_
