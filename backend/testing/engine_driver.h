// Plays the scheduler for tests and benchmarks: blocking calls over any Engine.
#ifndef SEQ2SEQ_BACKEND_TESTING_ENGINE_DRIVER_H_
#define SEQ2SEQ_BACKEND_TESTING_ENGINE_DRIVER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "backend/core/ids.h"
#include "backend/core/notifier.h"
#include "backend/core/sampling_options.h"
#include "backend/core/status.h"
#include "backend/engine/engine.h"

namespace seq2seq {

struct DriverRequest {
  std::vector<int32_t> source;
  std::vector<int32_t> prefix = {0};  // decoder tokens, start token first
  int32_t min_new_tokens = 0;
  int32_t max_new_tokens = 32;
  SamplingOptions sampling;
};

// A request of tiny checkpoints for just so many new tokens, with their log-probabilities: each
// seed has another source, of tokens from 2 to 39.
DriverRequest TinyRequest(int32_t seed, int32_t source_length, int32_t new_tokens);

// A sequence, from its submission on.
struct DriverSequence {
  DriverRequest request;
  Status status;  // of its encode
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  float score = 0.0F;
  StopReason stop = StopReason::kNone;
  double first_token_ms = 0.0;  // since Generate() began

  SlotId slot = -1;      // -1: not in a slot
  int32_t cached = 0;    // decoder tokens in the cache
  bool bind = false;     // to be bound by the next step
  bool encoded = false;  // its encode has ended
  size_t encode = 0;     // which StartEncode it went with
  int32_t launched = 0;  // steps that brought a token or may
  std::vector<BlockId> self_blocks;
  std::vector<BlockId> cross_blocks;
};

// When the sequences of one Generate() begin to decode.
enum class DecodeStart : uint8_t {
  kTogether,   // when all are encoded
  kAsEncoded,  // each when its encode has ended, beside the encodes of the others
};

// Of one Generate(), in milliseconds.
struct GenerateTimes {
  double total = 0.0;         // until all had ended
  std::vector<double> steps;  // between the ends of steps that had all sequences as rows
};

// Blocks are taken in order and come back only with Reset(). Every wait ends with kInternal after a
// minute, so that a lost signal fails a test instead of hanging it. One thread.
class EngineDriver {
 public:
  // Borrows both; `notifier` is the engine's.
  EngineDriver(Engine* engine, Notifier* notifier);

  // Encodes `requests`, as many at once as the engine takes, and returns their sequences, not in
  // slots yet. A failed encode shows in DriverSequence::status.
  [[nodiscard]] Result<std::vector<DriverSequence>> Encode(std::span<const DriverRequest> requests);

  // Gives the sequence a slot from the next step on: a fresh one, or one that left.
  void Enter(DriverSequence* sequence);
  // Takes its slot away from the next step on.
  void Leave(DriverSequence* sequence);
  // One step of these sequences; all are in slots.
  [[nodiscard]] Status Step(std::span<DriverSequence* const> rows);
  // A step's halves, so that several may be in flight: its launch, and the wait for the end of the
  // oldest.
  [[nodiscard]] Status LaunchStep(std::span<DriverSequence* const> rows);
  [[nodiscard]] Status AwaitStep();

  // Encodes and decodes all requests to their ends (max_slots at most), with as many encodes and
  // steps in flight as the engine takes.
  [[nodiscard]] Result<std::vector<DriverSequence>> Generate(
      std::span<const DriverRequest> requests, DecodeStart start = DecodeStart::kTogether);

  // Forgets all sequences: their slots and blocks are free again.
  void Reset();

  const StepResult& last_result() const { return result_; }
  const GenerateTimes& times() const { return times_; }  // of the last Generate()

 private:
  struct FlyingStep {
    uint64_t step = 0;
    std::vector<std::pair<DriverSequence*, SlotId>> rows;
  };

  double Now() const;
  Result<std::vector<BlockId>> TakeBlocks(int64_t tokens);
  Result<std::vector<DriverSequence>> Admit(std::span<const DriverRequest> requests);
  Status StartEncodes(std::span<DriverSequence> sequences);
  void TakeEncoded(std::span<DriverSequence> sequences);
  BindRecord RecordFor(const DriverSequence& sequence) const;
  Result<bool> TakeStep();
  Result<bool> LaunchReady(std::span<DriverSequence> sequences, DecodeStart start);
  void NoteStepEnd(size_t sequences);

  Engine* engine_;
  Notifier* notifier_;
  BlockId next_block_ = 0;
  std::vector<SlotId> free_slots_;
  std::vector<SlotId> bound_slots_;
  std::vector<SlotId> unbind_;
  StepPlan plan_;
  StepResult result_;
  std::deque<FlyingStep> flying_;
  std::vector<EncodeDone> done_;
  size_t next_encode_ = 0;            // of one Encode() or Generate(): sources started
  size_t encoded_count_ = 0;          // and ended
  std::map<size_t, size_t> encodes_;  // StartEncode in flight -> sources not reported
  std::chrono::steady_clock::time_point begin_;
  double last_step_end_ = 0.0;
  GenerateTimes times_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TESTING_ENGINE_DRIVER_H_
