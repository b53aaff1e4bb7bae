// Time as a parameter, so that deadlines can be tested without waiting for them.
#ifndef SEQ2SEQ_BACKEND_CORE_CLOCK_H_
#define SEQ2SEQ_BACKEND_CORE_CLOCK_H_

#include <chrono>
#include <cstdint>

namespace seq2seq {

// Monotonic nanoseconds. Safe from any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t NowNs() const = 0;
};

class SteadyClock final : public Clock {
 public:
  int64_t NowNs() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CORE_CLOCK_H_
