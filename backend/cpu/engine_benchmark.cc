// Tokens per second of the CPU engine on the shape of T5-small with random weights: 128 source
// tokens, 64 new ones, greedy. Prints a table: medians over the repetitions, and the best, which on
// a machine with other work to do says more.
//
//   engine_benchmark [threads] [repetitions] [dtype] [sequences ...]
//   engine_benchmark 2 5 bfloat16 1 8 32
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "backend/core/dtype.h"
#include "backend/core/format.h"
#include "backend/core/notifier.h"
#include "backend/core/status.h"
#include "backend/cpu/cpu_engine_factory.h"
#include "backend/cpu/kernels/kernel_table.h"
#include "backend/engine/engine_factory.h"
#include "backend/model/checkpoint.h"
#include "backend/testing/engine_driver.h"
#include "backend/testing/tiny_checkpoint.h"

namespace seq2seq {
namespace {

constexpr int32_t kSourceTokens = 128;
constexpr int32_t kNewTokens = 64;
constexpr int32_t kVocabSize = 32128;

struct BenchmarkOptions {
  int32_t threads = 2;
  int32_t repetitions = 5;
  DType dtype = DType::kFloat32;
  std::vector<int32_t> sequences;
};

struct Times {
  double encode_s = 0.0;
  double decode_s = 0.0;
  double processor_s = 0.0;  // of all threads, for both
};

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

double ProcessorSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

double PeakMebibytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024.0;
}

std::vector<DriverRequest> MakeRequests(int32_t count) {
  std::vector<DriverRequest> requests(count);
  for (int32_t i = 0; i < count; ++i) {
    for (int32_t j = 0; j < kSourceTokens; ++j) {
      requests[i].source.push_back(2 + (i * 7919 + j * 104729) % (kVocabSize - 2));
    }
    requests[i].min_new_tokens = kNewTokens;
    requests[i].max_new_tokens = kNewTokens;
  }
  return requests;
}

Result<Times> RunOnce(EngineDriver* driver, const std::vector<DriverRequest>& requests) {
  driver->Reset();
  Times times;
  const double processor_begin = ProcessorSeconds();
  auto begin = std::chrono::steady_clock::now();
  SEQ2SEQ_ASSIGN_OR_RETURN(std::vector<DriverSequence> sequences, driver->Encode(requests));
  times.encode_s = SecondsSince(begin);
  begin = std::chrono::steady_clock::now();
  std::vector<DriverSequence*> rows;
  for (DriverSequence& sequence : sequences) {
    driver->Enter(&sequence);
    rows.push_back(&sequence);
  }
  for (int32_t step = 0; step < kNewTokens; ++step) {
    SEQ2SEQ_RETURN_IF_ERROR(driver->Step(rows));
  }
  times.decode_s = SecondsSince(begin);
  times.processor_s = ProcessorSeconds() - processor_begin;
  return times;
}

Status RunAll(const BenchmarkOptions& options, const std::filesystem::path& directory) {
  TinyCheckpointOptions shape;
  shape.vocab_size = kVocabSize;
  shape.d_model = 512;
  shape.d_kv = 64;
  shape.num_heads = 8;
  shape.d_ff = 2048;
  shape.num_layers = 6;
  shape.num_decoder_layers = 6;
  shape.buckets = 32;
  shape.max_distance = 128;
  shape.feed_forward_proj = "relu";
  shape.dtype = options.dtype;
  SEQ2SEQ_RETURN_IF_ERROR(WriteTinyCheckpoint(directory, shape));
  const double before = PeakMebibytes();
  SEQ2SEQ_ASSIGN_OR_RETURN(std::shared_ptr<const Checkpoint> checkpoint,
                           Checkpoint::Load(directory));
  EngineOptions engine_options;
  engine_options.max_active_sequences = std::ranges::max(options.sequences);
  engine_options.max_source_tokens = 512;
  engine_options.max_decoder_tokens = 512;
  engine_options.cpu_threads = options.threads;
  Notifier notifier;
  SEQ2SEQ_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine,
                           MakeCpuEngineFactory(checkpoint)->Create(engine_options, &notifier));
  checkpoint.reset();
  EngineDriver driver(engine.get(), &notifier);
  std::printf("T5-small, %s weights, %d threads, %s kernels, %d source and %d new tokens\n\n",
              std::string(DTypeName(options.dtype)).c_str(), options.threads,
              cpu::FindKernels(cpu::BestKernelLevel())->name, kSourceTokens, kNewTokens);
  std::printf(
      "| sequences | encode ms | ms a step | tokens/s | best tokens/s | processor ms "
      "|\n|---|---|---|---|---|---|\n");
  for (int32_t count : options.sequences) {
    const std::vector<DriverRequest> requests = MakeRequests(count);
    std::vector<double> encode, decode, total, processor;
    for (int32_t i = 0; i <= options.repetitions; ++i) {
      SEQ2SEQ_ASSIGN_OR_RETURN(const Times times, RunOnce(&driver, requests));
      if (i == 0) continue;  // warms caches and pages up
      encode.push_back(times.encode_s);
      decode.push_back(times.decode_s);
      processor.push_back(times.processor_s);
      total.push_back(times.encode_s + times.decode_s);
    }
    std::printf("| %d | %.2f | %.3f | %.1f | %.1f | %.1f |\n", count, Median(encode) * 1e3,
                Median(decode) * 1e3 / kNewTokens, count * kNewTokens / Median(total),
                count * kNewTokens / std::ranges::min(total), Median(processor) * 1e3);
    std::fflush(stdout);
  }
  std::printf("\npeak memory: %.0f MiB (%.0f MiB before the load)\n", PeakMebibytes(), before);
  return OkStatus();
}

Result<BenchmarkOptions> ParseArguments(int argc, char** argv) {
  BenchmarkOptions options;
  if (argc > 1) options.threads = std::atoi(argv[1]);
  if (argc > 2) options.repetitions = std::atoi(argv[2]);
  if (argc > 3) {
    const std::optional<DType> dtype = ParseDType(argv[3]);
    if (!dtype) return InvalidArgument(Format("dtype '{}': float32, float16 or bfloat16", argv[3]));
    options.dtype = *dtype;
  }
  for (int i = 4; i < argc; ++i) options.sequences.push_back(std::atoi(argv[i]));
  if (options.sequences.empty()) options.sequences = {1, 8, 32};
  if (options.repetitions < 1 || std::ranges::min(options.sequences) < 1) {
    return InvalidArgument("repetitions and sequences are at least 1");
  }
  return options;
}

Status Main(int argc, char** argv) {
  SEQ2SEQ_ASSIGN_OR_RETURN(const BenchmarkOptions options, ParseArguments(argc, argv));
  std::string directory = (std::filesystem::temp_directory_path() / "seq2seq_XXXXXX").string();
  if (mkdtemp(directory.data()) == nullptr) return Internal("can't make a temporary directory");
  const Status status = RunAll(options, std::filesystem::path(directory) / "model");
  std::filesystem::remove_all(directory);
  return status;
}

}  // namespace
}  // namespace seq2seq

int main(int argc, char** argv) {
  const seq2seq::Status status = seq2seq::Main(argc, argv);
  if (status) return 0;
  std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return 1;
}
