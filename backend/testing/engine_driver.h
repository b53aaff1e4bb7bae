// Plays the scheduler for tests and benchmarks: blocking calls over any Engine.
#ifndef SEQ2SEQ_BACKEND_TESTING_ENGINE_DRIVER_H_
#define SEQ2SEQ_BACKEND_TESTING_ENGINE_DRIVER_H_

#include <cstdint>
#include <span>
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

// A sequence, from its submission on.
struct DriverSequence {
  DriverRequest request;
  Status status;  // of its encode
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  float score = 0.0F;
  StopReason stop = StopReason::kNone;

  SlotId slot = -1;    // -1: not in a slot
  int32_t cached = 0;  // decoder tokens in the cache
  bool bind = false;   // to be bound by the next step
  std::vector<BlockId> self_blocks;
  std::vector<BlockId> cross_blocks;
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

  // Encodes and decodes all requests together to their ends (max_slots at most).
  [[nodiscard]] Result<std::vector<DriverSequence>> Generate(
      std::span<const DriverRequest> requests);

  // Forgets all sequences: their slots and blocks are free again.
  void Reset();

  const StepResult& last_result() const { return result_; }

 private:
  std::vector<BlockId> TakeBlocks(int64_t tokens);
  [[nodiscard]] Status EncodeBatch(std::span<DriverSequence*> batch);
  BindRecord RecordFor(const DriverSequence& sequence) const;

  Engine* engine_;
  Notifier* notifier_;
  BlockId next_block_ = 0;
  std::vector<SlotId> free_slots_;
  std::vector<SlotId> bound_slots_;
  std::vector<SlotId> unbind_;
  std::vector<int32_t> pending_;  // of this step's bind records
  StepPlan plan_;
  StepResult result_;
  std::vector<EncodeDone> done_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TESTING_ENGINE_DRIVER_H_
