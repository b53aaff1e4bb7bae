#include "backend/scheduler/request_queue.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <string>
#include <utility>

#include "backend/scheduler/end_errors.h"
#include "backend/scheduler/kv_demand.h"

namespace seq2seq {
namespace {

// Clients notice no difference, and a deep queue costs the steps little.
constexpr int64_t kSweepIntervalNs = 1'000'000;

constexpr const char* kNoInstance = "no instance of the model is serving requests";

using Waiting = std::deque<std::unique_ptr<PendingRequest>>;

// Takes out those that `leaves` says yes to; the others keep their order. Allocates only if there
// are any, and before it moves one: if that throws, all of them stay.
template <typename Predicate>
std::vector<std::unique_ptr<PendingRequest>> ExtractIf(Waiting& waiting, Predicate leaves) {
  std::vector<std::unique_ptr<PendingRequest>> left;
  const auto first = std::ranges::find_if(waiting, [&](auto& it) { return leaves(*it); });
  if (first == waiting.end()) return left;
  left.reserve(static_cast<size_t>(waiting.end() - first));
  left.push_back(std::move(*first));
  auto place = first;
  for (auto it = std::next(first); it != waiting.end(); ++it) {
    if (leaves(**it)) {
      left.push_back(std::move(*it));
    } else {
      *place++ = std::move(*it);
    }
  }
  waiting.erase(place, waiting.end());
  return left;
}

// Throws nothing: a sink let go unanswered fails itself.
void Fail(std::unique_ptr<PendingRequest> pending, Error error) noexcept {
  try {
    pending->sink->Fail(std::move(error));
  } catch (const std::exception&) {
  }
}

Error StoppedError() {
  return ErrorWithText(ErrorCode::kUnavailable, [] {
    return std::string("the instance that could have served the request has stopped");
  });
}

}  // namespace

RequestQueue::RequestQueue(size_t capacity) : capacity_(capacity) {}

RequestQueue::~RequestQueue() {
  for (auto& pending : waiting_) {
    Fail(std::move(pending),
         ErrorWithText(ErrorCode::kUnavailable, [] { return std::string(kNoInstance); }));
  }
}

bool RequestQueue::CanEverServe(const Listener& listener, const Request& request) {
  return KvDemandOf(request, listener.block_tokens).total() <= listener.total_blocks;
}

bool RequestQueue::AnyCanEverServe(const Request& request) const {
  return std::ranges::any_of(
      listeners_, [&](const Listener& listener) { return CanEverServe(listener, request); });
}

Error RequestQueue::TooLargeError(const Request& request) const {
  const Listener& largest = *std::ranges::max_element(listeners_, {}, [](const Listener& listener) {
    return static_cast<int64_t>(listener.total_blocks) * listener.block_tokens;
  });
  const int64_t needed = KvDemandOf(request, largest.block_tokens).total();
  return {ErrorCode::kInvalidArgument,
          "the request can't fit the KV cache: " + std::to_string(request.source_ids.size()) +
              " source tokens, " + std::to_string(request.decoder_prefix.size()) +
              " decoder prefix tokens and max_new_tokens " +
              std::to_string(request.max_new_tokens) + " need " + std::to_string(needed) +
              " blocks of " + std::to_string(largest.block_tokens) +
              " tokens, and an instance has " + std::to_string(largest.total_blocks) +
              "; shorten the source, lower max_new_tokens or raise kv_cache_bytes"};
}

Status RequestQueue::Push(std::unique_ptr<PendingRequest>& request) {
  std::lock_guard lock(mutex_);
  if (listeners_.empty()) return Unavailable(kNoInstance);
  if (!AnyCanEverServe(request->request)) return std::unexpected(TooLargeError(request->request));
  if (waiting_.size() >= capacity_) {
    return Unavailable("the queue is full: " + std::to_string(waiting_.size()) +
                       " requests are waiting, max_queue_size is " + std::to_string(capacity_));
  }
  waiting_.push_back(std::move(request));
  // With the lock held: a listener that is being removed can't lose its notifier meanwhile.
  for (const Listener& listener : listeners_) listener.notifier->Notify();
  return OkStatus();
}

std::unique_ptr<PendingRequest> RequestQueue::Pop(const PullOffer& offer) {
  std::lock_guard lock(mutex_);
  const auto self = std::ranges::find(listeners_, offer.listener, &Listener::notifier);
  if (self == listeners_.end()) return nullptr;
  const auto next = std::ranges::find_if(
      waiting_, [&](const auto& pending) { return CanEverServe(*self, pending->request); });
  self->hungry = offer.slot_free && next == waiting_.end();
  if (next == waiting_.end()) return nullptr;
  const Request& request = (*next)->request;
  if (KvDemandOf(request, self->block_tokens).total() > offer.free_blocks) return nullptr;
  const auto could_start_at_once = [&](const Listener& listener) {
    return listener.hungry && CanEverServe(listener, request);
  };
  if (!offer.slot_free && std::ranges::any_of(listeners_, could_start_at_once)) return nullptr;
  std::unique_ptr<PendingRequest> pending = std::move(*next);
  waiting_.erase(next);
  return pending;
}

void RequestQueue::Sweep(int64_t now_ns) {
  std::vector<std::unique_ptr<PendingRequest>> over;
  {
    std::lock_guard lock(mutex_);
    if (last_sweep_ns_ && now_ns - *last_sweep_ns_ < kSweepIntervalNs) return;
    last_sweep_ns_ = now_ns;
    over = ExtractIf(waiting_, [&](PendingRequest& pending) {
      return pending.sink->IsCancelled() || IsLate(pending.request, now_ns);
    });
  }
  for (auto& pending : over) {
    Error error = pending->sink->IsCancelled() ? CancelledError()
                                               : WaitedTooLongError(pending->request, now_ns);
    Fail(std::move(pending), std::move(error));
  }
}

void RequestQueue::AddListener(Notifier* notifier, int32_t total_blocks, int32_t block_tokens) {
  std::lock_guard lock(mutex_);
  listeners_.push_back({.notifier = notifier,
                        .total_blocks = total_blocks,
                        .block_tokens = block_tokens,
                        .hungry = false});
}

std::unique_ptr<PendingRequest> RequestQueue::TakeStranded() {
  std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(
      waiting_, [this](const auto& pending) { return !AnyCanEverServe(pending->request); });
  if (found == waiting_.end()) return nullptr;
  std::unique_ptr<PendingRequest> pending = std::move(*found);
  waiting_.erase(found);
  return pending;
}

void RequestQueue::RemoveListener(Notifier* notifier) noexcept {
  {
    std::lock_guard lock(mutex_);
    std::erase_if(listeners_, [&](const Listener& it) { return it.notifier == notifier; });
  }
  // One by one: a list of them would need memory.
  while (std::unique_ptr<PendingRequest> stranded = TakeStranded()) {
    Fail(std::move(stranded), StoppedError());
  }
}

size_t RequestQueue::size() const {
  std::lock_guard lock(mutex_);
  return waiting_.size();
}

}  // namespace seq2seq
