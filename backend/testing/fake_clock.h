// A clock that stands still until a test moves it.
#ifndef SEQ2SEQ_BACKEND_TESTING_FAKE_CLOCK_H_
#define SEQ2SEQ_BACKEND_TESTING_FAKE_CLOCK_H_

#include <atomic>
#include <cstdint>

#include "backend/core/clock.h"

namespace seq2seq {

// Safe from any thread. Starts at one second, so that 0 stays free to mean "no deadline".
class FakeClock final : public Clock {
 public:
  int64_t NowNs() const override { return now_ns_.load(); }
  void Set(int64_t now_ns) { now_ns_.store(now_ns); }
  void AdvanceNs(int64_t by_ns) { now_ns_.fetch_add(by_ns); }
  void AdvanceMs(int64_t by_ms) { AdvanceNs(by_ms * 1'000'000); }

 private:
  std::atomic<int64_t> now_ns_{1'000'000'000};
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TESTING_FAKE_CLOCK_H_
