// In-flight batching for one model instance.
#ifndef SEQ2SEQ_BACKEND_SCHEDULER_SCHEDULER_H_
#define SEQ2SEQ_BACKEND_SCHEDULER_SCHEDULER_H_

#include <chrono>
#include <memory>

#include "backend/scheduler/scheduler_context.h"

namespace seq2seq {

// Pulls requests from the model's queue, encodes them, keeps their sequences in the running batch
// and passes each token to its sink, on a thread of its own. Newcomers join at every step; a
// sequence leaves the batch in the step in which it ends. All KV memory a sequence can need is
// reserved when it is admitted, so none fails midway. Cancellation and deadlines are looked at
// every step, and every millisecond while no step ends; of requests that still wait in the queue,
// every millisecond.
//
// If the engine fails, or an exception (of no memory, as a rule) stops the scheduler, what it held
// gets kInternal, and the scheduler leaves the queue's listeners for good: another instance serves
// on, or, if it was the last, the queue refuses with kUnavailable. The observer is told why.
class Scheduler {
 public:
  // Starts the thread and joins the queue's listeners.
  explicit Scheduler(const SchedulerContext& context);
  // Stops, and waits until it is over: then the engine may be destroyed.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Leaves the queue and serves what it holds to the end. Returns at once, as does Stop(); both are
  // safe from any thread.
  void Retire();
  // Leaves the queue and fails what it holds with kUnavailable.
  void Stop();
  // Waits, after either, until nothing is held and the engine has reported all work in flight; at
  // most so long. True if it is over.
  bool WaitUntilOver(std::chrono::nanoseconds timeout);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_SCHEDULER_SCHEDULER_H_
