// The threads that turn waiting tokens into Triton responses.
#ifndef SEQ2SEQ_BACKEND_TRITON_RESPONSE_SENDER_H_
#define SEQ2SEQ_BACKEND_TRITON_RESPONSE_SENDER_H_

#include <condition_variable>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "backend/core/clock.h"
#include "backend/core/status.h"
#include "backend/request/token_sink.h"
#include "backend/triton/outgoing_stream.h"
#include "backend/triton/send_schedule.h"

namespace seq2seq {

// A model's senders. Sending writes to the client's socket (0.05 to 0.4 ms), so it is kept off the
// schedulers' threads: their calls only note the token and, for a stream that rests, wake a thread.
// No lock is held while something is sent; a reader that blocks its send holds up one thread and
// its own stream, whose tokens merge meanwhile. Safe from any thread.
class ResponseSender {
 public:
  // `clock` outlives the sender. `threads` >= 1. Throws std::system_error if they can't be had.
  ResponseSender(const Clock* clock, int threads);
  // Sends what has ended, without waiting for intervals. All sinks must be gone.
  ~ResponseSender();
  ResponseSender(const ResponseSender&) = delete;
  ResponseSender& operator=(const ResponseSender&) = delete;

  // As of SendSchedule.
  void Append(const std::shared_ptr<OutgoingStream>& stream, int32_t token, float logprob);
  void AppendLast(const std::shared_ptr<OutgoingStream>& stream, int32_t token, float logprob,
                  FinishReason reason);
  void Finish(const std::shared_ptr<OutgoingStream>& stream, FinishReason reason);
  void Fail(const std::shared_ptr<OutgoingStream>& stream, Error error);
  // Its sink is gone: fails it with kInternal, unless it has ended.
  void Abandon(const std::shared_ptr<OutgoingStream>& stream);

 private:
  void Stop();
  void Run();
  void Wait(std::unique_lock<std::mutex>& lock);
  void WakeOne(std::unique_lock<std::mutex> lock);

  static constexpr int64_t kNobody = std::numeric_limits<int64_t>::max();

  const Clock* const clock_;
  std::mutex mutex_;
  std::condition_variable wake_;
  SendSchedule schedule_;
  int sleepers_ = 0;
  int64_t watched_due_ns_ = kNobody;  // the due time that a sleeper will wake up for
  bool stopping_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TRITON_RESPONSE_SENDER_H_
