// The client's side of one request.
#ifndef SEQ2SEQ_BACKEND_TESTING_FAKE_TRITON_FAKE_CALL_H_
#define SEQ2SEQ_BACKEND_TESTING_FAKE_TRITON_FAKE_CALL_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "backend/testing/fake_triton/fake_request.h"

namespace seq2seq {

// Everything that happened to a request. Safe from any thread.
class FakeCall {
 public:
  static constexpr std::chrono::seconds kDeadline{20};

  // For tests.
  std::vector<FakeResponse> responses() const;
  std::vector<FakeStatistics> statistics() const;
  // "report", "release", "delete factory", and "send", "send FINAL" in the order of the calls.
  std::vector<std::string> events() const;
  std::vector<int32_t> tokens() const;  // of all responses
  bool finished() const;                // FINAL came, and the backend gave everything back
  FakeResponse last() const;            // the FINAL response
  int sends_begun() const;

  void Cancel();
  void Unblock();  // sends that block, now and later

  // False if it took longer than kDeadline.
  bool WaitFinished() const;
  bool WaitResponses(size_t count) const;
  bool WaitSendsBegun(int count) const;

  // For the fake's ABI functions.
  bool cancelled() const;
  void OnEvent(const std::string& event);
  void OnStatistics(const FakeStatistics& statistics);
  void OnResponse(FakeResponse response);
  void OnSendBegun(bool blocks);  // returns when the send may go on
  void OnReturned();              // the last send's call is over

 private:
  bool Wait(const std::function<bool()>& condition) const;
  bool FinishedLocked() const;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<FakeResponse> responses_;
  std::vector<FakeStatistics> statistics_;
  std::vector<std::string> events_;
  int sends_begun_ = 0;
  bool cancelled_ = false;
  bool unblocked_ = false;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TESTING_FAKE_TRITON_FAKE_CALL_H_
