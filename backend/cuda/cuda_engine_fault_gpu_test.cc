// A device that is lost with work in flight: a kernel traps, and from then on every CUDA call of
// the process fails. So each test runs in a process of its own (a "death test" that ends well).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
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
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / name;
  Require(WriteTinyCheckpoint(folder, {}).has_value(), "the checkpoint is written");
  return LoadWeights(*ValueOf(Checkpoint::Load(folder)), DType::kFloat32);
}

DriverRequest Request(int32_t seed) {
  DriverRequest request;
  for (int32_t i = 0; i < 20; ++i) request.source.push_back(2 + (seed * 13 + i * 7) % 38);
  request.min_new_tokens = 30;
  request.max_new_tokens = 30;
  return request;
}

// An engine with the device taken away, two steps and an encode waiting for it.
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
    source_ = Request(3).source;
    for (BlockId block = 0; block < 4; ++block) {
      blocks_.push_back(engine().info().total_blocks - 1 - block);
    }
    const EncodeItem item{7, source_, blocks_};
    Require(engine().StartEncode({&item, 1}).has_value(), "an encode is started");
  }

  Engine& engine() { return driven_->engine(); }
  void DestroyEngine() { driven_.reset(); }
  void Say(HeldDevice what) { *word() = what; }

  // Polls until everything in flight is reported.
  void Collect() {
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    StepResult result;
    while (steps.size() < 2 || encodes.empty()) {
      Require(std::chrono::steady_clock::now() < deadline, "all work is reported in time");
      Poll(&result);
      driven_->notifier().WaitFor(std::chrono::milliseconds(10));
    }
    for (int i = 0; i < 10; ++i) Poll(&result);  // nothing comes twice
  }

  std::vector<std::pair<uint64_t, Status>> steps;
  std::vector<EncodeDone> encodes;

 private:
  volatile HeldDevice* word() { return word_.as<HeldDevice>(); }

  void Poll(StepResult* result) {
    while (engine().PollStep(result)) steps.emplace_back(result->step, result->status);
    engine().PollEncoded(&encodes);
  }

  std::unique_ptr<DrivenEngine> driven_;
  PinnedBuffer word_;
  CudaStream stream_;
  std::vector<DriverSequence> sequences_;
  StepPlan plan_;
  std::vector<int32_t> source_;
  std::vector<BlockId> blocks_;
};

void RequireAllReported(const Scene& scene, bool good) {
  Require(scene.steps.size() == 2 && scene.encodes.size() == 1, "each piece of work, once");
  Require(scene.steps[0].first == 100 && scene.steps[1].first == 101, "steps in their order");
  Require(scene.encodes[0].ticket == 7, "the encode by its ticket");
  for (const auto& [step, status] : scene.steps) {
    Require(status.has_value() == good, "step " + std::to_string(step) + " as it ended");
  }
  Require(scene.encodes[0].status.has_value() == good, "the encode as it ended");
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
  const Status health = scene.engine().Health();
  Require(!health && health.error().code == ErrorCode::kUnavailable, "Health() is kUnavailable");
  const std::vector<int32_t> source = Request(4).source;
  const std::vector<BlockId> blocks = {0, 1};
  const EncodeItem item{8, source, blocks};
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

class CudaFaultDeathTest : public testing::Test {
 protected:
  // The child starts afresh: CUDA does not survive a fork.
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(CudaFaultDeathTest, ALostDeviceFailsAllWorkOnceAndRefusesMore) {
  EXPECT_EXIT(LoseTheDevice(), testing::ExitedWithCode(0), "");
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
