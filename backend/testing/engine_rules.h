// Checks that a scheduler keeps the rules of engine.h.
#ifndef SEQ2SEQ_BACKEND_TESTING_ENGINE_RULES_H_
#define SEQ2SEQ_BACKEND_TESTING_ENGINE_RULES_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "backend/core/ids.h"
#include "backend/engine/engine.h"
#include "backend/engine/step.h"

namespace seq2seq {

// Follows all calls of one engine, as the caller sees it, and notes each broken rule in words.
//
// Blocks: each belongs to the sequence (source encoded) that named it last. It may change hands
// only while the old owner is neither being encoded nor in a launched step that has not been
// polled; a sequence that has lost a block may never be named again. No two sequences share blocks.
// Not thread-safe: the fake engine calls it under its lock.
class EngineRules {
 public:
  explicit EngineRules(const EngineInfo& info);

  void OnCall();  // first in every call: all of them come from one thread
  void OnStartEncode(std::span<const EncodeItem> batch);
  void OnEncodePolled(uint64_t ticket, bool ok);
  void OnLaunch(const StepPlan& plan);
  void OnStepPolled(const StepResult& result);

  // Notes a broken rule that another class found.
  void Violate(std::string what) { violations_.push_back(std::move(what)); }
  const std::vector<std::string>& violations() const { return violations_; }

 private:
  // A source that was encoded, and what became of it.
  struct Sequence {
    uint64_t ticket = 0;
    bool encoding = true;
    bool ended = false;  // its end has been polled
    int32_t source_length = 0;
    std::vector<BlockId> cross_blocks;
    std::vector<BlockId> self_blocks;
    std::optional<SlotId> slot;
    int32_t prefix = 0;     // decoder prefix, known from the first bind
    int32_t generated = 0;  // new tokens polled
  };
  struct FlyingStep {
    uint64_t step = 0;
    std::vector<uint64_t> row_owners;
  };

  int32_t BlocksNeeded(int32_t tokens) const;
  bool InFlightStep(uint64_t owner) const;
  bool SlotInRange(SlotId slot, const std::string& where);
  void TakeBlock(BlockId block, uint64_t owner, const std::string& where);
  void CheckUnbind(SlotId slot);
  void CheckBind(const BindRecord& record);
  void CheckBindBlocks(const BindRecord& record, uint64_t owner, const std::string& where);
  void CheckRows(const StepPlan& plan);

  const EngineInfo info_;
  std::optional<std::thread::id> caller_;
  std::vector<std::string> violations_;
  uint64_t last_owner_ = 0;
  std::vector<uint64_t> block_owners_;         // by block; 0: nobody yet
  std::vector<uint64_t> slot_owners_;          // by slot, in the order of launches; 0: free
  std::map<uint64_t, Sequence> sequences_;     // those that own all their blocks
  std::deque<std::vector<uint64_t>> encodes_;  // tickets not polled, by StartEncode call
  std::deque<FlyingStep> steps_;
  std::optional<uint64_t> last_step_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TESTING_ENGINE_RULES_H_
