// The threads that share an engine's arithmetic.
#ifndef SEQ2SEQ_BACKEND_CPU_THREAD_POOL_H_
#define SEQ2SEQ_BACKEND_CPU_THREAD_POOL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include "backend/core/status.h"

namespace seq2seq::cpu {

// Runs loops on its threads and on the thread that calls Run(). One caller at a time.
//
// A loop is cut into chunks; each thread claims the next one when it has ended its last, so a
// thread that the system took off its core delays a loop by one chunk at most, and one that is
// still asleep by nothing. Which thread runs a chunk must not matter to its result. Waiting threads
// look for work for some microseconds, the gap between two loops of a step, and then sleep in the
// kernel: an idle engine uses no processor time.
class ThreadPool {
 public:
  static constexpr int32_t kMaxChunks = (1 << 20) - 1;
  static constexpr int32_t kMaxThreads = 1024;

  // `threads` >= 1, the caller included. kInvalidArgument names cpu_threads if the system refuses.
  [[nodiscard]] static Result<std::unique_ptr<ThreadPool>> Create(int32_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int32_t threads() const { return static_cast<int32_t>(workers_.size()) + 1; }

  // Calls body(chunk, thread) for every chunk in [0, chunks), and returns when all have ended.
  // `thread` is in [0, threads()), 0 for the caller: an index for scratch memory. The body must not
  // throw.
  template <typename Body>
  void Run(int32_t chunks, Body&& body) {
    if (chunks <= 0) return;
    if (chunks == 1 || workers_.empty()) {
      for (int32_t chunk = 0; chunk < chunks; ++chunk) body(chunk, 0);
      return;
    }
    using Pointee = std::remove_reference_t<Body>;
    RunChunks(chunks, const_cast<void*>(static_cast<const void*>(&body)),
              [](void* target, int32_t chunk, int32_t thread) {
                (*static_cast<Pointee*>(target))(chunk, thread);
              });
  }

 private:
  using Trampoline = void (*)(void* target, int32_t chunk, int32_t thread);

  ThreadPool() = default;
  void RunChunks(int32_t chunks, void* target, Trampoline trampoline);
  void WorkerMain(int32_t thread);
  // Claims and runs chunks of the current loop until none is left.
  void Work(int32_t thread);

  // The loop that runs: epoch (24 bits), number of chunks (20), next chunk (20). One word, so that
  // a thread that claims late can't mistake one loop for another; and a loop with a claimed chunk
  // can't end, so target_ and trampoline_ belong to the claim.
  std::atomic<uint64_t> ticket_{0};
  void* target_ = nullptr;
  Trampoline trampoline_ = nullptr;
  alignas(64) std::atomic<int32_t> unfinished_{0};
  alignas(64) std::atomic<int32_t> epoch_{0};  // what sleeping workers wait on; -1: leave
  std::atomic<int32_t> sleepers_{0};
  std::vector<std::thread> workers_;
};

}  // namespace seq2seq::cpu

#endif  // SEQ2SEQ_BACKEND_CPU_THREAD_POOL_H_
