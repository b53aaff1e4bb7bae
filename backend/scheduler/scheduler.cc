#include "backend/scheduler/scheduler.h"

#include <atomic>
#include <chrono>
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
    stopping_.store(true);
    notifier_->Notify();
    thread_.join();
  }

 private:
  void Run() {
    while (!stopping_.load()) {
      loop_.RunOnce();
      notifier_->WaitFor(loop_.Idle() ? kIdleTick : kTick);
    }
    loop_.Stop();
    while (!loop_.Drained()) {
      notifier_->WaitFor(kTick);
      loop_.RunOnce();
    }
  }

  Notifier* const notifier_;
  std::atomic<bool> stopping_ = false;
  SchedulerLoop loop_;
  std::thread thread_;  // last: it uses all of the above
};

Scheduler::Scheduler(const SchedulerContext& context) : impl_(std::make_unique<Impl>(context)) {}

Scheduler::~Scheduler() = default;

}  // namespace seq2seq
