// The one thing a scheduler sleeps on: engine, queue and shutdown all ring the same bell.
#ifndef SEQ2SEQ_BACKEND_CORE_NOTIFIER_H_
#define SEQ2SEQ_BACKEND_CORE_NOTIFIER_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace seq2seq {

// An auto-reset event. Signals that come while nobody waits are kept, and merge into one.
// Notify() is safe from any thread; one thread waits.
class Notifier {
 public:
  void Notify() {
    {
      std::lock_guard lock(mutex_);
      signalled_ = true;
    }
    condition_.notify_one();
  }

  // Blocks until a signal (consumed; returns true) or until `timeout` is over (returns false).
  bool WaitFor(std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    const bool signalled = condition_.wait_for(lock, timeout, [this] { return signalled_; });
    signalled_ = false;
    return signalled;
  }

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  bool signalled_ = false;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CORE_NOTIFIER_H_
