#include "backend/cpu/thread_pool.h"

#include <exception>
#include <string>

namespace seq2seq::cpu {
namespace {

constexpr int kChunkBits = 20;
constexpr uint64_t kChunkMask = (uint64_t{1} << kChunkBits) - 1;
constexpr int32_t kEpochMask = (1 << 24) - 1;
constexpr int32_t kLeave = -1;
// About 10 us of looking before a thread goes to sleep.
constexpr int kSpins = 400;

int32_t NextChunk(uint64_t ticket) { return static_cast<int32_t>(ticket & kChunkMask); }
int32_t Chunks(uint64_t ticket) {
  return static_cast<int32_t>((ticket >> kChunkBits) & kChunkMask);
}

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace

Result<std::unique_ptr<ThreadPool>> ThreadPool::Create(int32_t threads) {
  if (threads < 1 || threads > kMaxThreads) {
    return InvalidArgument("option 'cpu_threads' is " + std::to_string(threads) +
                           "; allowed: 1 to " + std::to_string(kMaxThreads));
  }
  std::unique_ptr<ThreadPool> pool(new ThreadPool());
  try {
    pool->workers_.reserve(threads - 1);
    for (int32_t thread = 1; thread < threads; ++thread) {
      pool->workers_.emplace_back([raw = pool.get(), thread] { raw->WorkerMain(thread); });
    }
  } catch (const std::exception& failure) {
    return InvalidArgument("can't start " + std::to_string(threads) +
                           " threads (option 'cpu_threads'): " + failure.what());
  }
  return pool;
}

ThreadPool::~ThreadPool() {
  epoch_.store(kLeave);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::RunChunks(int32_t chunks, void* target, Trampoline trampoline) {
  target_ = target;
  trampoline_ = trampoline;
  unfinished_.store(chunks, std::memory_order_relaxed);
  const int32_t epoch = (epoch_.load(std::memory_order_relaxed) + 1) & kEpochMask;
  ticket_.store((static_cast<uint64_t>(epoch) << (2 * kChunkBits)) |
                    (static_cast<uint64_t>(chunks) << kChunkBits),
                std::memory_order_release);
  // Sequentially consistent with the workers' announcement of sleep: one of both sees the other.
  epoch_.store(epoch);
  if (sleepers_.load() > 0) epoch_.notify_all();

  Work(0);
  int32_t left = unfinished_.load(std::memory_order_acquire);
  for (int spin = 0; left != 0; left = unfinished_.load(std::memory_order_acquire)) {
    if (++spin < kSpins) {
      Pause();
    } else {
      unfinished_.wait(left, std::memory_order_acquire);
    }
  }
}

void ThreadPool::Work(int32_t thread) {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while (NextChunk(ticket) < Chunks(ticket)) {
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {
      continue;
    }
    trampoline_(target_, NextChunk(ticket), thread);
    // The pool may be gone once the caller has seen the last chunk end, unless that caller is this
    // thread; a worker is joined before.
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1 && thread != 0) {
      unfinished_.notify_one();
    }
    ticket = ticket_.load(std::memory_order_acquire);
  }
}

void ThreadPool::WorkerMain(int32_t thread) {
  int32_t seen = 0;
  while (true) {
    int32_t epoch = epoch_.load(std::memory_order_acquire);
    for (int spin = 0; epoch == seen && spin < kSpins; ++spin) {
      Pause();
      epoch = epoch_.load(std::memory_order_acquire);
    }
    if (epoch == seen) {
      sleepers_.fetch_add(1);
      epoch_.wait(seen);
      sleepers_.fetch_sub(1);
      continue;
    }
    if (epoch == kLeave) return;
    seen = epoch;
    Work(thread);
  }
}

}  // namespace seq2seq::cpu
