// A SchedulerObserver that remembers what it was told.
#ifndef SEQ2SEQ_BACKEND_TESTING_RECORDING_OBSERVER_H_
#define SEQ2SEQ_BACKEND_TESTING_RECORDING_OBSERVER_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

#include "backend/scheduler/scheduler_observer.h"

namespace seq2seq {

// Safe from any thread.
class RecordingObserver final : public SchedulerObserver {
 public:
  void OnGauges(const SchedulerGauges& gauges) override {
    std::lock_guard lock(mutex_);
    if (calls_ > 0 && gauges == gauges_) ++repeated_;
    ++calls_;
    gauges_ = gauges;
    changed_.notify_all();
  }
  void OnGeneratedTokens(int64_t count) override {
    std::lock_guard lock(mutex_);
    generated_tokens_ += count;
  }
  void OnSourceTokens(int64_t count) override {
    std::lock_guard lock(mutex_);
    source_tokens_ += count;
  }

  SchedulerGauges gauges() const {
    std::lock_guard lock(mutex_);
    return gauges_;
  }
  int64_t generated_tokens() const {
    std::lock_guard lock(mutex_);
    return generated_tokens_;
  }
  int64_t source_tokens() const {
    std::lock_guard lock(mutex_);
    return source_tokens_;
  }
  int repeated_gauges() const {  // OnGauges() calls that changed nothing: must be 0
    std::lock_guard lock(mutex_);
    return repeated_;
  }
  bool WaitGauges(const std::function<bool(const SchedulerGauges&)>& condition,
                  std::chrono::milliseconds timeout = std::chrono::seconds(20)) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, timeout, [&] { return condition(gauges_); });
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  SchedulerGauges gauges_;
  int calls_ = 0;
  int repeated_ = 0;
  int64_t generated_tokens_ = 0;
  int64_t source_tokens_ = 0;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TESTING_RECORDING_OBSERVER_H_
