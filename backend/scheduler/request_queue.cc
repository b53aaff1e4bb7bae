#include "backend/scheduler/request_queue.h"

#include <algorithm>
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

// Moves those that `leaves` says yes to behind `left`; the others keep their order. Allocates only
// if there are any.
template <typename Predicate>
void ExtractIf(Waiting& waiting, std::vector<std::unique_ptr<PendingRequest>>& left,
               Predicate leaves) {
  size_t kept = 0;
  for (std::unique_ptr<PendingRequest>& pending : waiting) {
    if (leaves(*pending)) {
      left.push_back(std::move(pending));
    } else if (std::unique_ptr<PendingRequest>& place = waiting[kept++]; &place != &pending) {
      place = std::move(pending);
    }
  }
  waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(kept), waiting.end());
}

}  // namespace

RequestQueue::RequestQueue(size_t capacity) : capacity_(capacity) {}

RequestQueue::~RequestQueue() {
  for (auto& pending : waiting_) pending->sink->Fail({ErrorCode::kUnavailable, kNoInstance});
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
  std::vector<std::unique_ptr<PendingRequest>> cancelled;
  std::vector<std::unique_ptr<PendingRequest>> late;
  {
    std::lock_guard lock(mutex_);
    if (last_sweep_ns_ && now_ns - *last_sweep_ns_ < kSweepIntervalNs) return;
    last_sweep_ns_ = now_ns;
    ExtractIf(waiting_, cancelled, [](auto& pending) { return pending.sink->IsCancelled(); });
    ExtractIf(waiting_, late, [&](auto& pending) { return IsLate(pending.request, now_ns); });
  }
  for (auto& pending : cancelled) pending->sink->Fail(CancelledError());
  for (auto& pending : late) pending->sink->Fail(WaitedTooLongError(pending->request, now_ns));
}

void RequestQueue::AddListener(Notifier* notifier, int32_t total_blocks, int32_t block_tokens) {
  std::lock_guard lock(mutex_);
  listeners_.push_back({.notifier = notifier,
                        .total_blocks = total_blocks,
                        .block_tokens = block_tokens,
                        .hungry = false});
}

void RequestQueue::RemoveListener(Notifier* notifier) {
  std::vector<std::unique_ptr<PendingRequest>> stranded;
  {
    std::lock_guard lock(mutex_);
    std::erase_if(listeners_, [&](const Listener& it) { return it.notifier == notifier; });
    ExtractIf(waiting_, stranded,
              [this](auto& pending) { return !AnyCanEverServe(pending.request); });
  }
  for (auto& pending : stranded) {
    pending->sink->Fail(
        {ErrorCode::kUnavailable, "the instance that could have served the request has stopped"});
  }
}

size_t RequestQueue::size() const {
  std::lock_guard lock(mutex_);
  return waiting_.size();
}

}  // namespace seq2seq
