// What a scheduler tells about itself while it works. The Triton room turns it into metrics.
#ifndef SEQ2SEQ_BACKEND_SCHEDULER_SCHEDULER_OBSERVER_H_
#define SEQ2SEQ_BACKEND_SCHEDULER_SCHEDULER_OBSERVER_H_

#include <cstdint>

#include "backend/core/status.h"

namespace seq2seq {

struct SchedulerGauges {
  int32_t active_sequences = 0;   // in a slot
  int32_t waiting_sequences = 0;  // pulled from the queue, not in a slot: encoding or encoded
  int32_t kv_blocks_used = 0;
  int32_t kv_blocks_total = 0;

  friend bool operator==(const SchedulerGauges&, const SchedulerGauges&) = default;
};

// Called from the scheduler's thread, which waits for it: keep it short.
class SchedulerObserver {
 public:
  virtual ~SchedulerObserver() = default;
  virtual void OnGauges(const SchedulerGauges& gauges) = 0;  // only when one has changed
  virtual void OnGeneratedTokens(int64_t count) = 0;         // new tokens delivered to sinks
  virtual void OnSourceTokens(int64_t count) = 0;            // source tokens encoded
  // Once at most: the engine has failed for this reason, and the instance serves no more.
  virtual void OnEngineFailure(const Error& error) = 0;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_SCHEDULER_SCHEDULER_OBSERVER_H_
