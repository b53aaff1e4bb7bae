#include "backend/scheduler/departures.h"

#include "backend/scheduler/end_errors.h"

namespace seq2seq {

void EndCancelledAndLate(int64_t now_ns, const SequenceTable& table) {
  for (Sequence* sequence : table.running()) {
    if (sequence->ended()) continue;
    if (sequence->sink->IsCancelled()) {
      sequence->Fail(CancelledError());
    } else if (IsLate(sequence->request, now_ns)) {
      sequence->Finish(FinishReason::kTimeout);
    }
  }
  for (Sequence* sequence : table.waiting()) {
    if (sequence->ended()) continue;
    if (sequence->sink->IsCancelled()) {
      sequence->Fail(CancelledError());
    } else if (IsLate(sequence->request, now_ns)) {
      sequence->Fail(WaitedTooLongError(sequence->request, now_ns));
    }
  }
}

}  // namespace seq2seq
