// Engines that share a device run at the same time, and so do an engine's encodes and steps. Times
// are compared with each other alone, medians of several runs.
#include <algorithm>
#include <barrier>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backend/cuda/cuda_engine_test_util.h"
#include "backend/cuda/device_holder.h"
#include "backend/cuda/pinned_buffer.h"

namespace seq2seq {
namespace {

using Clock = std::chrono::steady_clock;

double MsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

CudaEngineOptions Options(int32_t sequences, int32_t source_tokens) {
  CudaEngineOptions options;
  options.max_active_sequences = sequences;
  options.max_source_tokens = source_tokens;
  options.max_decoder_tokens = 256;
  options.kv_cache_bytes = int64_t{2} << 30;
  return options;
}

DriverRequest Request(int32_t source_tokens, int32_t new_tokens) {
  DriverRequest request;
  for (int32_t i = 0; i < source_tokens; ++i) request.source.push_back(2 + i * 31 % 500);
  request.min_new_tokens = new_tokens;
  request.max_new_tokens = new_tokens;
  return request;
}

// Decoding one sequence leaves most of the device idle: two engines that did not wait for each
// other take hardly longer than one; two that did would take the sum.
TEST(CudaOverlapTest, TimingOfTwoEnginesOnOneDevice) {
  const auto weights = LoadWideWeights(
      {.d_model = 512, .num_heads = 8, .d_ff = 1024, .num_layers = 2, .num_decoder_layers = 12});
  DrivenEngine one(weights, Options(1, 64));
  DrivenEngine other(weights, Options(1, 64));
  const auto time = [](DrivenEngine& engine) {
    const Clock::time_point begin = Clock::now();
    engine.Generate({Request(64, 200)});
    return MsSince(begin);
  };
  std::vector<double> ones, others, boths;
  for (int round = 0; round < 6; ++round) {
    const double first = time(one);
    const double second = time(other);
    std::barrier start(3);
    std::jthread left([&] {
      start.arrive_and_wait();
      one.Generate({Request(64, 200)});
    });
    std::jthread right([&] {
      start.arrive_and_wait();
      other.Generate({Request(64, 200)});
    });
    start.arrive_and_wait();
    const Clock::time_point begin = Clock::now();
    left.join();
    right.join();
    const double both = MsSince(begin);
    if (round == 0) continue;  // warms up
    ones.push_back(first);
    others.push_back(second);
    boths.push_back(both);
  }
  const double ratio = Median(boths) / (Median(ones) + Median(others));
  RecordProperty("both_over_sum", std::to_string(ratio));
  std::printf("alone %.2f and %.2f ms, both at once %.2f ms: %.2f of the sum\n", Median(ones),
              Median(others), Median(boths), ratio);
  EXPECT_LT(ratio, 0.75);
}

// The default stream is busy all the while: what has to do with it, or with the whole device,
// waits.
TEST(CudaOverlapTest, NothingWaitsForTheDefaultStream) {
  DrivenEngine driven(LoadWideWeights({}), Options(2, 64));
  const std::vector<DriverRequest> requests = {Request(64, 20), Request(33, 10)};
  driven.Generate(requests);  // loads the kernels, which waits for the device
  const PinnedBuffer word = ValueOf(PinnedBuffer::Allocate(sizeof(HeldDevice)));
  volatile HeldDevice* const say = word.as<HeldDevice>();
  *say = HeldDevice::kHeld;
  ASSERT_EQ(LaunchStreamHolder(say, cudaStreamLegacy), cudaSuccess);
  driven.Generate(requests);
  EXPECT_EQ(cudaStreamQuery(cudaStreamLegacy), cudaErrorNotReady) << "it was waited for";
  *say = HeldDevice::kReleased;
  EXPECT_EQ(cudaStreamSynchronize(cudaStreamLegacy), cudaSuccess);
}

// An encode of 8,192 tokens fills the device for milliseconds. Steps of another sequence take turns
// with slices of it, so that none waits for the whole.
TEST(CudaOverlapTest, TimingOfStepsBesideAnEncode) {
  const auto weights = LoadWideWeights(
      {.d_model = 1024, .num_heads = 16, .d_ff = 2816, .num_layers = 24, .num_decoder_layers = 4});
  DrivenEngine driven(weights, Options(2, 8192));
  driven.Generate({Request(64, 200), Request(8192, 1)});  // warms up
  std::vector<DriverSequence> sequences =
      ValueOf(driven.driver().Encode(std::vector<DriverRequest>{Request(64, 200)}));
  DriverSequence* row = &sequences[0];
  driven.driver().Enter(row);
  std::vector<double> alone;
  for (int i = 0; i < 50; ++i) {
    const Clock::time_point begin = Clock::now();
    ASSERT_TRUE(driven.driver().Step({&row, 1}));
    alone.push_back(MsSince(begin));
  }
  const DriverRequest source = Request(8192, 1);
  std::vector<BlockId> blocks;
  for (BlockId block = 0; block < 512; ++block) {
    blocks.push_back(driven.engine().info().total_blocks - 1 - block);
  }
  const EncodeItem item{1, source.source, blocks};
  std::vector<EncodeDone> done;
  std::vector<double> beside;
  const Clock::time_point encode_begin = Clock::now();
  ASSERT_TRUE(driven.engine().StartEncode({&item, 1}));
  while (done.empty() && beside.size() < 150) {
    const Clock::time_point begin = Clock::now();
    ASSERT_TRUE(driven.driver().Step({&row, 1}));
    beside.push_back(MsSince(begin));
    driven.engine().PollEncoded(&done);
  }
  const double encode = MsSince(encode_begin);
  while (done.empty()) driven.engine().PollEncoded(&done);
  ASSERT_TRUE(done[0].status);
  RecordProperty("steps_beside_the_encode", std::to_string(beside.size()));
  std::printf("step alone %.3f ms, beside an encode of %.2f ms %.3f ms (%zu steps)\n",
              Median(alone), encode, Median(beside), beside.size());
  // A step that waited for the encode would be the only one; one that waits for a slice takes as
  // long as the slice, of which there are a dozen here.
  EXPECT_GE(beside.size(), 5U);
  EXPECT_LT(Median(beside), encode / 4);
}

}  // namespace
}  // namespace seq2seq
