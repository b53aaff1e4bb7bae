// A real engine, slowed down and failing on demand, for tests on a real server.
#ifndef SEQ2SEQ_BACKEND_TESTING_FAULTY_ENGINE_H_
#define SEQ2SEQ_BACKEND_TESTING_FAULTY_ENGINE_H_

#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backend/core/clock.h"
#include "backend/engine/engine.h"
#include "backend/engine/engine_factory.h"

namespace seq2seq {

// Environment variables, read when the library is loaded. Unset or empty: no such fault.
//   SEQ2SEQ_TEST_STEP_DELAY_MS=n
//     a step takes n ms at least, and begins when the one before it has ended
//   SEQ2SEQ_TEST_FAIL_STEP=n
//     each engine's n-th step (from 1) fails, and the engine with it
//   SEQ2SEQ_TEST_FAIL_ENCODE_TOKEN=n
//     encoding a source that holds token n fails, for that source alone
//   SEQ2SEQ_TEST_TRAP_STEP=n
//     before each engine's n-th launch (from 2) a kernel traps on its device, which is lost to the
//     process with that; CUDA engines only
struct EngineFaults {
  int64_t step_delay_ns = 0;
  std::optional<int64_t> fail_step = {};
  std::optional<int32_t> fail_encode_token = {};
  std::optional<int64_t> trap_step = {};
};

// kInvalidArgument names a variable whose value is no number >= 0.
[[nodiscard]] Result<EngineFaults> EngineFaultsFromEnvironment();

// Obeys engine.h as the engine within does, except that nobody is rung when a delay is over:
// schedulers look every millisecond while a step is in flight. Allocates, as it is for tests.
class FaultyEngine final : public Engine {
 public:
  // `clock` outlives the engine.
  FaultyEngine(std::unique_ptr<Engine> engine, const EngineFaults& faults, const Clock* clock);

  const EngineInfo& info() const override { return engine_->info(); }
  Status Health() const override;
  Status StartEncode(std::span<const EncodeItem> batch) override;
  void PollEncoded(std::vector<EncodeDone>* done) override;
  Status Launch(const StepPlan& plan) override;
  bool PollStep(StepResult* result) override;
  MemoryCopier* memory_copier() override { return engine_->memory_copier(); }

 private:
  bool MustFail(const EncodeItem& item) const;

  const std::unique_ptr<Engine> engine_;
  const EngineFaults faults_;
  const Clock* const clock_;
  std::vector<uint64_t> doomed_;  // tickets whose encodes are to fail
  std::deque<int64_t> due_ns_;    // of the steps in flight, oldest first
  int64_t last_due_ns_ = std::numeric_limits<int64_t>::min();
  int64_t steps_launched_ = 0;
  int64_t steps_polled_ = 0;
  mutable std::mutex mutex_;  // Health() comes from any thread
  bool failed_ = false;
};

// Makes such engines of another factory's.
class FaultyEngineFactory final : public EngineFactory {
 public:
  FaultyEngineFactory(std::unique_ptr<EngineFactory> factory, EngineFaults faults,
                      std::shared_ptr<const Clock> clock)
      : factory_(std::move(factory)), faults_(faults), clock_(std::move(clock)) {}

  Result<std::unique_ptr<Engine>> Create(const EngineOptions& options, Notifier* notifier) override;

 private:
  const std::unique_ptr<EngineFactory> factory_;
  const EngineFaults faults_;
  const std::shared_ptr<const Clock> clock_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TESTING_FAULTY_ENGINE_H_
