#include "benchmarks/kernels/kernel_bench.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>

namespace seq2seq {
namespace {

constexpr int kWarmUps = 5;
constexpr int kRepeats = 21;
constexpr double kTurnBytes = 256e6;
constexpr int32_t kLeastTurns = 4;
constexpr int32_t kMostTurns = 64;

}  // namespace

void CheckCuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

DeviceArray RandomNumbers(size_t bytes) {
  std::vector<uint16_t> numbers(1 << 20);
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<uint16_t>(0x3c00 + (i * 2654435761U >> 9) % 256 + (i % 2) * 0x8000);
  }
  void* memory = nullptr;
  CheckCuda(cudaMalloc(&memory, bytes), "cudaMalloc");
  auto* data = static_cast<char*>(memory);
  size_t done = std::min(bytes, numbers.size() * sizeof(uint16_t));
  CheckCuda(cudaMemcpy(data, numbers.data(), done, cudaMemcpyHostToDevice), "cudaMemcpy");
  while (done < bytes) {
    const size_t piece = std::min(done, bytes - done);
    CheckCuda(cudaMemcpy(data + done, data, piece, cudaMemcpyDeviceToDevice), "cudaMemcpy");
    done += piece;
  }
  return DeviceArray(memory);
}

int32_t Turns(double bytes) {
  return static_cast<int32_t>(
      std::clamp(std::ceil(kTurnBytes / bytes), double{kLeastTurns}, double{kMostTurns}));
}

size_t TurnSpace(size_t largest) {
  return std::max(kLeastTurns * largest, static_cast<size_t>(kTurnBytes) + largest);
}

namespace {

cudaStream_t NewStream() {
  cudaStream_t stream = nullptr;
  CheckCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  CheckCuda(cudaDeviceSynchronize(), "earlier copies");
  return stream;
}

// Of what `queue()` queues on `stream`, in each repetition, ascending.
std::vector<double> Microseconds(cudaStream_t stream, const std::function<cudaError_t()>& queue) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  CheckCuda(cudaEventCreate(&begin), "event");
  CheckCuda(cudaEventCreate(&end), "event");
  std::vector<double> times;
  for (int i = 0; i < kWarmUps + kRepeats; ++i) {
    CheckCuda(cudaEventRecord(begin, stream), "record");
    CheckCuda(queue(), "launch");
    CheckCuda(cudaEventRecord(end, stream), "record");
    CheckCuda(cudaEventSynchronize(end), "kernel");
    float milliseconds = 0.0F;
    CheckCuda(cudaEventElapsedTime(&milliseconds, begin, end), "elapsed");
    if (i >= kWarmUps) times.push_back(1000.0 * milliseconds);
  }
  std::ranges::sort(times);
  CheckCuda(cudaEventDestroy(begin), "event");
  CheckCuda(cudaEventDestroy(end), "event");
  return times;
}

}  // namespace

double MedianMicroseconds(int32_t count, bool dependent, const Launcher& launch) {
  cudaStream_t stream = NewStream();
  CheckCuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int32_t i = 0; i < count; ++i) CheckCuda(launch(i, {stream, dependent && i > 0}), "launch");
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  CheckCuda(cudaStreamEndCapture(stream, &graph), "capture");
  CheckCuda(cudaGraphInstantiate(&exec, graph, 0), "graph");
  const double time =
      Microseconds(stream, [&] { return cudaGraphLaunch(exec, stream); })[kRepeats / 2] / count;
  CheckCuda(cudaGraphExecDestroy(exec), "graph");
  CheckCuda(cudaGraphDestroy(graph), "graph");
  CheckCuda(cudaStreamDestroy(stream), "stream");
  return time;
}

double LeastMicroseconds(const std::function<cudaError_t(cudaStream_t)>& queue) {
  cudaStream_t stream = NewStream();
  const double time = Microseconds(stream, [&] { return queue(stream); }).front();
  CheckCuda(cudaStreamDestroy(stream), "stream");
  return time;
}

}  // namespace seq2seq
