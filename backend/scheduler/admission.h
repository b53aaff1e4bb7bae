// Pulls requests from the queue when they can be taken in at once.
#ifndef SEQ2SEQ_BACKEND_SCHEDULER_ADMISSION_H_
#define SEQ2SEQ_BACKEND_SCHEDULER_ADMISSION_H_

#include <cstdint>

#include "backend/core/notifier.h"
#include "backend/scheduler/request_queue.h"
#include "backend/scheduler/sequence_table.h"

namespace seq2seq {

// Admits in order of arrival while there are slots free for all that wait in `table` and
// `max_ahead` more, and the pool holds all blocks that the next one can ever need. The next one
// stays in the queue until then: its bound counts everyone without blocks, and another instance may
// take it. `listener` is what the scheduler joined the queue with.
void AdmitFromQueue(RequestQueue& queue, Notifier* listener, int32_t max_ahead,
                    SequenceTable& table);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_SCHEDULER_ADMISSION_H_
