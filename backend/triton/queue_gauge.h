// Keeps seq2seq_waiting_sequences{instance="queue"} in step with the model's queue.
#ifndef SEQ2SEQ_BACKEND_TRITON_QUEUE_GAUGE_H_
#define SEQ2SEQ_BACKEND_TRITON_QUEUE_GAUGE_H_

#include <mutex>
#include <utility>

#include "backend/scheduler/request_queue.h"
#include "backend/triton/metric.h"

namespace seq2seq {

// The queue doesn't tell when its length changes, so Update() is called after everything that may
// have changed it: a push, a scheduler's change of gauges, the end of a request. Reading and
// setting happen under one lock, so that the last value set is never an old one. Safe from any
// thread.
class QueueGauge {
 public:
  QueueGauge(Metric gauge, const RequestQueue* queue) : gauge_(std::move(gauge)), queue_(queue) {}

  void Update() {
    std::lock_guard lock(mutex_);
    if (queue_ == nullptr) return;
    gauge_.Set(static_cast<double>(queue_->size()));
  }

  // The queue is about to go: shows 0 from now on.
  void Detach() {
    std::lock_guard lock(mutex_);
    queue_ = nullptr;
    gauge_.Set(0);
  }

 private:
  std::mutex mutex_;
  Gauge gauge_;
  const RequestQueue* queue_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TRITON_QUEUE_GAUGE_H_
