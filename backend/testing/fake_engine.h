// An Engine without a model: deterministic, strict about its contract, and it fails on demand.
#ifndef SEQ2SEQ_BACKEND_TESTING_FAKE_ENGINE_H_
#define SEQ2SEQ_BACKEND_TESTING_FAKE_ENGINE_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "backend/core/notifier.h"
#include "backend/engine/engine.h"
#include "backend/testing/engine_rules.h"
#include "backend/testing/fake_tokens.h"

namespace seq2seq {

struct FakeEngineOptions {
  EngineInfo info{.max_slots = 4,
                  .block_tokens = 4,
                  .total_blocks = 64,
                  .max_encode_items = 4,
                  .max_encode_tokens = 64,
                  .max_encodes_in_flight = 1,
                  .max_steps_in_flight = 1};
  FakeTokenRule tokens;
  int32_t prefix_tokens_a_step = 1 << 30;  // a longer prefix takes several steps
  // Manual: nothing ends before CompleteEncodes() or CompleteStep() says so. Otherwise two threads,
  // one for encodes and one for steps, end the work in order, each piece after its delay.
  bool manual = false;
  std::chrono::microseconds step_delay{0};
  std::chrono::microseconds encode_delay{0};
};

// A bind record with storage of its own.
struct BindCopy {
  SlotId slot = 0;
  std::vector<int32_t> pending_tokens;
  int32_t position = 0;
  int32_t generated = 0;
  int32_t min_new_tokens = 0;
  int32_t max_new_tokens = 0;
  SamplingOptions sampling;
  int32_t source_length = 0;
  std::vector<BlockId> cross_blocks;
  std::vector<BlockId> self_blocks;
};

// A StepPlan as it was launched.
struct LaunchedStep {
  uint64_t step = 0;
  std::vector<SlotId> unbind;
  std::vector<BindCopy> bind;
  std::vector<SlotId> rows;
};

// The engine's calls obey engine.h (it allocates, though: it is a fake). Tokens are
// fake_tokens.h's, of the source that was last encoded into a sequence's cross blocks. A slot that
// ended in a step whose result has not been polled is masked: its later rows bring no tokens.
// Everything else, for tests, is safe from any thread.
class FakeEngine final : public Engine {
 public:
  // `notifier` may be null (a test that drives everything itself).
  FakeEngine(FakeEngineOptions options, Notifier* notifier);
  ~FakeEngine() override;
  FakeEngine(const FakeEngine&) = delete;
  FakeEngine& operator=(const FakeEngine&) = delete;

  // What the destructor does first: waits for work in flight, drops its results and lets go of the
  // notifier. Afterwards only what has been recorded can be asked. The fake factory needs it apart.
  void Retire();

  const EngineInfo& info() const override { return options_.info; }
  Status Health() const override;
  Status StartEncode(std::span<const EncodeItem> batch) override;
  void PollEncoded(std::vector<EncodeDone>* done) override;
  Status Launch(const StepPlan& plan) override;
  bool PollStep(StepResult* result) override;

  // Broken rules of engine.h; tests assert that there are none.
  std::vector<std::string> violations() const;

  // Faults. An encode's error concerns its source alone; a failed step takes the device along.
  void FailEncode(uint64_t ticket);    // when it ends
  void FailNthEncode(int64_t n);       // the n-th source since creation, from 0
  void FailNthStep(int64_t n);         // the n-th Launch since creation, from 0
  void LoseDevice();                   // at once, with all work in flight
  void RefuseStartEncodes(int count);  // the next ones; the engine stays healthy
  void RefuseLaunches(int count);      // likewise

  // Manual mode. Ends up to `count` running sources, oldest first; returns how many.
  int CompleteEncodes(int count = 1 << 30);
  // Ends the oldest running step; false if there is none.
  bool CompleteStep();

  // What has been asked of it.
  std::vector<std::vector<uint64_t>> encode_batches() const;  // tickets, by accepted StartEncode
  std::vector<LaunchedStep> launched_steps() const;
  int64_t encodes_started() const;  // sources
  int64_t steps_launched() const;
  int encodes_in_flight() const;  // sources started and not polled
  int steps_in_flight() const;    // launched and not polled
  bool WaitEncodesStarted(int64_t sources,
                          std::chrono::milliseconds timeout = std::chrono::seconds(20)) const;
  bool WaitStepsLaunched(int64_t steps,
                         std::chrono::milliseconds timeout = std::chrono::seconds(20)) const;

 private:
  struct Encode {
    int64_t ordinal = 0;
    uint64_t ticket = 0;
    // The caller's memory, read again at the end to see that it lives and has not changed.
    std::span<const int32_t> source_ids;
    std::span<const BlockId> cross_blocks;
    std::vector<int32_t> source_copy;
    std::vector<BlockId> blocks_copy;
    bool ended = false;
    Status status;
  };
  struct Step {
    int64_t ordinal = 0;
    LaunchedStep plan;
    bool ended = false;
    StepResult result;
  };
  struct Slot {
    std::vector<int32_t> source_ids;
    int32_t pending = 0;  // prefix tokens to consume
    int32_t generated = 0;
    int32_t min_new_tokens = 0;
    int32_t max_new_tokens = 0;
    bool return_logprobs = false;
    bool ended = false;
    float score = 0.0F;
  };

  // All below are called with mutex_ held.
  void EndEncode(Encode* encode);
  void EndStep(Step* step);
  void ExecuteRow(SlotId slot_id, StepResult* result);
  void LoseDeviceLocked(const std::string& why);
  Encode* OldestRunningEncode();
  Step* OldestRunningStep();
  void Ring();

  void EncodeThread();
  void StepThread();

  const FakeEngineOptions options_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  Notifier* notifier_;
  bool stopping_ = false;
  EngineRules rules_;
  std::optional<std::string> lost_;                  // why
  std::deque<Encode> encodes_;                       // not polled
  std::deque<Step> steps_;                           // not polled
  std::map<BlockId, std::vector<int32_t>> sources_;  // encoded, by first cross block
  std::vector<Slot> slots_;
  std::vector<std::vector<uint64_t>> encode_batches_;
  std::vector<LaunchedStep> launched_;
  int64_t encodes_started_ = 0;
  std::vector<uint64_t> fail_tickets_;
  std::vector<int64_t> fail_encodes_;
  std::optional<int64_t> fail_step_;
  int refuse_start_encodes_ = 0;
  int refuse_launches_ = 0;

  std::thread encode_thread_;
  std::thread step_thread_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TESTING_FAKE_ENGINE_H_
