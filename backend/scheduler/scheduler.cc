#include "backend/scheduler/scheduler.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "backend/scheduler/scheduler_loop.h"

namespace seq2seq {
namespace {

// Cancels and deadlines are noticed at least this often.
constexpr std::chrono::milliseconds kTick(1);
// While nothing is here, only a ring matters; this just bounds how long a dead engine goes
// unnoticed.
constexpr std::chrono::milliseconds kIdleTick(100);

}  // namespace

class Scheduler::Impl {
 public:
  explicit Impl(const SchedulerContext& context)
      : notifier_(context.notifier), loop_(context), thread_([this] { Run(); }) {}

  ~Impl() {
    Stop();
    thread_.join();
  }

  void Retire() {
    retiring_.store(true);
    notifier_->Notify();
  }
  void Stop() {
    stopping_.store(true);
    notifier_->Notify();
  }
  bool WaitUntilOver(std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    return over_changed_.wait_for(lock, timeout, [this] { return over_; });
  }

 private:
  void Run() {
    while (!stopping_.load()) {
      if (retiring_.load()) loop_.Retire();
      loop_.RunOnce();
      if (retiring_.load() && loop_.Empty()) break;
      notifier_->WaitFor(loop_.Idle() ? kIdleTick : kTick);
    }
    loop_.Stop();
    while (!loop_.Drained()) {
      notifier_->WaitFor(kTick);
      loop_.RunOnce();
    }
    std::lock_guard lock(mutex_);
    over_ = true;
    over_changed_.notify_all();
  }

  Notifier* const notifier_;
  std::atomic<bool> retiring_ = false;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  std::condition_variable over_changed_;
  bool over_ = false;
  SchedulerLoop loop_;
  std::thread thread_;  // last: it uses all of the above
};

Scheduler::Scheduler(const SchedulerContext& context) : impl_(std::make_unique<Impl>(context)) {}

Scheduler::~Scheduler() = default;

void Scheduler::Retire() { impl_->Retire(); }

void Scheduler::Stop() { impl_->Stop(); }

bool Scheduler::WaitUntilOver(std::chrono::nanoseconds timeout) {
  return impl_->WaitUntilOver(timeout);
}

}  // namespace seq2seq
