// Ends requests whose client or deadline wants it.
#ifndef SEQ2SEQ_BACKEND_SCHEDULER_DEPARTURES_H_
#define SEQ2SEQ_BACKEND_SCHEDULER_DEPARTURES_H_

#include <cstdint>

#include "backend/scheduler/sequence_table.h"

namespace seq2seq {

// Cancelled: kCancelled, in every state. Past its deadline: in a slot, the tokens so far with
// FinishReason::kTimeout; before that, kUnavailable. Tokens of steps in flight are dropped.
// SequenceTable::Settle() then lets go of them.
void EndCancelledAndLate(int64_t now_ns, const SequenceTable& table);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_SCHEDULER_DEPARTURES_H_
