// Decoder prefixes of more tokens than a step consumes (CudaDecoder::kMaxPasses), beside rows with
// short prefixes and with none, as sequences come, pause and go.
//
// Truth is the CPU engine with each sequence alone: it takes a prefix of any length in one step.
// Tokens are sampled, so that a wrong history, position or count of generated tokens shows in them
// and in their log-probabilities.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <vector>

#include "backend/cpu/cpu_engine_factory.h"
#include "backend/cuda/cuda_decoder.h"
#include "backend/cuda/cuda_engine_test_util.h"
#include "backend/cuda/cuda_stream.h"
#include "backend/cuda/device_holder.h"
#include "backend/cuda/pinned_buffer.h"

namespace seq2seq {
namespace {

static_assert(CudaDecoder::kMaxPasses == 16, "the lengths below are chosen for it");

// Steps that a prefix of so many tokens takes; the last brings the first token. One that does not
// suffice consumes a token less than it has passes: the last pass chooses tokens for the others.
int32_t StepsFor(int32_t prefix) {
  int32_t steps = 1;
  for (; prefix > CudaDecoder::kMaxPasses; ++steps) prefix -= CudaDecoder::kMaxPasses - 1;
  return steps;
}

// For 10 new tokens after a decoder prefix of so many; 1 is the start token alone.
DriverRequest Request(int32_t seed, int32_t prefix) {
  DriverRequest request = TinyRequest(seed, 5 + 17 * seed % 90, 10);
  for (int32_t i = 1; i < prefix; ++i) request.prefix.push_back(2 + (i * i + 5 * i + seed) % 200);
  request.sampling.do_sample = true;
  request.sampling.seed = 1'000'003 * static_cast<uint64_t>(seed) + 5;
  return request;
}

class CudaPrefixTest : public testing::Test {
 protected:
  using Rows = std::vector<DriverSequence*>;

  EngineDriver& driver() { return engine_.driver(); }

  // Encoded sequences with such prefixes, not in slots yet. Lives as long as the test.
  Rows Sequences(const std::vector<int32_t>& prefixes) {
    std::vector<DriverRequest> requests;
    for (const int32_t prefix : prefixes) requests.push_back(Request(next_seed_++, prefix));
    sequences_.push_back(
        std::make_unique<std::vector<DriverSequence>>(ValueOf(driver().Encode(requests))));
    Rows rows;
    for (DriverSequence& sequence : *sequences_.back()) rows.push_back(&sequence);
    return rows;
  }

  void Enter(const Rows& rows) {
    for (DriverSequence* row : rows) driver().Enter(row);
  }

  // A step of these rows, which has `tokens` of them afterwards.
  void Step(const Rows& rows, const std::vector<size_t>& tokens) {
    const Status status = driver().Step(rows);
    ASSERT_TRUE(status) << status.error().message;
    ExpectTokens(rows, tokens);
  }

  void Steps(int32_t count, const Rows& rows) {
    for (int32_t i = 0; i < count; ++i) {
      const Status status = driver().Step(rows);
      ASSERT_TRUE(status) << status.error().message;
    }
  }

  static void ExpectTokens(const Rows& rows, const std::vector<size_t>& tokens) {
    std::vector<size_t> got;
    for (const DriverSequence* row : rows) got.push_back(row->tokens.size());
    EXPECT_EQ(got, tokens);
  }

  // What all sequences have so far is what the CPU engine begins with.
  void ExpectTruth() {
    for (const auto& sequences : sequences_) {
      for (const DriverSequence& sequence : *sequences) ExpectTruth(sequence);
    }
  }

 private:
  static std::unique_ptr<Engine> MakeCpuEngine(const std::shared_ptr<const Checkpoint>& checkpoint,
                                               Notifier* notifier) {
    EngineOptions options;
    options.max_active_sequences = 1;
    options.max_source_tokens = TinyEngineOptions().max_source_tokens;
    options.max_decoder_tokens = TinyEngineOptions().max_decoder_tokens;
    return ValueOf(MakeCpuEngineFactory(checkpoint)->Create(options, notifier));
  }

  void ExpectTruth(const DriverSequence& sequence) {
    SCOPED_TRACE(testing::Message() << "a prefix of " << sequence.request.prefix.size());
    cpu_driver_.Reset();
    const DriverSequence truth = ValueOf(cpu_driver_.Generate({&sequence.request, 1}))[0];
    const size_t count = sequence.tokens.size();
    ASSERT_LE(count, truth.tokens.size());
    EXPECT_TRUE(std::ranges::equal(sequence.tokens, std::span(truth.tokens).first(count)));
    for (size_t i = 0; i < count; ++i) {
      EXPECT_NEAR(sequence.logprobs[i], truth.logprobs[i], 1e-4F) << i;
    }
  }

  const std::shared_ptr<const Checkpoint> checkpoint_ = WriteAndLoad(
      testing::UnitTest::GetInstance()->current_test_info()->name(), TinyHalfShape(16));
  Notifier cpu_notifier_;
  std::unique_ptr<Engine> cpu_ = MakeCpuEngine(checkpoint_, &cpu_notifier_);
  EngineDriver cpu_driver_{cpu_.get(), &cpu_notifier_};
  DrivenEngine engine_{LoadWeights(*checkpoint_, DType::kFloat32), TinyEngineOptions()};
  std::vector<std::unique_ptr<std::vector<DriverSequence>>> sequences_;
  int32_t next_seed_ = 1;
};

// A step consumes no more of a prefix than its passes allow, so that others go on.
TEST_F(CudaPrefixTest, ALongPrefixHoldsNobodyUpForMoreThanAStepsPasses) {
  const std::vector<int32_t> lengths = {32, 1, 17, 16, 77, 15};
  const Rows rows = Sequences(lengths);
  Enter(rows);
  for (int32_t step = 1; step <= 8; ++step) {
    std::vector<size_t> tokens;
    for (const int32_t length : lengths) {
      tokens.push_back(std::max(0, step - StepsFor(length) + 1));
    }
    Step(rows, tokens);
  }
  ExpectTruth();
}

TEST_F(CudaPrefixTest, StepsInWhichNoRowChoosesAToken) {
  const Rows alone = Sequences({31});
  Enter(alone);
  Step(alone, {0});
  Step(alone, {1});
  Step(alone, {2});
  driver().Leave(alone[0]);
  const Rows rows = Sequences({40, 1, 33});
  const Rows prefixes = {rows[2], rows[0]};
  Enter(rows);
  Step({rows[1]}, {1});
  Step({rows[1]}, {2});  // the step before has begun it
  Step(prefixes, {0, 0});
  Step(prefixes, {0, 0});
  Step({rows[1]}, {3});
  Step(rows, {1, 4, 1});
  Step(rows, {2, 5, 2});
  ExpectTruth();
}

TEST_F(CudaPrefixTest, ASlotMayBeAbsentInMidPrefix) {
  const Rows rows = Sequences({50, 1, 20});
  const Rows others = {rows[1], rows[2]};
  Enter(rows);
  Step(rows, {0, 1, 0});
  Step({rows[1]}, {2});
  Step(others, {3, 1});
  Step({rows[2], rows[0]}, {2, 0});
  Step(others, {4, 3});
  Step(others, {5, 4});
  Step(rows, {0, 6, 5});
  Step(rows, {1, 7, 6});
  Step({rows[0]}, {2});
  ExpectTruth();
}

// The newcomer's prefix takes the place of the one that was not consumed to its end.
TEST_F(CudaPrefixTest, ASlotThatLeavesInMidPrefixIsBoundAnew) {
  for (const int32_t newcomer_prefix : {1, 5, 16, 40}) {
    SCOPED_TRACE(newcomer_prefix);
    driver().Reset();
    const Rows rows = Sequences({70, 1, newcomer_prefix});
    DriverSequence* const leaver = rows[0];
    DriverSequence* const other = rows[1];
    DriverSequence* const newcomer = rows[2];
    Enter({leaver, other});
    Steps(2, {leaver, other});
    EXPECT_TRUE(leaver->tokens.empty());
    const SlotId slot = leaver->slot;
    driver().Leave(leaver);
    driver().Enter(newcomer);
    ASSERT_EQ(newcomer->slot, slot);
    Steps(StepsFor(newcomer_prefix), {newcomer, other});
    EXPECT_EQ(newcomer->tokens.size(), 1U);
    Steps(2, {newcomer, other});
    // Whoever left begins its prefix anew, here in another slot.
    driver().Enter(leaver);
    Steps(StepsFor(70), rows);
    EXPECT_EQ(leaver->tokens.size(), 1U);
    Steps(1, rows);
  }
  ExpectTruth();
}

// Takes the device away until it goes.
class HeldTime {
 public:
  HeldTime() {
    *word_.as<volatile HeldDevice>() = HeldDevice::kHeld;
    if (LaunchDeviceHolder(word_.as<HeldDevice>(), stream_.get()) != cudaSuccess) {
      throw std::runtime_error("the device is not held");
    }
  }
  ~HeldTime() {
    *word_.as<volatile HeldDevice>() = HeldDevice::kReleased;
    static_cast<void>(cudaStreamSynchronize(stream_.get()));
  }

 private:
  PinnedBuffer word_ = ValueOf(PinnedBuffer::Allocate(sizeof(HeldDevice)));
  CudaStream stream_ = ValueOf(CudaStream::Create(StreamPriority::kHigh));
};

// The second of two steps is launched before the first has begun on the device.
TEST_F(CudaPrefixTest, TwoStepsInFlightConsumeALongPrefix) {
  const Rows rows = Sequences({75, 1, 45, 33});
  const Rows warm_up = Sequences({20, 1});  // loads the kernels, which waits for the device
  Enter(warm_up);
  Steps(2, warm_up);
  for (DriverSequence* row : warm_up) driver().Leave(row);
  const auto launch = [&](const Rows& launched) {
    const Status status = driver().LaunchStep(launched);
    ASSERT_TRUE(status) << status.error().message;
  };
  const auto await = [&] {
    const Status status = driver().AwaitStep();
    ASSERT_TRUE(status) << status.error().message;
  };
  const Rows first = {rows[0], rows[1], rows[2]};
  Enter(first);
  for (int pair = 0; pair < 2; ++pair) {
    {
      const HeldTime held;
      launch(first);
      launch(pair == 0 ? first : Rows{rows[2], rows[1]});
      ExpectTokens(first, {0, pair == 0 ? 0U : 2U, 0});
    }
    await();
    await();
  }
  ExpectTokens(first, {0, 4, 2});
  // A slot that a step in flight leaves in mid-prefix, and the next one binds to another.
  {
    const HeldTime held;
    launch(first);
    const SlotId slot = rows[0]->slot;
    driver().Leave(rows[0]);
    driver().Enter(rows[3]);
    ASSERT_EQ(rows[3]->slot, slot);
    launch({rows[1], rows[3]});
  }
  await();
  await();
  ExpectTokens(rows, {0, 6, 3, 0});
  Steps(StepsFor(33) - 1, {rows[3], rows[1]});
  ExpectTokens(rows, {0, 8, 3, 1});
  ExpectTruth();
}

// Sequences come, pause and go in an order that nobody chose; one or two steps are in flight.
TEST_F(CudaPrefixTest, AnyOrderOfComingAndGoing) {
  std::mt19937 random(20);
  const auto draw = [&](int32_t below) { return static_cast<int32_t>(random() % below); };
  const Rows all = Sequences({1, 90, 16, 17, 2, 46, 33, 1, 61, 5, 31, 75});
  Rows outside = all;
  Rows inside;
  for (int32_t round = 0; round < 400 && inside.size() + outside.size() > 0; ++round) {
    if (!inside.empty() && draw(6) == 0) {
      const auto leaver = inside.begin() + draw(static_cast<int32_t>(inside.size()));
      driver().Leave(*leaver);
      outside.push_back(*leaver);
      inside.erase(leaver);
    }
    while (!outside.empty() && inside.size() < 6 && draw(3) > 0) {
      const auto newcomer = outside.begin() + draw(static_cast<int32_t>(outside.size()));
      driver().Enter(*newcomer);
      inside.push_back(*newcomer);
      outside.erase(newcomer);
    }
    const int32_t steps = 1 + draw(2);
    for (int32_t i = 0; i < steps; ++i) {
      Rows rows;
      std::ranges::copy_if(inside, std::back_inserter(rows), [&](auto) { return draw(5) > 0; });
      const Status status = driver().LaunchStep(rows);
      ASSERT_TRUE(status) << status.error().message;
    }
    for (int32_t i = 0; i < steps; ++i) {
      const Status status = driver().AwaitStep();
      ASSERT_TRUE(status) << status.error().message;
    }
    std::erase_if(inside, [&](DriverSequence* row) {
      if (row->stop == StopReason::kNone) return false;
      driver().Leave(row);
      return true;
    });
  }
  for (const DriverSequence* sequence : all) EXPECT_EQ(sequence->tokens.size(), 10U);
  ExpectTruth();
}

}  // namespace
}  // namespace seq2seq
