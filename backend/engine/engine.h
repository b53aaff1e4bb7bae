// What a scheduler asks of an engine. The CPU engine, the CUDA engine and the test fake implement
// it.
#ifndef SEQ2SEQ_BACKEND_ENGINE_ENGINE_H_
#define SEQ2SEQ_BACKEND_ENGINE_ENGINE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "backend/core/memory_copier.h"
#include "backend/core/status.h"
#include "backend/engine/step.h"

namespace seq2seq {

// What an engine can hold; fixed at load.
struct EngineInfo {
  int32_t max_slots = 0;              // sequences in one step
  int32_t block_tokens = 0;           // positions (of all layers, keys and values) in one KV block
  int32_t total_blocks = 0;           // one pool for self- and cross-attention
  int32_t max_encode_items = 0;       // sources in one StartEncode
  int32_t max_encode_tokens = 0;      // their tokens together; a longer single source goes alone
  int32_t max_encodes_in_flight = 1;  // StartEncode calls not yet reported by PollEncoded
  int32_t max_steps_in_flight = 1;    // Launch calls not yet reported by PollStep
};

// One source to encode.
struct EncodeItem {
  uint64_t ticket = 0;                    // the caller's name for it, returned in EncodeDone
  std::span<const int32_t> source_ids;    // at least one; must live until EncodeDone
  std::span<const BlockId> cross_blocks;  // receive its cross-attention keys and values; likewise
};

// Of a source. OK: steps launched from now on find its blocks filled, though a device may have the
// encode before it yet. With or without an error the blocks may be given to others at once.
struct EncodeDone {
  uint64_t ticket = 0;
  Status status;  // an error concerns this source alone unless Health() says more
};

// Runs the encoder and the decode steps of the sequences of one model instance.
//
// Threads: all calls come from one thread, the scheduler's, and none of them blocks on computation.
// The engine works on threads or streams of its own and signals the Notifier that it was created
// with whenever PollEncoded() or PollStep() has something new, or it fails. Encodes run beside
// steps; steps run in the order of their launch. Memory: everything is allocated at creation; no
// call below allocates. Failure: a failed step or a lost device is reported once through the poll
// calls for all the work it took along that they had not reported yet; from then on Health() is an
// error and StartEncode() and Launch() refuse. Lifetime: the destructor waits for work in flight
// and drops its results.
class Engine {
 public:
  virtual ~Engine() = default;

  virtual const EngineInfo& info() const = 0;

  // OK, or why the engine can't be used any more (kUnavailable). Safe from any thread.
  virtual Status Health() const = 0;

  // Starts to encode `batch`. The caller respects max_encode_items, max_encode_tokens and
  // max_encodes_in_flight. Takes all of it or, with an error, nothing.
  [[nodiscard]] virtual Status StartEncode(std::span<const EncodeItem> batch) = 0;

  // Appends the sources that are done since the last call to `done` (the caller reserves room for
  // max_encode_items x max_encodes_in_flight).
  virtual void PollEncoded(std::vector<EncodeDone>* done) = 0;

  // Starts one step. The caller respects max_steps_in_flight. The plan is copied.
  // With an error nothing of the plan took effect.
  [[nodiscard]] virtual Status Launch(const StepPlan& plan) = 0;

  // If the oldest step in flight has ended: replaces *result and returns true; else returns false.
  virtual bool PollStep(StepResult* result) = 0;

  // For tensors in device memory; null if this engine's memory is the host's. Owned by the engine.
  virtual MemoryCopier* memory_copier() { return nullptr; }
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_ENGINE_ENGINE_H_
