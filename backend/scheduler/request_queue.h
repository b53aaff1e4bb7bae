// The model's one bounded waiting room, shared by the schedulers of its instances.
#ifndef SEQ2SEQ_BACKEND_SCHEDULER_REQUEST_QUEUE_H_
#define SEQ2SEQ_BACKEND_SCHEDULER_REQUEST_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/core/notifier.h"
#include "backend/core/status.h"
#include "backend/request/request.h"

namespace seq2seq {

// First come, first served. Safe from any thread. Sinks are never called with the lock held.
class RequestQueue {
 public:
  explicit RequestQueue(size_t capacity);
  ~RequestQueue();  // fails what is left with kUnavailable
  RequestQueue(const RequestQueue&) = delete;
  RequestQueue& operator=(const RequestQueue&) = delete;

  // Takes the request and wakes the listeners. If the queue is full or closed, or no scheduler could
  // ever serve it, returns the error and leaves `request` as it was.
  [[nodiscard]] Status Push(std::unique_ptr<PendingRequest>& request);

  // The oldest request, or null.
  std::unique_ptr<PendingRequest> Pop();

  // Ends what was cancelled (kCancelled) and what waited past its deadline (kUnavailable).
  // Any scheduler may call it; each calls it every tick.
  void Sweep(int64_t now_ns);

  // A scheduler that serves this queue: `notifier` is rung by Push(), and `total_blocks` blocks of
  // `block_tokens` tokens bound what it can ever serve. Remove before the notifier dies.
  void AddListener(Notifier* notifier, int32_t total_blocks, int32_t block_tokens);
  // When the last listener goes, what waits is failed with kUnavailable, and Push() refuses.
  void RemoveListener(Notifier* notifier);

  size_t size() const;

 private:
  struct Listener {
    Notifier* notifier;
    int32_t total_blocks;
    int32_t block_tokens;
  };
  const size_t capacity_;
  mutable std::mutex mutex_;
  std::deque<std::unique_ptr<PendingRequest>> waiting_;
  std::vector<Listener> listeners_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_SCHEDULER_REQUEST_QUEUE_H_
