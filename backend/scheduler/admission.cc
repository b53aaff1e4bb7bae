#include "backend/scheduler/admission.h"

#include <memory>
#include <utility>

namespace seq2seq {

void AdmitFromQueue(RequestQueue& queue, Notifier* listener, int32_t max_ahead,
                    SequenceTable& table) {
  while (table.HasRoom()) {
    const auto waiting = static_cast<int32_t>(table.waiting().size());
    if (waiting >= table.free_slots() + max_ahead) return;
    std::unique_ptr<PendingRequest> pending =
        queue.Pop({.listener = listener,
                   .free_blocks = table.pool().free(),
                   .slot_free = waiting < table.free_slots()});
    if (pending == nullptr) return;
    table.Admit(std::move(pending));
  }
}

}  // namespace seq2seq
