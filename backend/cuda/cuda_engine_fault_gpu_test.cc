// A device that is lost with work in flight: a kernel traps, and from then on every CUDA call of
// the process fails. So each test runs in a process of its own (a "death test" that ends well).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cuda/cuda_engine_test_util.h"
#include "backend/cuda/cuda_stream.h"
#include "backend/cuda/device_holder.h"
#include "backend/cuda/pinned_buffer.h"
#include "backend/testing/tiny_checkpoint.h"

namespace seq2seq {
namespace {

constexpr std::chrono::seconds kDeadline(60);

// Ends the child process with the reason.
void Require(bool good, const std::string& what) {
  if (good) return;
  std::fprintf(stderr, "broken: %s\n", what.c_str());
  std::_Exit(1);
}

CudaEngineOptions SmallOptions() {
  CudaEngineOptions options;
  options.max_active_sequences = 4;
  options.max_source_tokens = 64;
  options.max_decoder_tokens = 64;
  return options;
}

std::shared_ptr<const DeviceWeights> SmallWeights(const std::string& name) {
  return LoadWeights(*WriteAndLoad(name, {}), DType::kFloat32);
}

DriverRequest Request(int32_t seed) {
  DriverRequest request;
  for (int32_t i = 0; i < 20; ++i) request.source.push_back(2 + (seed * 13 + i * 7) % 38);
  request.min_new_tokens = 30;
  request.max_new_tokens = 30;
  return request;
}

// An engine with the device taken away, two steps and an encode waiting for it. The encode has been
// reported, and another one is started.
class Scene {
 public:
  explicit Scene(const std::string& name)
      : driven_(std::make_unique<DrivenEngine>(SmallWeights(name), SmallOptions())),
        word_(ValueOf(PinnedBuffer::Allocate(sizeof(HeldDevice)))),
        stream_(ValueOf(CudaStream::Create(StreamPriority::kHigh))) {
    *word() = HeldDevice::kHeld;
    // All kernels are loaded before the device is held: loading one waits for the device.
    driven_->Generate({Request(1), Request(2), Request(3)});
    driven_->Generate({Request(3)});  // as many tokens as the encode below
    const std::vector<DriverRequest> requests = {Request(1), Request(2)};
    sequences_ = ValueOf(driven_->driver().Encode(requests));
    std::vector<DriverSequence*> rows;
    for (DriverSequence& sequence : sequences_) {
      driven_->driver().Enter(&sequence);
      rows.push_back(&sequence);
    }
    Require(driven_->driver().Step(rows).has_value(), "a first step works");
    Require(LaunchDeviceHolder(word(), stream_.get()) == cudaSuccess, "the device is held");
    for (const DriverSequence* row : rows) plan_.rows.push_back(row->slot);
    plan_.step = 100;
    Require(engine().Launch(plan_).has_value(), "a step is launched");
    plan_.step = 101;
    Require(engine().Launch(plan_).has_value(), "a second step is launched");
    StartEncode(7);
    CollectUntil([&] { return !encodes.empty(); });
    Require(steps.empty() && encodes.size() == 1 && encodes[0].status.has_value(),
            "it is reported while the device is held");
    StartEncode(8);
  }

  Engine& engine() { return driven_->engine(); }
  void DestroyEngine() { driven_.reset(); }
  void Say(HeldDevice what) { *word() = what; }

  // Polls until everything in flight is reported.
  void Collect() {
    CollectUntil([&] { return steps.size() >= 2 && encodes.size() >= 2; });
    for (int i = 0; i < 10; ++i) Poll();  // nothing comes twice
  }

  std::vector<std::pair<uint64_t, Status>> steps;
  std::vector<EncodeDone> encodes;

 private:
  volatile HeldDevice* word() { return word_.as<HeldDevice>(); }

  // All sources are equal, and lie in the same blocks.
  void StartEncode(uint64_t ticket) {
    const EncodeItem item{ticket, source_, blocks_};
    Require(engine().StartEncode({&item, 1}).has_value(), "an encode is started");
  }

  template <typename Done>
  void CollectUntil(Done done) {
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    for (Poll(); !done(); Poll()) {
      Require(std::chrono::steady_clock::now() < deadline, "all work is reported in time");
      driven_->notifier().WaitFor(std::chrono::milliseconds(10));
    }
  }

  void Poll() {
    StepResult result;
    while (engine().PollStep(&result)) steps.emplace_back(result.step, result.status);
    engine().PollEncoded(&encodes);
  }

  std::unique_ptr<DrivenEngine> driven_;
  PinnedBuffer word_;
  CudaStream stream_;
  std::vector<DriverSequence> sequences_;
  StepPlan plan_;
  const std::vector<int32_t> source_ = Request(3).source;
  const std::vector<BlockId> blocks_ = {20, 21};
};

void RequireAllReported(const Scene& scene, bool good) {
  Require(scene.steps.size() == 2 && scene.encodes.size() == 2, "each piece of work, once");
  Require(scene.steps[0].first == 100 && scene.steps[1].first == 101, "steps in their order");
  Require(scene.encodes[0].ticket == 7 && scene.encodes[1].ticket == 8, "encodes by their tickets");
  for (const auto& [step, status] : scene.steps) {
    Require(status.has_value() == good, "step " + std::to_string(step) + " as it ended");
  }
  Require(scene.encodes[1].status.has_value() == good, "the second encode as it ended");
}

[[noreturn]] void LoseTheDevice() {
  Scene scene("lost");
  scene.Say(HeldDevice::kLost);
  scene.Collect();
  RequireAllReported(scene, false);
  for (const auto& [step, status] : scene.steps) {
    Require(status.error().code == ErrorCode::kInternal, "a step's error is internal");
    Require(status.error().message.find("CUDA") != std::string::npos, "and names its source");
  }
  Require(scene.encodes[1].status.error().code == ErrorCode::kInternal, "so is the encode's");
  const Status health = scene.engine().Health();
  Require(!health && health.error().code == ErrorCode::kUnavailable, "Health() is kUnavailable");
  const std::vector<int32_t> source = Request(4).source;
  const std::vector<BlockId> blocks = {0, 1};
  const EncodeItem item{9, source, blocks};
  const Status encode = scene.engine().StartEncode({&item, 1});
  Require(!encode && encode.error().code == ErrorCode::kUnavailable, "StartEncode refuses");
  StepPlan plan;
  plan.step = 102;
  plan.rows = {0};
  const Status launch = scene.engine().Launch(plan);
  Require(!launch && launch.error().code == ErrorCode::kUnavailable, "Launch refuses");
  Require(scene.engine().Health().error() == health.error(), "the first failure stays");
  scene.DestroyEngine();
  // A model that is loaded again in this process is refused with a reason, and nothing crashes.
  Notifier notifier;
  const Result<std::unique_ptr<Engine>> again =
      CudaEngine::Create(std::make_shared<DeviceWeights>(), SmallOptions(), &notifier);
  Require(!again.has_value(), "no new engine on a lost device");
  std::_Exit(0);
}

[[noreturn]] void DestroyWithALostDevice() {
  Scene scene("lost_early");
  scene.Say(HeldDevice::kLost);
  scene.DestroyEngine();  // nobody polled
  std::_Exit(0);
}

[[noreturn]] void DestroyWhileTheDeviceIsBusy() {
  Scene scene("busy");
  // The destructor may begin before or after this: both must end.
  std::thread releases([&] { scene.Say(HeldDevice::kReleased); });
  scene.DestroyEngine();
  releases.join();
  Require(cudaGetLastError() == cudaSuccess, "no CUDA call failed");
  std::_Exit(0);
}

[[noreturn]] void ReleaseTheDevice() {
  Scene scene("released");
  scene.Say(HeldDevice::kReleased);
  scene.Collect();
  RequireAllReported(scene, true);
  Require(scene.engine().Health().has_value(), "Health() is OK");
  std::_Exit(0);
}

// The device is lost when an encode has been reported that it has not done, and nothing else is in
// flight; or the first step of the encode's sequence.
[[noreturn]] void LoseTheDeviceBehindAReport(bool with_step) {
  DrivenEngine driven(SmallWeights("reported"), SmallOptions());
  const PinnedBuffer word = ValueOf(PinnedBuffer::Allocate(sizeof(HeldDevice)));
  const CudaStream stream = ValueOf(CudaStream::Create(StreamPriority::kHigh));
  volatile HeldDevice* const say = word.as<HeldDevice>();
  *say = HeldDevice::kHeld;
  driven.Generate({Request(1)});  // loads all kernels
  Require(LaunchDeviceHolder(say, stream.get()) == cudaSuccess, "the device is held");
  const std::vector<DriverRequest> requests = {Request(1)};
  std::vector<DriverSequence> sequences = ValueOf(driven.driver().Encode(requests));
  Require(sequences[0].status.has_value(), "the encode is reported");
  Require(cudaStreamQuery(stream.get()) == cudaErrorNotReady, "while the device is held");
  if (with_step) {
    StepPlan plan;
    BindRecord& bind = plan.bind.emplace_back();
    bind.slot = 1;  // nobody had it
    bind.pending_tokens = requests[0].prefix;
    bind.max_new_tokens = requests[0].max_new_tokens;
    bind.source_length = static_cast<int32_t>(requests[0].source.size());
    bind.cross_blocks = sequences[0].cross_blocks;
    bind.self_blocks = sequences[0].self_blocks;
    plan.rows = {bind.slot};
    Require(driven.engine().Launch(plan).has_value(), "its first step is launched");
  }
  *say = HeldDevice::kLost;
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  StepResult result;
  for (bool polled = !with_step; !polled || driven.engine().Health();) {
    Require(std::chrono::steady_clock::now() < deadline, "the loss is told in time");
    driven.notifier().WaitFor(kDeadline);  // it rings
    polled = polled || driven.engine().PollStep(&result);
  }
  if (with_step) {
    Require(!result.status && result.status.error().code == ErrorCode::kInternal, "the step fails");
  }
  Require(driven.engine().Health().error().code == ErrorCode::kUnavailable, "it is kUnavailable");
  std::vector<EncodeDone> done;
  driven.engine().PollEncoded(&done);
  Require(done.empty(), "the encode is not reported again");
  const EncodeItem item{1, requests[0].source, sequences[0].cross_blocks};
  Require(!driven.engine().StartEncode({&item, 1}), "StartEncode refuses");
  std::_Exit(0);
}

class CudaFaultDeathTest : public testing::Test {
 protected:
  // The child starts afresh: CUDA does not survive a fork.
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(CudaFaultDeathTest, ALostDeviceFailsAllWorkOnceAndRefusesMore) {
  EXPECT_EXIT(LoseTheDevice(), testing::ExitedWithCode(0), "");
}

TEST_F(CudaFaultDeathTest, ADeviceLostBehindAReportFailsTheEngine) {
  EXPECT_EXIT(LoseTheDeviceBehindAReport(false), testing::ExitedWithCode(0), "");
}

TEST_F(CudaFaultDeathTest, ADeviceLostBehindAReportFailsTheStepThatFollows) {
  EXPECT_EXIT(LoseTheDeviceBehindAReport(true), testing::ExitedWithCode(0), "");
}

TEST_F(CudaFaultDeathTest, AnEngineOnALostDeviceCanBeDestroyed) {
  EXPECT_EXIT(DestroyWithALostDevice(), testing::ExitedWithCode(0), "");
}

TEST_F(CudaFaultDeathTest, AnEngineWithWorkInFlightCanBeDestroyed) {
  EXPECT_EXIT(DestroyWhileTheDeviceIsBusy(), testing::ExitedWithCode(0), "");
}

// That the scene itself does not fail the work.
TEST_F(CudaFaultDeathTest, AHeldDeviceOnlyDelays) {
  EXPECT_EXIT(ReleaseTheDevice(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace seq2seq
