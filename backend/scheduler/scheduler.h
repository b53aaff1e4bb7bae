// In-flight batching for one model instance.
#ifndef SEQ2SEQ_BACKEND_SCHEDULER_SCHEDULER_H_
#define SEQ2SEQ_BACKEND_SCHEDULER_SCHEDULER_H_

#include <memory>

#include "backend/core/clock.h"
#include "backend/core/notifier.h"
#include "backend/core/status.h"
#include "backend/engine/engine.h"
#include "backend/scheduler/request_queue.h"
#include "backend/scheduler/scheduler_observer.h"

namespace seq2seq {

// Everything a scheduler works with. All of it outlives the scheduler.
struct SchedulerContext {
  Engine* engine = nullptr;      // created with `notifier`
  Notifier* notifier = nullptr;  // this scheduler alone waits on it
  RequestQueue* queue = nullptr;
  const Clock* clock = nullptr;
  SchedulerObserver* observer = nullptr;
};

// Pulls requests from the model's queue, encodes them, keeps their sequences in the running batch and
// passes each token to its sink, on a thread of its own. Newcomers join at every step; a sequence
// leaves the batch in the step in which it ends. All KV memory a sequence can need is reserved when
// it is admitted, so none fails midway. Cancellation and deadlines are looked at every step, and every
// millisecond while no step ends.
//
// If the engine fails, what it held gets kInternal, and the scheduler refuses further requests with
// kUnavailable (Health() says why).
class Scheduler {
 public:
  // Starts the thread and joins the queue's listeners.
  explicit Scheduler(const SchedulerContext& context);
  // Stops the thread: sequences in flight are failed with kUnavailable.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_SCHEDULER_SCHEDULER_H_
