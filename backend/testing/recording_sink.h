// A TokenSink that remembers what it was told.
#ifndef SEQ2SEQ_BACKEND_TESTING_RECORDING_SINK_H_
#define SEQ2SEQ_BACKEND_TESTING_RECORDING_SINK_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "backend/core/status.h"
#include "backend/request/token_sink.h"

namespace seq2seq {

// What one sink was told; outlives it, so that a test can look at it afterwards. Safe from any
// thread.
class SinkRecord {
 public:
  std::vector<int32_t> tokens() const;
  std::vector<float> logprobs() const;
  std::optional<FinishReason> finish_reason() const;  // after Finish()
  std::optional<Error> error() const;                 // after Fail()

  int appends() const;
  int ends() const;        // Finish() and Fail() calls together: exactly 1 in the end
  int late_calls() const;  // Append(), Finish() or Fail() after the end: must be 0
  bool ended() const;
  bool destroyed() const;             // the sink is gone
  bool destroyed_unanswered() const;  // ... and nobody had ended it
  int64_t cancel_polls() const;       // IsCancelled() calls

  // The client goes away: IsCancelled() is true from now on.
  void Cancel();

  // Waits for the end, or for `count` tokens; false when `timeout` was over first.
  bool WaitEnded(std::chrono::milliseconds timeout = std::chrono::seconds(20)) const;
  bool WaitTokens(size_t count, std::chrono::milliseconds timeout = std::chrono::seconds(20)) const;

  // Called inside Finish() and Fail(), in the caller's thread. Set it before the sink is used.
  void set_on_end(std::function<void()> on_end) { on_end_ = std::move(on_end); }

 private:
  friend class RecordingSink;

  void Append(int32_t token, float logprob);
  void End(std::optional<FinishReason> reason, std::optional<Error> error);
  bool PollCancelled();
  void Destroyed();

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<int32_t> tokens_;
  std::vector<float> logprobs_;
  std::optional<FinishReason> finish_reason_;
  std::optional<Error> error_;
  int ends_ = 0;
  int late_calls_ = 0;
  bool cancelled_ = false;
  bool destroyed_ = false;
  bool destroyed_unanswered_ = false;
  int64_t cancel_polls_ = 0;
  std::function<void()> on_end_;
};

// Like every sink it fails itself with kInternal when it is destroyed unanswered.
class RecordingSink final : public TokenSink {
 public:
  explicit RecordingSink(std::shared_ptr<SinkRecord> record) : record_(std::move(record)) {}
  ~RecordingSink() override { record_->Destroyed(); }

  void Append(int32_t token, float logprob) override { record_->Append(token, logprob); }
  void Finish(FinishReason reason) override { record_->End(reason, std::nullopt); }
  void Fail(Error error) override { record_->End(std::nullopt, std::move(error)); }
  bool IsCancelled() override { return record_->PollCancelled(); }

 private:
  std::shared_ptr<SinkRecord> record_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TESTING_RECORDING_SINK_H_
