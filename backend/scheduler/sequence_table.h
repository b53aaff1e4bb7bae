// All sequences of one scheduler, and the slots and KV blocks that they hold.
#ifndef SEQ2SEQ_BACKEND_SCHEDULER_SEQUENCE_TABLE_H_
#define SEQ2SEQ_BACKEND_SCHEDULER_SEQUENCE_TABLE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/core/ids.h"
#include "backend/core/status.h"
#include "backend/engine/engine.h"
#include "backend/kv_cache/block_pool.h"
#include "backend/request/request.h"
#include "backend/scheduler/sequence.h"

namespace seq2seq {

// A sequence goes from waiting() to running(), and leaves in Settle() once its request has ended.
// Its slot and blocks come back when no launched step names it and its source isn't being encoded.
// One thread. All room is made at construction; what is allocated later is in Admit() alone.
class SequenceTable {
 public:
  // Room for max_slots running and `max_ahead` waiting sequences.
  SequenceTable(const EngineInfo& info, int32_t max_ahead);

  bool HasRoom() const { return !spare_.empty(); }
  // Takes a request in and reserves all KV blocks that it can ever need. HasRoom(), and the pool
  // has the blocks. Without memory for their list the request, and it alone, fails with
  // kUnavailable.
  void Admit(std::unique_ptr<PendingRequest> pending);
  // Gives an encoded sequence a slot; free_slots() > 0. It leaves waiting() in the next
  // DropJoined().
  void Join(Sequence* sequence);
  void DropJoined();
  // Drops the sequences whose request has ended and takes back what the engine no longer uses.
  void Settle();
  // Fails every request still open; needs no memory, though without it the text is a shorter one.
  void FailAll(const Error& error) noexcept;

  Sequence* FindTicket(uint64_t ticket) const;  // null if gone

  const std::vector<Sequence*>& waiting() const { return waiting_; }  // in order of arrival
  const std::vector<Sequence*>& running() const { return running_; }  // in order of joining
  // Slots that the engine still has bound to sequences that are gone. The next launched plan
  // unbinds them; they count as free meanwhile, as unbinds come before binds.
  const std::vector<SlotId>& stale_slots() const { return stale_slots_; }
  void ClearStaleSlots() { stale_slots_.clear(); }

  int32_t free_slots() const { return static_cast<int32_t>(free_slots_.size()); }
  int32_t used_slots() const { return max_slots_ - free_slots(); }
  const BlockPool& pool() const { return pool_; }
  bool empty() const { return waiting_.empty() && running_.empty() && leaving_.empty(); }

  // OK if the pool is sound, and, when the table is empty, nothing is held.
  [[nodiscard]] Status CheckIntegrity() const;

 private:
  void SettleList(std::vector<Sequence*>& list);
  void Release(Sequence* sequence);

  const int32_t max_slots_;
  const int32_t block_tokens_;
  BlockPool pool_;
  std::vector<Sequence> storage_;
  std::vector<Sequence*> spare_;
  std::vector<Sequence*> waiting_;
  std::vector<Sequence*> running_;
  std::vector<Sequence*> leaving_;  // ended, and still in use by the engine
  std::vector<SlotId> free_slots_;  // a stack
  std::vector<SlotId> stale_slots_;
  uint64_t last_ticket_ = 0;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_SCHEDULER_SEQUENCE_TABLE_H_
