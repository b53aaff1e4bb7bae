// What the engine remembers of the sequences in its slots.
#ifndef SEQ2SEQ_BACKEND_CPU_SLOT_TABLE_H_
#define SEQ2SEQ_BACKEND_CPU_SLOT_TABLE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "backend/core/ids.h"
#include "backend/core/sampling_options.h"
#include "backend/core/status.h"
#include "backend/engine/step.h"

namespace seq2seq::cpu {

struct Slot {
  bool bound = false;
  bool ended = false;          // its stop was reported; rows of it are masked
  int32_t pending_count = 0;   // tokens not in the cache yet
  int32_t* pending = nullptr;  // [pending_count]
  int32_t position = 0;        // tokens in the cache
  int32_t generated = 0;
  int32_t min_new_tokens = 0;
  int32_t max_new_tokens = 0;
  int32_t source_length = 0;
  float score = 0.0F;
  SamplingOptions sampling;
  BlockId* self_blocks = nullptr;
  BlockId* cross_blocks = nullptr;
};

struct SlotLimits {
  int32_t slots = 0;
  int32_t source_tokens = 0;
  int32_t decoder_tokens = 0;
  int32_t block_tokens = 0;
  int32_t total_blocks = 0;
  int32_t vocab_size = 0;
};

// Checks plans and applies their bind and unbind records. Allocates when made only. Not
// thread-safe.
class SlotTable {
 public:
  explicit SlotTable(const SlotLimits& limits);

  // kInternal names the first record that breaks the agreement of step.h; nothing changes.
  [[nodiscard]] Status Check(const StepPlan& plan);
  // Applies the records of a checked plan.
  void Apply(const StepPlan& plan);

  Slot& operator[](SlotId slot) { return slots_[slot]; }

 private:
  Status CheckBind(const BindRecord& record) const;
  Status CheckBlocks(std::span<const BlockId> blocks, int32_t tokens, const char* kind,
                     SlotId slot) const;
  bool Exists(SlotId slot) const { return slot >= 0 && slot < limits_.slots; }

  SlotLimits limits_;
  std::vector<Slot> slots_;
  std::vector<int32_t> pending_;  // [slots, decoder_tokens]
  std::vector<BlockId> blocks_;   // [slots, self blocks and cross blocks]
  std::vector<uint8_t> bound_;    // scratch of Check()
  std::vector<uint8_t> in_row_;   // scratch of Check()
};

}  // namespace seq2seq::cpu

#endif  // SEQ2SEQ_BACKEND_CPU_SLOT_TABLE_H_
