#include "backend/testing/fake_triton/fake_call.h"

#include <algorithm>
#include <utility>

#include "backend/core/clock.h"

namespace seq2seq {

std::vector<FakeResponse> FakeCall::responses() const {
  std::lock_guard lock(mutex_);
  return responses_;
}

std::vector<FakeStatistics> FakeCall::statistics() const {
  std::lock_guard lock(mutex_);
  return statistics_;
}

std::vector<std::string> FakeCall::events() const {
  std::lock_guard lock(mutex_);
  return events_;
}

std::vector<int32_t> FakeCall::tokens() const {
  std::lock_guard lock(mutex_);
  std::vector<int32_t> tokens;
  for (const FakeResponse& response : responses_) {
    if (!response.output_ids) continue;
    tokens.insert(tokens.end(), response.output_ids->begin(), response.output_ids->end());
  }
  return tokens;
}

bool FakeCall::finished() const {
  std::lock_guard lock(mutex_);
  return FinishedLocked();
}

bool FakeCall::FinishedLocked() const {
  const auto has = [this](const char* event) {
    return std::find(events_.begin(), events_.end(), event) != events_.end();
  };
  return has("send FINAL") && has("release") && has("delete factory");
}

FakeResponse FakeCall::last() const {
  std::lock_guard lock(mutex_);
  return responses_.empty() ? FakeResponse{} : responses_.back();
}

int FakeCall::sends_begun() const {
  std::lock_guard lock(mutex_);
  return sends_begun_;
}

void FakeCall::Cancel() {
  std::lock_guard lock(mutex_);
  cancelled_ = true;
}

void FakeCall::Unblock() {
  std::lock_guard lock(mutex_);
  unblocked_ = true;
  changed_.notify_all();
}

bool FakeCall::Wait(const std::function<bool()>& condition) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kDeadline, condition);
}

bool FakeCall::WaitFinished() const {
  return Wait([this] { return FinishedLocked(); });
}

bool FakeCall::WaitResponses(size_t count) const {
  return Wait([this, count] { return responses_.size() >= count; });
}

bool FakeCall::WaitSendsBegun(int count) const {
  return Wait([this, count] { return sends_begun_ >= count; });
}

bool FakeCall::cancelled() const {
  std::lock_guard lock(mutex_);
  return cancelled_;
}

void FakeCall::OnEvent(const std::string& event) {
  std::lock_guard lock(mutex_);
  events_.push_back(event);
  changed_.notify_all();
}

void FakeCall::OnStatistics(const FakeStatistics& statistics) {
  std::lock_guard lock(mutex_);
  statistics_.push_back(statistics);
}

void FakeCall::OnResponse(FakeResponse response) {
  std::lock_guard lock(mutex_);
  events_.push_back(response.final ? "send FINAL" : "send");
  responses_.push_back(std::move(response));
  changed_.notify_all();
}

void FakeCall::OnSendBegun(bool blocks) {
  std::unique_lock lock(mutex_);
  ++sends_begun_;
  changed_.notify_all();
  if (blocks) changed_.wait(lock, [this] { return unblocked_; });
}

void FakeCall::OnReturned() {
  std::lock_guard lock(mutex_);
  if (!responses_.empty()) responses_.back().returned_ns = SteadyClock().NowNs();
}

}  // namespace seq2seq
