// Times the CUDA engine on a shape of model_shape.h: whole batches of equal requests, random
// weights.
//
//   cuda_engine_benchmark [--join] [--sample] [shape] [dtype] [source tokens] [new tokens]
//                         [batch ...]
//
// --join: sequences start to decode as their encodes end, beside the encodes of the others; without
// it when all are encoded. --sample: top_k 50 and top_p 0.9 instead of greedy. Prints a line a
// batch: whole-job tokens/s, time of the encodes alone, time to the first token, median time
// between steps.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "backend/core/notifier.h"
#include "backend/cuda/cuda_engine.h"
#include "backend/testing/engine_driver.h"
#include "backend/testing/memory_checkpoint.h"
#include "benchmarks/engine/model_shape.h"

namespace seq2seq {
namespace {

constexpr int kRepeats = 3;

double Median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  std::ranges::nth_element(values, values.begin() + static_cast<int64_t>(values.size() / 2));
  return values[values.size() / 2];
}

std::vector<DriverRequest> Requests(const SamplingOptions& sampling, int32_t batch, int32_t source,
                                    int32_t tokens) {
  std::mt19937 engine(11);
  std::vector<DriverRequest> requests(batch);
  for (DriverRequest& request : requests) {
    for (int32_t i = 0; i < source; ++i) {
      request.source.push_back(static_cast<int32_t>(engine() % 32000) + 3);
    }
    request.prefix = {0};
    request.min_new_tokens = tokens;
    request.max_new_tokens = tokens;
    request.sampling = sampling;
    request.sampling.seed = static_cast<uint64_t>(&request - requests.data());
  }
  return requests;
}

// Until the device has encoded all of them: an encode is reported when it is queued.
Result<double> EncodeMs(EngineDriver* driver, const std::vector<DriverRequest>& requests) {
  driver->Reset();
  const auto begin = std::chrono::steady_clock::now();
  SEQ2SEQ_RETURN_IF_ERROR(driver->Encode(requests));
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize());
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  return took.count();
}

// One line of the table.
Status Measure(std::shared_ptr<const DeviceWeights> weights, DecodeStart start,
               const SamplingOptions& sampling, int32_t batch, int32_t source, int32_t tokens) {
  Notifier notifier;
  CudaEngineOptions options;
  options.max_active_sequences = batch;
  options.max_source_tokens = source;
  options.max_decoder_tokens = tokens + 1;
  SEQ2SEQ_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                           CudaEngine::Create(std::move(weights), options, &notifier));
  EngineDriver driver(engine.get(), &notifier);
  const std::vector<DriverRequest> requests = Requests(sampling, batch, source, tokens);
  std::vector<double> totals;
  std::vector<double> firsts;
  std::vector<double> encodes;
  std::vector<double> steps;
  for (int i = 0; i <= kRepeats; ++i) {
    driver.Reset();
    SEQ2SEQ_ASSIGN_OR_RETURN(const std::vector<DriverSequence> sequences,
                             driver.Generate(requests, start));
    if (i == 0) continue;  // warms up
    totals.push_back(driver.times().total);
    steps.push_back(Median(driver.times().steps));
    double first = 0.0;
    for (const DriverSequence& sequence : sequences) {
      first = std::max(first, sequence.first_token_ms);
    }
    firsts.push_back(first);
  }
  // Not in between: an encode that follows another finds a slower clock.
  for (int i = 0; i < kRepeats; ++i) {
    SEQ2SEQ_ASSIGN_OR_RETURN(const double encode, EncodeMs(&driver, requests));
    encodes.push_back(encode);
  }
  std::printf(
      "batch %4d: %9.1f tokens/s, encodes alone %8.2f ms, first tokens after %8.2f ms, "
      "step %7.3f ms, whole %9.2f ms\n",
      batch, 1000.0 * batch * tokens / Median(totals), Median(encodes), Median(firsts),
      Median(steps), Median(totals));
  std::fflush(stdout);
  return OkStatus();
}

Status Benchmark(DecodeStart start, const SamplingOptions& sampling, const std::string& shape,
                 DType dtype, int32_t source, int32_t tokens, const std::vector<int32_t>& batches) {
  const std::optional<MemoryCheckpointOptions> options = ModelShape(shape, dtype);
  if (!options) return InvalidArgument("no shape " + shape);
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaSetDevice(0));
  std::shared_ptr<const DeviceWeights> weights;
  {
    const MemoryCheckpoint checkpoint(*options);
    SEQ2SEQ_ASSIGN_OR_RETURN(weights, DeviceWeights::Load(checkpoint, dtype));
  }
  std::printf("shape %s, %s, %d source tokens, %d new tokens\n", shape.c_str(),
              std::string(DTypeName(dtype)).c_str(), source, tokens);
  for (const int32_t batch : batches) {
    SEQ2SEQ_RETURN_IF_ERROR(Measure(weights, start, sampling, batch, source, tokens));
  }
  return OkStatus();
}

}  // namespace
}  // namespace seq2seq

int main(int argc, char** argv) {
  using namespace seq2seq;  // NOLINT: a benchmark's main
  DecodeStart start = DecodeStart::kTogether;
  SamplingOptions sampling;
  for (; argc > 1 && std::string(argv[1]).starts_with("--"); --argc, ++argv) {
    if (std::string(argv[1]) == "--join") start = DecodeStart::kAsEncoded;
    if (std::string(argv[1]) == "--sample") {
      sampling = {.do_sample = true, .top_k = 50, .top_p = 0.9F};
    }
  }
  const std::string shape = argc > 1 ? argv[1] : "t5_1_5b";
  const DType dtype = ParseDType(argc > 2 ? argv[2] : "bfloat16").value_or(DType::kBFloat16);
  const int32_t source = argc > 3 ? std::atoi(argv[3]) : 512;
  const int32_t tokens = argc > 4 ? std::atoi(argv[4]) : 128;
  std::vector<int32_t> batches;
  for (int i = 5; i < argc; ++i) batches.push_back(std::atoi(argv[i]));
  if (batches.empty()) batches = {1, 16, 64};
  const Status status = Benchmark(start, sampling, shape, dtype, source, tokens, batches);
  if (status) return 0;
  std::printf("FAILED: %s\n", status.error().message.c_str());
  return 1;
}
