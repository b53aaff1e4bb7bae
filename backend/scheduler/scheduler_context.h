// What a scheduler works with.
#ifndef SEQ2SEQ_BACKEND_SCHEDULER_SCHEDULER_CONTEXT_H_
#define SEQ2SEQ_BACKEND_SCHEDULER_SCHEDULER_CONTEXT_H_

#include "backend/core/clock.h"
#include "backend/core/notifier.h"
#include "backend/engine/engine.h"
#include "backend/scheduler/request_queue.h"
#include "backend/scheduler/scheduler_observer.h"

namespace seq2seq {

// None is null, and all of it outlives the scheduler.
struct SchedulerContext {
  Engine* engine = nullptr;      // created with `notifier`
  Notifier* notifier = nullptr;  // this scheduler alone waits on it
  RequestQueue* queue = nullptr;
  const Clock* clock = nullptr;
  SchedulerObserver* observer = nullptr;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_SCHEDULER_SCHEDULER_CONTEXT_H_
