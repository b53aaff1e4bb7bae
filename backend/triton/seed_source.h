// Seeds for requests that bring none.
#ifndef SEQ2SEQ_BACKEND_TRITON_SEED_SOURCE_H_
#define SEQ2SEQ_BACKEND_TRITON_SEED_SOURCE_H_

#include <atomic>
#include <cstdint>
#include <random>

namespace seq2seq {

// Distinct seeds, unpredictable from one load of the model to the next. Safe from any thread.
class SeedSource {
 public:
  SeedSource() {
    std::random_device device;
    state_ = (static_cast<uint64_t>(device()) << 32) | device();
  }

  // Below 2^53: a seed comes back to the client in JSON, whose numbers are exact up to there.
  uint64_t Draw() { return Mix(state_.fetch_add(kStep)) >> 11; }

 private:
  // SplitMix64: Steele, Lea, Flood 2014, "Fast Splittable Pseudorandom Number Generators".
  static constexpr uint64_t kStep = 0x9E3779B97F4A7C15;
  static constexpr uint64_t Mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }

  std::atomic<uint64_t> state_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TRITON_SEED_SOURCE_H_
