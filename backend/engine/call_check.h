// What engines check of the calls of engine.h before they act on them: a wrong index would read or
// write somebody else's memory.
#ifndef SEQ2SEQ_BACKEND_ENGINE_CALL_CHECK_H_
#define SEQ2SEQ_BACKEND_ENGINE_CALL_CHECK_H_

#include <cstdint>
#include <span>
#include <vector>

#include "backend/core/ids.h"
#include "backend/core/status.h"
#include "backend/engine/engine.h"
#include "backend/engine/step.h"

namespace seq2seq {

struct CallLimits {
  int32_t slots = 0;
  int32_t source_tokens = 0;   // of one source
  int32_t decoder_tokens = 0;  // of one sequence, in the cache
  int32_t block_tokens = 0;
  int32_t total_blocks = 0;
  int32_t vocab_size = 0;
};

// Positions that the sequence can ever hold in the cache: its last token never enters it.
int32_t CachedTokens(const BindRecord& record);

// Remembers which slots are bound. Allocates when made only. One thread calls CheckPlan() and
// Apply(); CheckSource() is safe from any.
class CallCheck {
 public:
  explicit CallCheck(const CallLimits& limits);

  // kInvalidArgument: the source itself is wrong. kInternal: what the caller gave for it.
  [[nodiscard]] Status CheckSource(const EncodeItem& item) const;
  // kInternal names the first record that breaks the agreement of step.h.
  [[nodiscard]] Status CheckPlan(const StepPlan& plan);
  // Notes the bind and unbind records of a plan that was checked and launched.
  void Apply(const StepPlan& plan);

 private:
  Status CheckBind(const BindRecord& record) const;
  Status CheckBlocks(std::span<const BlockId> blocks, int32_t tokens, const char* kind,
                     SlotId slot) const;
  bool Exists(SlotId slot) const { return slot >= 0 && slot < limits_.slots; }

  CallLimits limits_;
  std::vector<uint8_t> bound_;        // by slot
  std::vector<uint8_t> bound_after_;  // scratch of CheckPlan()
  std::vector<uint8_t> in_row_;       // scratch of CheckPlan()
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_ENGINE_CALL_CHECK_H_
