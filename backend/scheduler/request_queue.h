// The model's one bounded waiting room, shared by the schedulers of its instances.
#ifndef SEQ2SEQ_BACKEND_SCHEDULER_REQUEST_QUEUE_H_
#define SEQ2SEQ_BACKEND_SCHEDULER_REQUEST_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "backend/core/notifier.h"
#include "backend/core/status.h"
#include "backend/request/request.h"

namespace seq2seq {

// What a scheduler offers when it asks for a request.
struct PullOffer {
  Notifier* listener = nullptr;  // who asks: what it was added with
  int32_t free_blocks = 0;       // of its KV pool, now
  // It has a slot for the request. If not, the request is pulled ahead, to be encoded by the time
  // that a slot comes free; one isn't pulled ahead past another listener that waits with free
  // slots.
  bool slot_free = true;
};

// First come, first served. Safe from any thread. Append(), Finish() and Fail() of sinks are never
// called with the lock held; IsCancelled() is, and must not call back.
class RequestQueue {
 public:
  // `capacity` requests wait at most; 0 refuses everything.
  explicit RequestQueue(size_t capacity);
  ~RequestQueue();  // fails what is left with kUnavailable
  RequestQueue(const RequestQueue&) = delete;
  RequestQueue& operator=(const RequestQueue&) = delete;

  // Takes the request and wakes the listeners. If the queue is full, has no listener or none that
  // could ever serve the request, returns the error and leaves `request` as it was.
  [[nodiscard]] Status Push(std::unique_ptr<PendingRequest>& request);

  // The oldest request that the listener's pool can ever hold, if its free blocks are enough now;
  // else null. Younger and smaller requests never pass one that waits for blocks, so it can't
  // starve.
  std::unique_ptr<PendingRequest> Pop(const PullOffer& offer);

  // Ends what was cancelled (kCancelled) and what waited past its deadline (kUnavailable). Does
  // nothing within a millisecond of the last sweep, whoever made it: each scheduler calls it at
  // every step, and it asks every sink with the lock held. `now_ns` is of one clock, in any order.
  void Sweep(int64_t now_ns);

  // A scheduler that serves this queue: `notifier` is rung by Push(), and `total_blocks` blocks of
  // `block_tokens` tokens bound what it can ever serve. Remove before the notifier dies.
  void AddListener(Notifier* notifier, int32_t total_blocks, int32_t block_tokens);
  // What waits and no listener left could ever serve is failed with kUnavailable; after the last
  // listener that is everything, and Push() refuses. Does nothing for a notifier unknown. Needs no
  // memory: it is how a scheduler leaves that has none.
  void RemoveListener(Notifier* notifier) noexcept;

  size_t size() const;

 private:
  struct Listener {
    Notifier* notifier;
    int32_t total_blocks;
    int32_t block_tokens;
    bool hungry;  // has free slots, and the last time that it asked nothing was here for it
  };

  static bool CanEverServe(const Listener& listener, const Request& request);
  bool AnyCanEverServe(const Request& request) const;
  std::unique_ptr<PendingRequest> TakeStranded();  // null: none is left
  Error TooLargeError(const Request& request) const;

  const size_t capacity_;
  mutable std::mutex mutex_;
  std::deque<std::unique_ptr<PendingRequest>> waiting_;
  std::vector<Listener> listeners_;
  std::optional<int64_t> last_sweep_ns_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_SCHEDULER_REQUEST_QUEUE_H_
