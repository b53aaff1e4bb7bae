// The knobs between throughput and the time to a first token.
#ifndef SEQ2SEQ_BACKEND_SCHEDULER_SCHEDULING_POLICY_H_
#define SEQ2SEQ_BACKEND_SCHEDULER_SCHEDULING_POLICY_H_

#include <algorithm>
#include <cstdint>

#include "backend/engine/engine.h"

namespace seq2seq {

struct SchedulingPolicy {
  // Requests pulled beyond the free slots, so that a slot that comes free finds an encoded source.
  // Small against the slots: what is pulled ahead holds KV blocks, is no longer bounded by the
  // queue, and can't go to another instance.
  int32_t max_ahead = 1;
  // While every slot is taken and more requests are waiting, encoding is not urgent: sources gather
  // until there are so many, as one larger batch costs the device less than several small ones.
  // A source is encoded at once if it could otherwise leave a slot empty, or if no more are coming.
  int32_t encode_gather = 1;
};

inline SchedulingPolicy PolicyFor(const EngineInfo& info) {
  const int32_t encodable = std::max(1, info.max_encode_items * info.max_encodes_in_flight);
  const int32_t ahead = std::clamp(info.max_slots / 4, 1, encodable);
  return {.max_ahead = ahead,
          .encode_gather = std::clamp((ahead + 1) / 2, 1, std::max(1, info.max_encode_items))};
}

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_SCHEDULER_SCHEDULING_POLICY_H_
