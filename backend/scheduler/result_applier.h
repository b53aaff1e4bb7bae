// Brings the result of a step to the sinks.
#ifndef SEQ2SEQ_BACKEND_SCHEDULER_RESULT_APPLIER_H_
#define SEQ2SEQ_BACKEND_SCHEDULER_RESULT_APPLIER_H_

#include <cstdint>

#include "backend/core/status.h"
#include "backend/scheduler/step_planner.h"

namespace seq2seq {

// Appends the new tokens of requests that are still open and finishes those that the engine says
// are over; tokens of requests that ended meanwhile are dropped. Log-probabilities are 0 unless the
// request asked for them. Returns the number of tokens delivered, or, applying nothing, the step's
// error, or kInternal if the result doesn't fit the plan: both mean that the engine has failed.
[[nodiscard]] Result<int64_t> ApplyStep(const EndedStep& step);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_SCHEDULER_RESULT_APPLIER_H_
