// No allocation on the step path: counts operator new while the loop itself runs.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include <gtest/gtest.h>

#include "backend/scheduler/scheduler_context.h"
#include "backend/scheduler/scheduler_loop.h"
#include "backend/testing/fake_clock.h"
#include "backend/testing/fake_engine.h"

namespace {

// The test has one thread.
bool counting = false;
int64_t allocations = 0;

void* CountedAllocation(size_t bytes) {
  if (counting) ++allocations;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}

}  // namespace

// Not inlined: where GCC 12 sees one half of a pair alone, it warns of a mismatch.
[[gnu::noinline]] void* operator new(size_t bytes) { return CountedAllocation(bytes); }
[[gnu::noinline]] void* operator new[](size_t bytes) { return CountedAllocation(bytes); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace seq2seq {
namespace {

// Stops counting while a fake, which may allocate, works.
class Uncounted {
 public:
  Uncounted() : before_(counting) { counting = false; }
  ~Uncounted() { counting = before_; }

 private:
  const bool before_;
};

class UncountedEngine final : public Engine {
 public:
  explicit UncountedEngine(FakeEngine* engine) : engine_(engine) {}
  const EngineInfo& info() const override { return engine_->info(); }
  Status Health() const override {
    const Uncounted guard;
    return engine_->Health();
  }
  Status StartEncode(std::span<const EncodeItem> batch) override {
    const Uncounted guard;
    return engine_->StartEncode(batch);
  }
  void PollEncoded(std::vector<EncodeDone>* done) override {
    const Uncounted guard;
    engine_->PollEncoded(done);
  }
  Status Launch(const StepPlan& plan) override {
    const Uncounted guard;
    return engine_->Launch(plan);
  }
  bool PollStep(StepResult* result) override {
    const Uncounted guard;
    return engine_->PollStep(result);
  }

 private:
  FakeEngine* const engine_;
};

class CountingSink final : public TokenSink {
 public:
  explicit CountingSink(int* tokens) : tokens_(tokens) {}
  void Append(int32_t, float) override { ++*tokens_; }
  void Finish(FinishReason) override {}
  void Fail(Error) override { ADD_FAILURE(); }
  bool IsCancelled() override { return false; }

 private:
  int* const tokens_;
};

class IgnoringObserver final : public SchedulerObserver {
 public:
  void OnGauges(const SchedulerGauges&) override {}
  void OnGeneratedTokens(int64_t) override {}
  void OnSourceTokens(int64_t) override {}
};

TEST(StepPathAllocationTest, EncodesJoinsStepsAndEndsWithoutAllocating) {
  FakeEngineOptions options;
  options.manual = true;
  options.info.max_steps_in_flight = 2;
  Notifier notifier;
  FakeEngine fake(options, &notifier);
  UncountedEngine engine(&fake);
  RequestQueue queue(16);
  FakeClock clock;
  IgnoringObserver observer;
  SchedulerLoop loop({.engine = &engine,
                      .notifier = &notifier,
                      .queue = &queue,
                      .clock = &clock,
                      .observer = &observer});
  int tokens = 0;
  for (int i = 0; i < 5; ++i) {  // four slots and one ahead
    auto pending = std::make_unique<PendingRequest>();
    pending->request.source_ids = {20, 21, 22, 23, 24 + i};
    pending->request.decoder_prefix = {0};
    pending->request.max_new_tokens = 5 + i;
    pending->sink = std::make_unique<CountingSink>(&tokens);
    ASSERT_TRUE(queue.Push(pending));
  }
  loop.RunOnce();  // admission may allocate; all that follows must not
  ASSERT_EQ(queue.size(), 0U);
  for (int i = 0; i < 60 && !loop.Idle(); ++i) {
    if (!fake.CompleteStep()) fake.CompleteEncodes();
    counting = true;
    loop.RunOnce();
    counting = false;
  }
  EXPECT_TRUE(loop.Idle());
  EXPECT_EQ(tokens, 5 + 6 + 7 + 8 + 9);
  EXPECT_EQ(allocations, 0);
  // The counter counts.
  counting = true;
  std::vector<int> witness(3);
  counting = false;
  EXPECT_EQ(allocations, 1) << witness.size();
  loop.Stop();
}

}  // namespace
}  // namespace seq2seq
