#include "backend/testing/engine_conformance.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "backend/testing/engine_rules.h"
#include "backend/testing/tiny_checkpoint.h"

namespace seq2seq {
namespace {

constexpr float kLogprobTolerance = 1e-4F;
constexpr int32_t kEos = 1;

// Blocks for a source, from the end of the pool: the driver takes them from its begin.
std::vector<BlockId> LastBlocks(const Engine& engine, int32_t tokens) {
  const EngineInfo& info = engine.info();
  std::vector<BlockId> blocks((tokens + info.block_tokens - 1) / info.block_tokens);
  for (size_t i = 0; i < blocks.size(); ++i) {
    blocks[i] = info.total_blocks - 1 - static_cast<BlockId>(i);
  }
  return blocks;
}

void ExpectSame(const DriverSequence& one, const DriverSequence& other) {
  EXPECT_EQ(one.tokens, other.tokens);
  ASSERT_EQ(one.logprobs.size(), other.logprobs.size());
  for (size_t i = 0; i < one.logprobs.size(); ++i) {
    EXPECT_NEAR(one.logprobs[i], other.logprobs[i], kLogprobTolerance);
  }
}

// Hands everything on, and notes which rules of engine.h were broken on the way.
class WatchedEngine final : public Engine {
 public:
  explicit WatchedEngine(Engine* engine) : engine_(engine), rules_(engine->info()) {}

  const EngineInfo& info() const override { return engine_->info(); }
  Status Health() const override { return engine_->Health(); }

  Status StartEncode(std::span<const EncodeItem> batch) override {
    SEQ2SEQ_RETURN_IF_ERROR(engine_->StartEncode(batch));
    rules_.OnStartEncode(batch);
    for (const EncodeItem& item : batch) encoding_.insert(item.ticket);
    return OkStatus();
  }

  void PollEncoded(std::vector<EncodeDone>* done) override {
    const size_t before = done->size();
    engine_->PollEncoded(done);
    for (size_t i = before; i < done->size(); ++i) {
      const EncodeDone& one = (*done)[i];
      if (encoding_.erase(one.ticket) == 0) rules_.Violate("an encode that nobody waits for");
      rules_.OnEncodePolled(one.ticket, one.status.has_value());
    }
  }

  Status Launch(const StepPlan& plan) override {
    SEQ2SEQ_RETURN_IF_ERROR(engine_->Launch(plan));
    rules_.OnLaunch(plan);
    return OkStatus();
  }

  bool PollStep(StepResult* result) override {
    if (!engine_->PollStep(result)) return false;
    rules_.OnStepPolled(*result);
    return true;
  }

  const std::vector<std::string>& violations() const { return rules_.violations(); }

 private:
  Engine* engine_;
  EngineRules rules_;
  std::set<uint64_t> encoding_;
};

}  // namespace

void EngineConformanceTest::SetUp() {
  // A folder for each test: tests of one program may run side by side.
  const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
  std::filesystem::path folder = testing::TempDir();
  folder /= "conformance_" + name.substr(0, name.find('/'));
  ASSERT_TRUE(WriteTinyCheckpoint(folder, {}));
  auto checkpoint = Checkpoint::Load(folder);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  checkpoint_ = *checkpoint;
  Make();
}

void EngineConformanceTest::Make() {
  driver_.reset();
  engine_.reset();
  auto engine = GetParam().make(checkpoint_, options_, &notifier_);
  ASSERT_TRUE(engine) << engine.error().message;
  engine_ = std::move(*engine);
  driver_ = std::make_unique<EngineDriver>(engine_.get(), &notifier_);
}

DriverSequence EngineConformanceTest::Alone(const DriverRequest& request) {
  driver_->Reset();
  auto sequences = driver_->Generate({&request, 1});
  EXPECT_TRUE(sequences) << sequences.error().message;
  driver_->Reset();
  return sequences ? (*sequences)[0] : DriverSequence();
}

TEST_P(EngineConformanceTest, CompanyChangesNothing) {
  std::vector<DriverRequest> requests;
  for (int32_t i = 0; i < 6; ++i) requests.push_back(TinyRequest(i, 1 + 37 * i, 10 + 9 * i));
  requests[3].sampling.do_sample = true;
  requests[3].sampling.seed = 77;
  auto together = driver_->Generate(requests);
  ASSERT_TRUE(together) << together.error().message;
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ((*together)[i].tokens.size(), 10 + 9 * i);
    ExpectSame(Alone(requests[i]), (*together)[i]);
  }
}

// As many encodes and steps in flight as the engine says, in both ways to start.
TEST_P(EngineConformanceTest, WhatIsInFlightAtOnceChangesNothing) {
  WatchedEngine watched(engine_.get());
  EngineDriver driver(&watched, &notifier_);
  std::vector<DriverRequest> requests;
  for (int32_t i = 0; i < 6; ++i) {
    requests.push_back(TinyRequest(i, 1 + 37 * i, 40 - 6 * i));
    requests.back().min_new_tokens = 0;
  }
  std::vector<std::vector<DriverSequence>> runs;
  for (const DecodeStart start :
       {DecodeStart::kTogether, DecodeStart::kAsEncoded, DecodeStart::kTogether}) {
    driver.Reset();
    auto run = driver.Generate(requests, start);
    ASSERT_TRUE(run) << run.error().message;
    runs.push_back(std::move(*run));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    const int32_t tokens = static_cast<int32_t>(runs[0][i].tokens.size());
    EXPECT_EQ(runs[0][i].stop,
              tokens == 40 - 6 * static_cast<int32_t>(i) && runs[0][i].tokens.back() != kEos
                  ? StopReason::kLength
                  : StopReason::kEos);
    ExpectSame(runs[0][i], runs[1][i]);
    ExpectSame(runs[0][i], runs[2][i]);
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    driver.Reset();
    auto alone = driver.Generate({&requests[i], 1});
    ASSERT_TRUE(alone) << alone.error().message;
    ExpectSame((*alone)[0], runs[0][i]);
  }
  EXPECT_EQ(watched.violations(), std::vector<std::string>{});
}

TEST_P(EngineConformanceTest, JoiningMidRunEqualsAlone) {
  const std::vector<DriverRequest> requests = {TinyRequest(1, 50, 60), TinyRequest(2, 9, 40)};
  auto first = driver_->Encode({&requests[0], 1});
  ASSERT_TRUE(first);
  driver_->Enter(&(*first)[0]);
  std::vector<DriverSequence*> rows = {&(*first)[0]};
  for (int32_t step = 0; step < 17; ++step) ASSERT_TRUE(driver_->Step(rows));
  auto second = driver_->Encode({&requests[1], 1});
  ASSERT_TRUE(second);
  driver_->Enter(&(*second)[0]);
  rows = {&(*second)[0], &(*first)[0]};  // rows need not keep their order
  for (int32_t step = 0; step < 40; ++step) ASSERT_TRUE(driver_->Step(rows));
  driver_->Leave(&(*second)[0]);
  rows = {&(*first)[0]};
  for (int32_t step = 57; step < 60; ++step) ASSERT_TRUE(driver_->Step(rows));
  ExpectSame(Alone(requests[0]), (*first)[0]);
  ExpectSame(Alone(requests[1]), (*second)[0]);
}

TEST_P(EngineConformanceTest, APausedSequenceComesBackInAnotherSlot) {
  const std::vector<DriverRequest> requests = {TinyRequest(1, 50, 45), TinyRequest(2, 9, 45)};
  const DriverSequence truth = Alone(requests[0]);
  auto sequences = driver_->Encode(requests);
  ASSERT_TRUE(sequences);
  DriverSequence* paused = &(*sequences)[0];
  DriverSequence* other = &(*sequences)[1];
  driver_->Enter(paused);
  std::vector<DriverSequence*> rows = {paused};
  for (int32_t step = 0; step < 20; ++step) ASSERT_TRUE(driver_->Step(rows));
  const SlotId before = paused->slot;
  driver_->Leave(paused);
  driver_->Enter(other);  // takes the slot that became free
  rows = {other};
  for (int32_t step = 0; step < 5; ++step) ASSERT_TRUE(driver_->Step(rows));
  driver_->Enter(paused);
  ASSERT_NE(paused->slot, before);
  rows = {other, paused};
  for (int32_t step = 20; step < 45; ++step) ASSERT_TRUE(driver_->Step(rows));
  EXPECT_EQ(paused->stop, StopReason::kLength);
  ExpectSame(truth, *paused);
}

// Forcing the first tokens of an answer as a prefix must bring the rest of it; the prefix is longer
// than one pass of the decoder takes, and than one step does.
TEST_P(EngineConformanceTest, APrefixContinuesLikeTheWholeAnswer) {
  const DriverSequence whole = Alone(TinyRequest(5, 30, 150));
  for (int32_t forced : {1, 14, 15, 16, 17, 30, 31, 32, 33, 70, 149}) {
    SCOPED_TRACE(forced);
    DriverRequest request = TinyRequest(5, 30, 150 - forced);
    request.prefix.insert(request.prefix.end(), whole.tokens.begin(),
                          whole.tokens.begin() + forced);
    // Beside others, so that passes are cut within the prefix.
    const std::vector<DriverRequest> requests = {TinyRequest(6, 4, 3), request,
                                                 TinyRequest(7, 44, 5)};
    driver_->Reset();
    auto sequences = driver_->Generate(requests);
    ASSERT_TRUE(sequences) << sequences.error().message;
    const std::vector<int32_t> rest(whole.tokens.begin() + forced, whole.tokens.end());
    EXPECT_EQ((*sequences)[1].tokens, rest);
  }
}

// What is forced is no new token: neither for where EOS is banned nor for the most there may be.
TEST_P(EngineConformanceTest, LimitsCountFromTheEndOfAPrefix) {
  constexpr int32_t kForced = 40;
  int found = 0;
  for (int32_t seed = 0; seed < 400 && found < 3; ++seed) {
    DriverRequest request = TinyRequest(seed, 3 + seed % 20, kForced + 60);
    request.min_new_tokens = kForced + 5;
    const DriverSequence whole = Alone(request);
    if (whole.stop != StopReason::kEos) continue;
    ++found;
    request.prefix.insert(request.prefix.end(), whole.tokens.begin(),
                          whole.tokens.begin() + kForced);
    request.min_new_tokens = 5;
    request.max_new_tokens = 60;
    const DriverSequence rest = Alone(request);
    EXPECT_EQ(rest.tokens,
              std::vector<int32_t>(whole.tokens.begin() + kForced, whole.tokens.end()));
    EXPECT_EQ(rest.stop, StopReason::kEos);
    request.max_new_tokens = static_cast<int32_t>(rest.tokens.size()) - 1;
    request.min_new_tokens = 0;
    const DriverSequence cut = Alone(request);
    EXPECT_LE(cut.tokens.size(), rest.tokens.size() - 1);
  }
  EXPECT_EQ(found, 3) << "too few sources end by themselves";
}

TEST_P(EngineConformanceTest, LongSourcesEncodeLikeShortOnes) {
  // More tokens than an engine may encode at once; neighbours share slices with it.
  const std::vector<DriverRequest> requests = {TinyRequest(1, 100, 12), TinyRequest(2, 2500, 12),
                                               TinyRequest(3, 700, 12), TinyRequest(4, 130, 12)};
  auto together = driver_->Generate(requests);
  ASSERT_TRUE(together) << together.error().message;
  for (size_t i = 0; i < requests.size(); ++i) ExpectSame(Alone(requests[i]), (*together)[i]);
}

TEST_P(EngineConformanceTest, StopsAtEosAndMasksTheSlotAfterwards) {
  // Some source of a few ends by itself within 150 tokens; min_new_tokens then moves its end.
  for (int32_t seed = 0; seed < 400; ++seed) {
    DriverRequest request = TinyRequest(seed, 3 + seed % 20, 150);
    request.min_new_tokens = 0;
    DriverSequence sequence = Alone(request);
    if (sequence.stop != StopReason::kEos) continue;
    const size_t length = sequence.tokens.size();
    EXPECT_EQ(sequence.tokens.back(), kEos);
    EXPECT_EQ(std::count(sequence.tokens.begin(), sequence.tokens.end(), kEos), 1);
    float score = 0.0F;
    for (float logprob : sequence.logprobs) score += logprob;
    EXPECT_NEAR(sequence.score, score, kLogprobTolerance);
    request.min_new_tokens = static_cast<int32_t>(length);
    const DriverSequence longer = Alone(request);
    EXPECT_GT(longer.tokens.size(), length);
    EXPECT_NE(longer.tokens[length - 1], kEos);

    request.min_new_tokens = 0;
    auto again = driver_->Encode({&request, 1});
    ASSERT_TRUE(again);
    driver_->Enter(&(*again)[0]);
    DriverSequence* row = &(*again)[0];
    for (size_t step = 0; step < length + 3; ++step) ASSERT_TRUE(driver_->Step({&row, 1}));
    EXPECT_EQ(row->tokens.size(), length);
    EXPECT_EQ(driver_->last_result().rows[0].token_count, 0);
    return;
  }
  FAIL() << "no source ends by itself";
}

TEST_P(EngineConformanceTest, ABadSourceFailsAlone) {
  std::vector<DriverRequest> requests = {TinyRequest(1, 20, 8), TinyRequest(2, 20, 8),
                                         TinyRequest(3, 20, 8), TinyRequest(4, 20, 8)};
  requests[0].source[7] = 40;
  requests[1].source[0] = -1;
  requests[2].source.clear();
  auto sequences = driver_->Generate(requests);
  ASSERT_TRUE(sequences) << sequences.error().message;
  for (int32_t i = 0; i < 3; ++i) {
    ASSERT_FALSE((*sequences)[i].status);
    EXPECT_EQ((*sequences)[i].status.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_NE((*sequences)[0].status.error().message.find("40"), std::string::npos);
  EXPECT_TRUE((*sequences)[3].status);
  EXPECT_TRUE(engine_->Health());
  ExpectSame(Alone(requests[3]), (*sequences)[3]);
}

TEST_P(EngineConformanceTest, ASourceAboveTheLimitIsRefusedInABatchToo) {
  options_.max_source_tokens = 30;
  Make();
  auto sequences =
      driver_->Generate(std::vector<DriverRequest>{TinyRequest(1, 31, 8), TinyRequest(2, 30, 8)});
  ASSERT_TRUE(sequences) << sequences.error().message;
  ASSERT_FALSE((*sequences)[0].status);
  EXPECT_NE((*sequences)[0].status.error().message.find("30"), std::string::npos);
  EXPECT_TRUE((*sequences)[1].status);
}

TEST_P(EngineConformanceTest, APlanThatBreaksTheAgreementChangesNothing) {
  const DriverRequest request = TinyRequest(1, 20, 10);
  auto sequences = driver_->Encode({&request, 1});
  ASSERT_TRUE(sequences);
  StepPlan plan;
  plan.rows = {0};
  EXPECT_FALSE(engine_->Launch(plan));  // not bound
  BindRecord bind;
  const std::vector<int32_t> prefix = {0, 40};
  const std::vector<BlockId> blocks = {0, 1};
  bind.pending_tokens = std::span(prefix).first(1);
  bind.max_new_tokens = 10;
  bind.source_length = 20;
  bind.cross_blocks = blocks;
  bind.self_blocks = blocks;
  const auto refused = [&](auto change) {
    BindRecord changed = bind;
    change(&changed);
    plan.bind = {changed};
    const Status status = engine_->Launch(plan);
    return !status && status.error().code == ErrorCode::kInternal;
  };
  EXPECT_TRUE(refused([](BindRecord* record) { record->slot = 6; }));
  EXPECT_TRUE(
      refused([](BindRecord* record) { record->slot = 1; }));  // the row's slot is not bound
  EXPECT_TRUE(refused([&](BindRecord* record) { record->pending_tokens = prefix; }));
  EXPECT_TRUE(refused([](BindRecord* record) { record->pending_tokens = {}; }));
  EXPECT_TRUE(refused([](BindRecord* record) { record->max_new_tokens = 0; }));
  EXPECT_TRUE(refused([](BindRecord* record) { record->max_new_tokens = 1000000; }));
  EXPECT_TRUE(refused([](BindRecord* record) { record->position = 64; }));
  EXPECT_TRUE(refused([](BindRecord* record) { record->source_length = 65; }));
  EXPECT_TRUE(refused([](BindRecord* record) { record->cross_blocks = {}; }));
  const std::vector<BlockId> beyond = {engine_->info().total_blocks};
  EXPECT_TRUE(refused([&](BindRecord* record) { record->self_blocks = beyond; }));
  driver_->Enter(&(*sequences)[0]);
  DriverSequence* row = &(*sequences)[0];
  for (int32_t step = 0; step < 10; ++step) ASSERT_TRUE(driver_->Step({&row, 1}));
  ExpectSame(Alone(request), *row);
}

TEST_P(EngineConformanceTest, EncodesRunBesideSteps) {
  const std::vector<DriverRequest> requests = {TinyRequest(1, 20, 150), TinyRequest(2, 2900, 6)};
  auto first = driver_->Encode({&requests[0], 1});
  ASSERT_TRUE(first);
  const std::vector<BlockId> cross = LastBlocks(*engine_, 2900);
  const EncodeItem item{9, requests[1].source, cross};
  ASSERT_TRUE(engine_->StartEncode({&item, 1}));
  EXPECT_FALSE(engine_->StartEncode({&item, 1}));  // one at a time
  driver_->Enter(&(*first)[0]);
  DriverSequence* row = &(*first)[0];
  std::vector<EncodeDone> done;
  int32_t steps = 0;
  for (; steps < 150; ++steps) ASSERT_TRUE(driver_->Step({&row, 1}));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (done.empty() && std::chrono::steady_clock::now() < deadline) {
    engine_->PollEncoded(&done);
    if (done.empty()) notifier_.WaitFor(std::chrono::seconds(1));
  }
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].ticket, 9U);
  EXPECT_TRUE(done[0].status) << done[0].status.error().message;
  ExpectSame(Alone(requests[0]), *row);
}

TEST_P(EngineConformanceTest, CanBeDestroyedWithWorkInFlight) {
  const DriverRequest request = TinyRequest(1, 2900, 100);
  const std::vector<BlockId> cross = LastBlocks(*engine_, 2900);
  const EncodeItem item{1, request.source, cross};
  ASSERT_TRUE(engine_->StartEncode({&item, 1}));
  engine_.reset();
}

}  // namespace seq2seq
