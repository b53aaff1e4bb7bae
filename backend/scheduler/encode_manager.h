// Feeds sources to the engine's encoder in batches, beside the decode steps.
#ifndef SEQ2SEQ_BACKEND_SCHEDULER_ENCODE_MANAGER_H_
#define SEQ2SEQ_BACKEND_SCHEDULER_ENCODE_MANAGER_H_

#include <cstdint>
#include <vector>

#include "backend/core/status.h"
#include "backend/engine/engine.h"
#include "backend/scheduler/scheduling_policy.h"
#include "backend/scheduler/sequence_table.h"

namespace seq2seq {

// One thread. All room is made at construction.
class EncodeManager {
 public:
  // Both outlive the manager.
  EncodeManager(Engine* engine, SequenceTable* table, const SchedulingPolicy& policy);

  // Takes in the sources that are done; one that failed ends its own request with kInternal.
  // Returns the number of source tokens encoded.
  int64_t Poll();

  // Starts a batch of the oldest admitted sources if the policy wants it, and at most one between
  // two launches: however many are waiting, running sequences share the device with one batch a
  // step. `launches` counts the steps launched so far; `more_coming` says that the queue isn't
  // empty. A batch that a healthy engine refuses ends its own requests with kInternal. An error
  // means that the engine has failed.
  [[nodiscard]] Status Start(uint64_t launches, bool more_coming);

  bool in_flight() const { return batches_in_flight_ > 0; }

 private:
  bool Wanted(uint64_t launches, bool more_coming) const;
  void Gather();

  Engine* const engine_;
  SequenceTable* const table_;
  const SchedulingPolicy policy_;
  std::vector<Sequence*> batch_;
  std::vector<EncodeItem> items_;
  std::vector<EncodeDone> done_;
  std::vector<int32_t> unreported_;  // by place of a batch in flight: its sources; 0: a free place
  int32_t batches_in_flight_ = 0;
  uint64_t launches_at_start_ = 0;  // when the last batch started
  bool started_any_ = false;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_SCHEDULER_ENCODE_MANAGER_H_
