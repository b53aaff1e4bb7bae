// What an encode that is reported before the device has done it means for those that come next. A
// kernel holds the device, so that what is queued behind the report is certain.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/cuda_engine_test_util.h"
#include "backend/cuda/cuda_stream.h"
#include "backend/cuda/device_holder.h"
#include "backend/cuda/faulty_cublas_lt.h"
#include "backend/cuda/pinned_buffer.h"
#include "backend/testing/tiny_checkpoint.h"

namespace seq2seq {
namespace {

constexpr std::chrono::seconds kDeadline(60);
constexpr int32_t kSourceTokens = 96;
constexpr int32_t kNewTokens = 40;

std::shared_ptr<const DeviceWeights> SmallWeights(DType dtype) {
  return LoadWeights(*WriteAndLoad("early", {.d_model = 64, .d_kv = 16}), dtype);
}

CudaEngineOptions Options(const FaultyCublasLt& lt) {
  CudaEngineOptions options;
  options.max_active_sequences = 4;
  options.max_source_tokens = kSourceTokens;
  options.max_decoder_tokens = 64;
  options.cublas_lt = lt.get();
  return options;
}

// Sources of one length, so that cuBLASLt has loaded what they need before the device is held.
DriverRequest Request(int32_t seed) { return TinyRequest(seed, kSourceTokens, kNewTokens); }

// In float32 the encoding thread queues kernel by kernel, in half precision the caller's a graph.
class CudaEarlyReportTest : public testing::TestWithParam<DType> {
 protected:
  // What each request gets alone, and all kernels loaded: that waits for the device.
  void SetUp() override {
    for (int32_t i = 0; i < 3; ++i) alone_.push_back(engine_.Generate({Request(i)})[0].tokens);
    ASSERT_NE(alone_[0], alone_[1]);
    ASSERT_NE(alone_[1], alone_[2]);
    Say(HeldDevice::kReleased);
  }
  void TearDown() override { Release(); }

  void Hold() {
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);  // earlier work would be held, too
    Say(HeldDevice::kHeld);
    ASSERT_EQ(LaunchDeviceHolder(word_.as<HeldDevice>(), stream_.get()), cudaSuccess);
  }
  bool Held() const { return cudaStreamQuery(stream_.get()) == cudaErrorNotReady; }
  void Release() {
    Say(HeldDevice::kReleased);
    EXPECT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess);
  }

  EngineDriver& driver() { return engine_.driver(); }

  // Encoded with the device held or not, in a slot.
  DriverSequence Entered(int32_t request) {
    DriverSequence sequence = std::move(ValueOf(driver().Encode({&requests_[request], 1}))[0]);
    EXPECT_TRUE(sequence.status) << sequence.status.error().message;
    driver().Enter(&sequence);
    return sequence;
  }

  // A source for blocks that somebody had before. The driver knows nothing of it.
  EncodeItem Item(int32_t request, const std::vector<BlockId>& blocks) const {
    return {100, requests_[request].source, blocks};
  }

  // What the started encode is reported with.
  Status Reported() {
    std::vector<EncodeDone> done;
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    while (done.empty() && std::chrono::steady_clock::now() < deadline) {
      engine_.engine().PollEncoded(&done);
      if (done.empty()) engine_.notifier().WaitFor(std::chrono::seconds(1));
    }
    if (done.size() != 1) return Internal("not one report");
    EXPECT_EQ(done[0].ticket, 100U);
    return done[0].status;
  }

  void Decode(DriverSequence* row, int32_t request) {
    while (static_cast<int32_t>(row->tokens.size()) < kNewTokens) {
      const Status stepped = driver().Step({&row, 1});
      ASSERT_TRUE(stepped) << stepped.error().message;
    }
    EXPECT_EQ(row->tokens, alone_[request]);
  }

  FaultyCublasLt lt_;
  DrivenEngine engine_{SmallWeights(GetParam()), Options(lt_)};
  std::vector<std::vector<int32_t>> alone_;
  const std::vector<DriverRequest> requests_ = {Request(0), Request(1), Request(2)};

 private:
  void Say(HeldDevice what) { *static_cast<volatile HeldDevice*>(word_.as<HeldDevice>()) = what; }

  PinnedBuffer word_ = ValueOf(PinnedBuffer::Allocate(sizeof(HeldDevice)));
  CudaStream stream_ = ValueOf(CudaStream::Create(StreamPriority::kHigh));
};

// The second batch's upload must not overwrite what the first one's still copies.
TEST_P(CudaEarlyReportTest, AnotherEncodeStartsRightAfterTheReport) {
  Hold();
  DriverSequence first = Entered(0);
  DriverSequence second = first;
  second.request = requests_[1];
  for (BlockId& block : second.cross_blocks) block += 32;
  for (BlockId& block : second.self_blocks) block += 32;
  const EncodeItem item = Item(1, second.cross_blocks);
  ASSERT_TRUE(engine_.engine().StartEncode({&item, 1}));
  EXPECT_FALSE(engine_.engine().StartEncode({&item, 1})) << "one is in flight";
  EXPECT_TRUE(Held()) << "the report came after the device's work";
  Release();
  const Status reported = Reported();
  ASSERT_TRUE(reported) << reported.error().message;
  driver().Enter(&second);
  Decode(&second, 1);
  Decode(&first, 0);
}

TEST_P(CudaEarlyReportTest, BlocksOfACancelledSourceGoToAnotherSourceAtOnce) {
  Hold();
  DriverSequence sequence = Entered(0);
  sequence.request = requests_[1];
  const EncodeItem item = Item(1, sequence.cross_blocks);
  ASSERT_TRUE(engine_.engine().StartEncode({&item, 1}));
  EXPECT_TRUE(Held());
  Release();
  const Status reported = Reported();
  ASSERT_TRUE(reported) << reported.error().message;
  Decode(&sequence, 1);
}

// Steps of a sequence that was encoded before, with self-attention in the cancelled source's
// blocks.
TEST_P(CudaEarlyReportTest, BlocksOfACancelledSourceGoToARunningSequenceAtOnce) {
  Entered(1);  // in the slot that the engine has bound yet
  DriverSequence sequence = Entered(2);
  Hold();
  const DriverSequence cancelled = Entered(0);
  ASSERT_GE(cancelled.cross_blocks.size(), sequence.self_blocks.size());
  std::ranges::copy_n(cancelled.cross_blocks.begin(),
                      static_cast<int64_t>(sequence.self_blocks.size()),
                      sequence.self_blocks.begin());
  // Both steps that may be in flight wait for the device.
  StepPlan plan;
  plan.step = 1;
  BindRecord& bind = plan.bind.emplace_back();
  bind.slot = sequence.slot;
  bind.pending_tokens = sequence.request.prefix;
  bind.min_new_tokens = kNewTokens;
  bind.max_new_tokens = kNewTokens;
  bind.source_length = kSourceTokens;
  bind.cross_blocks = sequence.cross_blocks;
  bind.self_blocks = sequence.self_blocks;
  plan.rows = {sequence.slot};
  ASSERT_TRUE(engine_.engine().Launch(plan));
  plan.bind.clear();
  EXPECT_TRUE(Held());
  std::vector<int32_t> tokens;
  StepResult result;
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  for (int32_t launched = 1; static_cast<int32_t>(tokens.size()) < kNewTokens;) {
    if (launched < kNewTokens && launched - static_cast<int32_t>(tokens.size()) < 2) {
      ++plan.step;
      ASSERT_TRUE(engine_.engine().Launch(plan));
      ++launched;
    }
    if (launched == 2 && tokens.empty()) Release();
    if (engine_.engine().PollStep(&result)) {
      ASSERT_TRUE(result.status) << result.status.error().message;
      ASSERT_EQ(result.tokens.size(), 1U);
      tokens.push_back(result.tokens[0]);
    }
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  }
  EXPECT_EQ(tokens, alone_[2]);
}

INSTANTIATE_TEST_SUITE_P(Formats, CudaEarlyReportTest,
                         testing::Values(DType::kFloat32, DType::kBFloat16),
                         [](const testing::TestParamInfo<DType>& info) {
                           return std::string(DTypeName(info.param));
                         });

class CudaFailingEncodeTest : public CudaEarlyReportTest {};

// A batch that cannot be queued takes nothing along that was reported before.
TEST_P(CudaFailingEncodeTest, LeavesTheOneBeforeItAlone) {
  for (const auto fault : {FaultyCublasLt::Fault::kStatus, FaultyCublasLt::Fault::kBadAlloc}) {
    driver().Reset();
    Hold();
    DriverSequence first = Entered(0);
    lt_.FailProducts(1, fault);
    std::vector<BlockId> blocks = first.cross_blocks;
    for (BlockId& block : blocks) block += 32;
    const EncodeItem item = Item(1, blocks);
    ASSERT_TRUE(engine_.engine().StartEncode({&item, 1}));
    EXPECT_TRUE(Held());
    Release();
    const Status reported = Reported();
    ASSERT_FALSE(reported);
    EXPECT_EQ(reported.error().code, ErrorCode::kInternal);
    EXPECT_TRUE(engine_.engine().Health());
    Decode(&first, 0);
  }
}

// A graph has its products already.
INSTANTIATE_TEST_SUITE_P(Float32, CudaFailingEncodeTest, testing::Values(DType::kFloat32));

}  // namespace
}  // namespace seq2seq
