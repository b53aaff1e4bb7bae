#include "backend/scheduler/request_queue.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "backend/testing/test_request.h"

namespace seq2seq {
namespace {

using std::chrono::seconds;

constexpr int64_t kMs = 1'000'000;

class RequestQueueTest : public testing::Test {
 protected:
  ~RequestQueueTest() override { queue_.reset(); }

  void Listen(Notifier* notifier, int32_t total_blocks) {
    queue_->AddListener(notifier, total_blocks, 4);
  }
  TestRequest& Make(const TestRequestSpec& spec = {}) {
    requests_.push_back(std::make_unique<TestRequest>(spec));
    return *requests_.back();
  }
  // Pushes a request that must be taken.
  TestRequest& Push(const TestRequestSpec& spec = {}) {
    TestRequest& request = Make(spec);
    const Status pushed = queue_->Push(request.pending);
    EXPECT_TRUE(pushed) << pushed.error().message;
    EXPECT_EQ(request.pending, nullptr);
    return request;
  }
  // The first source id of what is popped, or -1; the request is answered.
  int32_t Pop(const PullOffer& offer) {
    std::unique_ptr<PendingRequest> pending = queue_->Pop(offer);
    if (pending == nullptr) return -1;
    pending->sink->Finish(FinishReason::kStop);
    return pending->request.source_ids[0];
  }

  std::unique_ptr<RequestQueue> queue_ = std::make_unique<RequestQueue>(3);
  Notifier bell_;
  Notifier other_bell_;
  std::vector<std::unique_ptr<TestRequest>> requests_;
};

TEST_F(RequestQueueTest, ServesInOrderOfArrival) {
  Listen(&bell_, 10);
  for (int32_t id : {20, 40, 30}) Push({.first_id = id});
  EXPECT_EQ(queue_->size(), 3U);
  const PullOffer offer{.listener = &bell_, .free_blocks = 10};
  EXPECT_EQ(Pop(offer), 20);
  EXPECT_EQ(Pop(offer), 40);
  EXPECT_EQ(Pop(offer), 30);
  EXPECT_EQ(Pop(offer), -1);
}

TEST_F(RequestQueueTest, PushRingsEveryListener) {
  Listen(&bell_, 10);
  Listen(&other_bell_, 10);
  Push();
  EXPECT_TRUE(bell_.WaitFor(seconds(0)));
  EXPECT_TRUE(other_bell_.WaitFor(seconds(0)));
}

TEST_F(RequestQueueTest, RefusesWhenFullAndLeavesTheRequest) {
  Listen(&bell_, 10);
  for (int i = 0; i < 3; ++i) Push();
  TestRequest& fourth = Make();
  const Status pushed = queue_->Push(fourth.pending);
  ASSERT_FALSE(pushed);
  EXPECT_EQ(pushed.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(pushed.error().message.find("max_queue_size is 3"), std::string::npos);
  ASSERT_NE(fourth.pending, nullptr);
  EXPECT_NE(fourth.pending->sink, nullptr);
  EXPECT_EQ(fourth.pending->request.source_ids.size(), 5U);
  EXPECT_FALSE(fourth.record->ended());
  EXPECT_EQ(Pop({.listener = &bell_, .free_blocks = 10}), 10);
  EXPECT_TRUE(queue_->Push(fourth.pending));
}

TEST_F(RequestQueueTest, RefusesWhatNoListenerCanEverHold) {
  Listen(&bell_, 5);
  Listen(&other_bell_, 9);
  Push({.source_tokens = 16, .max_new_tokens = 20});  // 4 + 5 blocks: fits exactly
  // 21 positions of the decoder: prefix 2 and new tokens 20, less the last.
  TestRequest& large = Make({.source_tokens = 16, .prefix_tokens = 2, .max_new_tokens = 20});
  const Status pushed = queue_->Push(large.pending);
  ASSERT_FALSE(pushed);
  EXPECT_EQ(pushed.error().code, ErrorCode::kInvalidArgument);
  for (const char* words : {"16 source tokens", "max_new_tokens 20", "need 10 blocks of 4 tokens",
                            "an instance has 9"}) {
    EXPECT_NE(pushed.error().message.find(words), std::string::npos) << pushed.error().message;
  }
  EXPECT_NE(large.pending, nullptr);
}

TEST_F(RequestQueueTest, HugeLimitsDoNotOverflow) {
  Listen(&bell_, 1 << 20);
  TestRequest& huge = Make({.prefix_tokens = 8, .max_new_tokens = 2'147'483'647});
  EXPECT_EQ(queue_->Push(huge.pending).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(RequestQueueTest, TheHeadOfTheLineWaitsAndNobodyPassesIt) {
  Listen(&bell_, 10);
  Push({.first_id = 50, .source_tokens = 20, .max_new_tokens = 20});  // 10 blocks
  Push({.first_id = 60});                                             // 3 blocks
  EXPECT_EQ(Pop({.listener = &bell_, .free_blocks = 9}), -1);
  EXPECT_EQ(Pop({.listener = &bell_, .free_blocks = 10}), 50);
  EXPECT_EQ(Pop({.listener = &bell_, .free_blocks = 2}), -1);
  EXPECT_EQ(Pop({.listener = &bell_, .free_blocks = 3}), 60);
}

TEST_F(RequestQueueTest, AListenerPassesOnlyWhatItCanNeverHold) {
  Listen(&bell_, 4);
  Listen(&other_bell_, 10);
  Push({.first_id = 50, .source_tokens = 20, .max_new_tokens = 20});
  Push({.first_id = 60});
  EXPECT_EQ(Pop({.listener = &bell_, .free_blocks = 4}), 60);
  EXPECT_EQ(Pop({.listener = &bell_, .free_blocks = 4}), -1);
  EXPECT_EQ(Pop({.listener = &other_bell_, .free_blocks = 10}), 50);
}

TEST_F(RequestQueueTest, NothingIsPulledAheadOfAnIdleListener) {
  Listen(&bell_, 10);
  Listen(&other_bell_, 10);
  const PullOffer ahead{.listener = &bell_, .free_blocks = 10, .slot_free = false};
  const PullOffer other{.listener = &other_bell_, .free_blocks = 10};
  EXPECT_EQ(Pop(other), -1);  // it will come when the bell rings
  Push({.first_id = 50});
  Push({.first_id = 60});
  EXPECT_EQ(Pop(ahead), -1);
  EXPECT_EQ(Pop(other), 50);
  EXPECT_EQ(Pop(ahead), 60);
}

TEST_F(RequestQueueTest, OnlyListenersArePopped) {
  Listen(&bell_, 10);
  Push();
  EXPECT_EQ(queue_->Pop({.listener = &other_bell_, .free_blocks = 10}), nullptr);
}

TEST_F(RequestQueueTest, SweepEndsTheCancelledAndTheLate) {
  Listen(&bell_, 10);
  TestRequest& cancelled = Push({.first_id = 20, .arrival_ns = 100 * kMs, .timeout_ns = 10 * kMs});
  TestRequest& late = Push({.first_id = 30, .arrival_ns = 100 * kMs, .timeout_ns = 10 * kMs});
  TestRequest& good = Push({.first_id = 40, .arrival_ns = 100 * kMs, .timeout_ns = 30 * kMs});
  for (TestRequest* request : {&cancelled, &late}) {
    // Deadlocks if the sink is called with the lock held.
    request->record->set_on_end([this] { static_cast<void>(queue_->size()); });
  }
  queue_->Sweep(110 * kMs - 1);
  EXPECT_EQ(queue_->size(), 3U);
  cancelled.record->Cancel();
  queue_->Sweep(112 * kMs);
  EXPECT_EQ(cancelled.record->error()->code, ErrorCode::kCancelled);
  EXPECT_EQ(late.record->error()->code, ErrorCode::kUnavailable);
  EXPECT_NE(late.record->error()->message.find("waited 12000 us"), std::string::npos);
  EXPECT_NE(late.record->error()->message.find("timeout is 10000 us"), std::string::npos);
  EXPECT_FALSE(good.record->ended());
  EXPECT_EQ(Pop({.listener = &bell_, .free_blocks = 10}), 40);
}

TEST_F(RequestQueueTest, SinksAreAskedOnceAMillisecondWhoeverSweeps) {
  Listen(&bell_, 10);
  TestRequest& request = Push();
  queue_->Sweep(0);
  EXPECT_EQ(request.record->cancel_polls(), 1);
  request.record->Cancel();
  for (int64_t now_ns : {int64_t{0}, kMs / 2, kMs - 1}) queue_->Sweep(now_ns);
  EXPECT_EQ(request.record->cancel_polls(), 1);
  EXPECT_FALSE(request.record->ended());
  queue_->Sweep(kMs);
  EXPECT_EQ(request.record->error()->code, ErrorCode::kCancelled);
}

TEST_F(RequestQueueTest, RefusesWithoutListeners) {
  TestRequest& request = Make();
  EXPECT_EQ(queue_->Push(request.pending).error().code, ErrorCode::kUnavailable);
  ASSERT_NE(request.pending, nullptr);
  Listen(&bell_, 10);
  EXPECT_TRUE(queue_->Push(request.pending));
  queue_->RemoveListener(&other_bell_);  // unknown: nothing happens
  EXPECT_FALSE(request.record->ended());
  queue_->RemoveListener(&bell_);
  EXPECT_EQ(request.record->error()->code, ErrorCode::kUnavailable);
  EXPECT_EQ(queue_->Push(Make().pending).error().code, ErrorCode::kUnavailable);
}

TEST_F(RequestQueueTest, AListenerThatGoesStrandsOnlyWhatNeededIt) {
  Listen(&bell_, 4);
  Listen(&other_bell_, 10);
  TestRequest& large = Push({.source_tokens = 20, .max_new_tokens = 20});
  TestRequest& small = Push();
  queue_->RemoveListener(&other_bell_);
  EXPECT_EQ(large.record->error()->code, ErrorCode::kUnavailable);
  EXPECT_FALSE(small.record->ended());
  EXPECT_EQ(queue_->size(), 1U);
}

TEST_F(RequestQueueTest, DestructionFailsWhatIsLeft) {
  Listen(&bell_, 10);
  TestRequest& request = Push();
  queue_.reset();
  EXPECT_EQ(request.record->error()->code, ErrorCode::kUnavailable);
  EXPECT_EQ(request.record->ends(), 1);
}

// Pushers, two poppers, sweepers, cancels and a listener that comes and goes, all at once.
TEST(RequestQueueRaceTest, EveryRequestEndsExactlyOnce) {
  constexpr int kPushers = 3;
  constexpr int kEach = 400;
  constexpr int64_t kHour = 3'600'000 * kMs;
  RequestQueue queue(16);
  Notifier bells[3];
  for (int i = 0; i < 2; ++i) queue.AddListener(&bells[i], 10, 4);
  std::vector<std::vector<std::shared_ptr<SinkRecord>>> records(kPushers);
  std::atomic<int> pushers_left = kPushers;
  std::atomic<int> refused = 0;
  std::atomic<int64_t> now_ns = kMs;
  std::vector<std::thread> threads;
  for (int t = 0; t < kPushers; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        TestRequest request({.arrival_ns = 1, .timeout_ns = i % 5 == 0 ? 1 : kHour});
        records[t].push_back(request.record);
        if (i % 7 == 0) request.record->Cancel();
        if (queue.Push(request.pending)) continue;
        ++refused;
        request.pending->sink->Fail({ErrorCode::kUnavailable, "refused"});
      }
      --pushers_left;
    });
  }
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      while (pushers_left > 0 || queue.size() > 0) {
        bells[t].WaitFor(std::chrono::milliseconds(1));
        if (auto pending =
                queue.Pop({.listener = &bells[t], .free_blocks = 10, .slot_free = t == 0})) {
          pending->sink->Finish(FinishReason::kEos);
        }
        queue.Sweep(now_ns.fetch_add(kMs));
      }
    });
  }
  threads.emplace_back([&] {
    while (pushers_left > 0) {
      queue.AddListener(&bells[2], 1, 4);
      queue.RemoveListener(&bells[2]);
    }
  });
  for (std::thread& thread : threads) thread.join();
  for (const auto& list : records) {
    for (const auto& record : list) EXPECT_EQ(record->ends(), 1);
  }
}

}  // namespace
}  // namespace seq2seq
