// Keeps seq2seq_waiting_sequences{instance="queue"} in step with the model's queue.
#ifndef SEQ2SEQ_BACKEND_TRITON_QUEUE_GAUGE_H_
#define SEQ2SEQ_BACKEND_TRITON_QUEUE_GAUGE_H_

#include <cstddef>
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
  QueueGauge(Metric gauge, const RequestQueue* queue) : gauge_(std::move(gauge)), queue_(queue) {
    gauge_.Set(0);
  }

  void Update() {
    std::lock_guard lock(mutex_);
    if (queue_ == nullptr) return;
    const size_t size = queue_->size();
    if (size == shown_) return;
    shown_ = size;
    gauge_.Set(static_cast<double>(size));
  }

  // The queue is about to go: shows 0 from now on.
  void Detach() {
    std::lock_guard lock(mutex_);
    queue_ = nullptr;
    gauge_.Set(0);
  }

 private:
  std::mutex mutex_;
  Metric gauge_;
  const RequestQueue* queue_;
  size_t shown_ = 0;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TRITON_QUEUE_GAUGE_H_
