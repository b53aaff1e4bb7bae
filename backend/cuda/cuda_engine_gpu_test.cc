// What is particular to the CUDA engine: number formats, sampling as on the CPU, memory, limits.
#include "backend/cuda/cuda_engine.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <future>
#include <limits>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/cpu/cpu_engine_factory.h"
#include "backend/cuda/cuda_engine_factory.h"
#include "backend/cuda/cuda_engine_test_util.h"
#include "backend/cuda/device_check.h"
#include "backend/cuda/faulty_cublas_lt.h"
#include "backend/testing/engine_conformance.h"
#include "backend/testing/memory_checkpoint.h"
#include "backend/testing/tiny_checkpoint.h"

namespace seq2seq {
namespace {

std::vector<DriverRequest> SixRequests(int32_t new_tokens) {
  std::vector<DriverRequest> requests;
  for (int32_t i = 0; i < 6; ++i) requests.push_back(TinyRequest(i, 1 + 37 * i, new_tokens));
  return requests;
}

size_t FreeBytes() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  EXPECT_EQ(cudaMemGetInfo(&free_bytes, &total_bytes), cudaSuccess);
  return free_bytes;
}

Result<std::unique_ptr<Engine>> MakeCudaEngine(const std::shared_ptr<const Checkpoint>& checkpoint,
                                               const ConformanceOptions& wanted,
                                               Notifier* notifier) {
  EngineOptions options;
  options.kind = EngineKind::kCuda;
  options.max_active_sequences = wanted.max_slots;
  options.max_source_tokens = wanted.max_source_tokens;
  options.max_decoder_tokens = wanted.max_decoder_tokens;
  options.kv_cache_bytes = wanted.kv_cache_bytes;
  options.weights_dtype = DType::kFloat32;
  return MakeCudaEngineFactory(checkpoint)->Create(options, notifier);
}

INSTANTIATE_TEST_SUITE_P(Cuda, EngineConformanceTest,
                         testing::Values(EngineMaker{"cuda", MakeCudaEngine}));

// Both engines draw the same Philox numbers, so with logits that differ by 1e-6 they choose the
// same tokens.
TEST(CudaSamplingTest, ChoosesTheTokensOfTheCpuEngine) {
  const auto checkpoint = WriteAndLoad("sampling", TinyHalfShape(16));
  std::vector<DriverRequest> requests = SixRequests(60);
  for (size_t i = 0; i < requests.size(); ++i) {
    SamplingOptions& sampling = requests[i].sampling;
    sampling.do_sample = true;
    sampling.seed = 1'000'003 * i + 5;
    sampling.temperature = 0.7F + 0.1F * static_cast<float>(i);
    if (i == 1 || i == 5) sampling.top_k = 20;
    if (i == 2 || i == 5) sampling.top_p = 0.8F;
    if (i == 3) sampling.min_p = 0.02F;
    if (i == 4) sampling.typical_p = 0.7F;
    // Some of more tokens than a step consumes.
    for (size_t k = 0; k < 9 * i; ++k) {
      requests[i].prefix.push_back(2 + static_cast<int32_t>(k * 5 + i) % 38);
    }
    requests[i].min_new_tokens = i % 2 == 0 ? 50 : 5;
    requests[i].max_new_tokens = 50;
  }
  Notifier notifier;
  EngineOptions cpu_options;
  cpu_options.max_active_sequences = 6;
  cpu_options.max_source_tokens = 200;
  cpu_options.max_decoder_tokens = 100;
  const std::unique_ptr<Engine> cpu =
      ValueOf(MakeCpuEngineFactory(checkpoint)->Create(cpu_options, &notifier));
  EngineDriver cpu_driver(cpu.get(), &notifier);
  const std::vector<DriverSequence> truth = ValueOf(cpu_driver.Generate(requests));
  DrivenEngine cuda(LoadWeights(*checkpoint, DType::kFloat32), TinyEngineOptions());
  const std::vector<DriverSequence> got = cuda.Generate(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(got[i].tokens, truth[i].tokens) << i;
    ASSERT_EQ(got[i].logprobs.size(), truth[i].logprobs.size());
    for (size_t t = 0; t < truth[i].logprobs.size(); ++t) {
      EXPECT_NEAR(got[i].logprobs[t], truth[i].logprobs[t], 1e-4F) << i << ", " << t;
    }
  }
}

// As WriteAndLoad(), each tensor as change(tensor) leaves it.
template <typename Change>
std::shared_ptr<const Checkpoint> WriteChanged(const std::string& name,
                                               const TinyCheckpointOptions& options,
                                               Change change) {
  WriteAndLoad(name, options);
  std::vector<StoredTensor> tensors = TinyTensors(options);
  for (StoredTensor& tensor : tensors) change(tensor);
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / name;
  const Status written = WriteSafetensors(folder / "model.safetensors", tensors);
  if (!written) throw std::runtime_error(written.error().message);
  return ValueOf(Checkpoint::Load(folder));
}

struct HalfCase {
  DType dtype;
  int32_t d_kv;
  double epsilon;  // distance of 1 to the next number

  friend void PrintTo(const HalfCase& one, std::ostream* out) {
    *out << DTypeName(one.dtype) << ", heads of " << one.d_kv;
  }
};

class HalfPrecisionTest : public testing::TestWithParam<HalfCase> {
 protected:
  // The log-probability of the same token after the same prefixes, in float32 and in half
  // precision.
  void ExpectNearFloat32(const Checkpoint& checkpoint, double bound) {
    DrivenEngine exact(LoadWeights(checkpoint, DType::kFloat32), TinyEngineOptions());
    DrivenEngine half(LoadWeights(checkpoint, GetParam().dtype), TinyEngineOptions());
    const std::vector<DriverSequence> whole = exact.Generate(SixRequests(40));
    double worst = 0.0;
    int compared = 0;
    int equal = 0;
    for (size_t length = 1; length < 40; length += 5) {
      std::vector<DriverRequest> requests = SixRequests(1);
      for (size_t i = 0; i < requests.size(); ++i) {
        requests[i].prefix.insert(requests[i].prefix.end(), whole[i].tokens.begin(),
                                  whole[i].tokens.begin() + static_cast<int64_t>(length));
      }
      const std::vector<DriverSequence> got = half.Generate(requests);
      for (size_t i = 0; i < requests.size(); ++i) {
        ASSERT_TRUE(std::isfinite(got[i].logprobs[0]));
        ++compared;
        // A greedy choice's log-probability is the largest one: it may be compared whoever won it.
        const double truth = whole[i].logprobs[length];
        worst = std::max(worst, std::abs(got[i].logprobs[0] - truth));
        equal += got[i].tokens[0] == whole[i].tokens[length] ? 1 : 0;
      }
    }
    RecordProperty("worst_logprob_difference", std::to_string(worst));
    RecordProperty("equal_tokens", std::to_string(equal) + " of " + std::to_string(compared));
    EXPECT_LE(worst, bound);
    EXPECT_GE(equal, compared * 9 / 10);
  }
};

// A logit is a sum over some 60 roundings on its way through two encoder and three decoder layers,
// each of relative size epsilon / 2 and independent: epsilon / 2 * sqrt(60), about 4 epsilon, of
// logits that are below 4 here; four times that is allowed.
TEST_P(HalfPrecisionTest, LogProbabilitiesAreNearThoseOfFloat32) {
  const auto checkpoint =
      WriteAndLoad("half" + std::to_string(GetParam().d_kv), TinyHalfShape(GetParam().d_kv));
  ExpectNearFloat32(*checkpoint, 64 * GetParam().epsilon);
}

// Encodes are padded to the sizes that there are graphs for, multiples of 64.
TEST_P(HalfPrecisionTest, SourcesOfAnyLengthAreNearThoseOfFloat32) {
  const auto checkpoint =
      WriteAndLoad("lengths" + std::to_string(GetParam().d_kv), TinyHalfShape(GetParam().d_kv));
  DrivenEngine exact(LoadWeights(*checkpoint, DType::kFloat32), TinyEngineOptions());
  DrivenEngine half(LoadWeights(*checkpoint, GetParam().dtype), TinyEngineOptions());
  for (const int32_t length : {1, 63, 64, 65, 127, 129, 192, 200}) {
    const DriverRequest request = TinyRequest(length, length, 1);
    const double truth = exact.Generate({request})[0].logprobs[0];
    EXPECT_NEAR(half.Generate({request})[0].logprobs[0], truth, 64 * GetParam().epsilon) << length;
  }
}

// Feed-forward outputs of some 1e6, which float16 cannot hold, as the published T5 checkpoints
// have.
TEST_P(HalfPrecisionTest, LargeActivationsStayFinite) {
  TinyCheckpointOptions options = TinyHalfShape(GetParam().d_kv);
  const std::string name = "overflow" + std::to_string(GetParam().d_kv);
  const auto checkpoint = WriteChanged(name, options, [](StoredTensor& tensor) {
    const bool in = tensor.name.find("DenseReluDense.wi") != std::string::npos;
    const bool out = tensor.name.find("DenseReluDense.wo") != std::string::npos;
    if (!in && !out) return;
    for (size_t at = 0; at < tensor.bytes.size(); at += sizeof(float)) {
      float value = 0.0F;
      std::memcpy(&value, &tensor.bytes[at], sizeof(value));
      value *= in ? 16.0F : 8192.0F;
      std::memcpy(&tensor.bytes[at], &value, sizeof(value));
    }
  });
  ExpectNearFloat32(*checkpoint, 64 * GetParam().epsilon);
}

// What a source leaves in the encoder's buffers may be no number, and those after it are padded.
TEST_P(HalfPrecisionTest, ABrokenSourceLeavesLaterOnesAlone) {
  constexpr int32_t kBrokenToken = 100;  // of no other source
  TinyCheckpointOptions options = TinyHalfShape(GetParam().d_kv);
  options.tie_word_embeddings = false;
  const std::string name = "broken" + std::to_string(GetParam().d_kv);
  const auto checkpoint = WriteChanged(name, options, [&](StoredTensor& tensor) {
    if (tensor.name != "shared.weight") return;
    const std::vector<float> row(options.d_model, std::numeric_limits<float>::infinity());
    std::memcpy(&tensor.bytes[kBrokenToken * row.size() * sizeof(float)], row.data(),
                row.size() * sizeof(float));
  });
  const auto weights = LoadWeights(*checkpoint, GetParam().dtype);
  DriverRequest broken = TinyRequest(1, 50, 1);
  broken.source[10] = kBrokenToken;
  for (const int32_t length : {20, 50, 100}) {
    const DriverRequest request = TinyRequest(length, length, 1);
    DrivenEngine engine(weights, TinyEngineOptions());
    const DriverSequence truth = engine.Generate({request})[0];
    engine.Generate({broken});
    const DriverSequence after = engine.Generate({request})[0];
    EXPECT_EQ(after.tokens, truth.tokens) << length;
    EXPECT_EQ(after.logprobs, truth.logprobs) << length;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats, HalfPrecisionTest,
    testing::Values(HalfCase{DType::kFloat16, 16, 0x1p-10}, HalfCase{DType::kFloat16, 64, 0x1p-10},
                    HalfCase{DType::kBFloat16, 16, 0x1p-7}, HalfCase{DType::kBFloat16, 64, 0x1p-7}),
    [](const testing::TestParamInfo<HalfCase>& info) {
      return std::string(DTypeName(info.param.dtype)) + "_" + std::to_string(info.param.d_kv);
    });

TEST(CudaLimitsTest, HalfPrecisionRefusesHeadsThatItCannotDo) {
  const auto checkpoint = WriteAndLoad("odd_heads", TinyHalfShape(12));
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const auto weights = DeviceWeights::Load(*checkpoint, dtype);
    ASSERT_FALSE(weights);
    EXPECT_EQ(weights.error().code, ErrorCode::kUnsupported);
    for (const char* word : {"d_kv", "multiple of 8", "12"}) {
      EXPECT_NE(weights.error().message.find(word), std::string::npos) << weights.error().message;
    }
  }
  EXPECT_TRUE(DeviceWeights::Load(*checkpoint, DType::kFloat32));
}

// Models whose kernels need different amounts of shared memory, so that what one load allows a
// kernel would be too little for another.
TEST(CudaLoadTest, LargeEnginesThatLoadAtOnceGenerateAsOneThatLoadsAlone) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 3;
  std::vector<std::shared_ptr<const DeviceWeights>> weights;
  for (const int32_t width : {1024, 4096}) {
    weights.push_back(LoadWideWeights({.d_model = 1024, .d_ff = width}));
  }
  const auto load_and_generate = [](const std::shared_ptr<const DeviceWeights>& model) {
    return DrivenEngine(model, TinyEngineOptions()).Generate({TinyRequest(3, 50, 12)})[0].tokens;
  };
  const std::vector<std::vector<int32_t>> alone = {load_and_generate(weights[0]),
                                                   load_and_generate(weights[1])};
  std::vector<std::future<void>> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.push_back(std::async(std::launch::async, [&, which = i % 2] {
      for (int round = 0; round < kRounds; ++round) {
        EXPECT_EQ(load_and_generate(weights[which]), alone[which]);
      }
    }));
  }
  for (std::future<void>& thread : threads) EXPECT_NO_THROW(thread.get());
}

// An engine whose encoder's products can be made to fail.
class CudaEncodeFaultTest : public testing::Test {
 protected:
  static CudaEngineOptions With(const FaultyCublasLt& lt) {
    CudaEngineOptions options = TinyEngineOptions();
    options.cublas_lt = lt.get();
    return options;
  }

  // A failed encode says `word`, and what comes after is as if it had not been.
  void ExpectFailsAlone(FaultyCublasLt::Fault fault, const char* word) {
    const std::vector<DriverSequence> truth = engine_.Generate(SixRequests(10));
    lt_.FailProducts(1, fault);
    const auto sequences = ValueOf(engine_.driver().Encode(SixRequests(10)));
    for (const DriverSequence& sequence : sequences) {
      ASSERT_FALSE(sequence.status);
      EXPECT_EQ(sequence.status.error().code, ErrorCode::kInternal);
      EXPECT_NE(sequence.status.error().message.find(word), std::string::npos)
          << sequence.status.error().message;
    }
    EXPECT_TRUE(engine_.engine().Health());
    const std::vector<DriverSequence> after = engine_.Generate(SixRequests(10));
    for (size_t i = 0; i < truth.size(); ++i) EXPECT_EQ(after[i].tokens, truth[i].tokens);
  }

  FaultyCublasLt lt_;
  DrivenEngine engine_{LoadWeights(*WriteAndLoad("faults", TinyHalfShape(16)), DType::kFloat32),
                       With(lt_)};
};

TEST_F(CudaEncodeFaultTest, AProductThatFailsFailsItsEncodeAlone) {
  ExpectFailsAlone(FaultyCublasLt::Fault::kStatus, "cublasLtMatmul");
}

TEST_F(CudaEncodeFaultTest, AnExceptionFailsItsEncodeAlone) {
  ExpectFailsAlone(FaultyCublasLt::Fault::kBadAlloc, "out of memory");
}

// Keys and values of 5 layers: 4 and 1 at a time for 512 tokens, all for 256.
TEST(CudaTuningTest, EveryProductOfAnEncodeWasTuned) {
  const auto weights = LoadWideWeights({.num_heads = 2, .num_layers = 2, .num_decoder_layers = 5});
  const FaultyCublasLt lt;
  CudaEngineOptions options = TinyEngineOptions();
  options.max_active_sequences = 1;
  options.max_source_tokens = 512;
  options.cublas_lt = lt.get();
  DrivenEngine engine(weights, options);
  const int64_t heuristics = lt.heuristics();
  EXPECT_GT(heuristics, 0);
  for (const int32_t tokens : {512, 256}) engine.Generate({TinyRequest(1, tokens, 2)});
  EXPECT_EQ(lt.heuristics(), heuristics);
}

TEST(CudaDeviceTest, TheDeviceRunsThisBuild) {
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  const Status status = CheckDeviceKernels();
  EXPECT_TRUE(status) << status.error().message;
}

class CudaMemoryTest : public testing::Test {
 protected:
  // Creates an engine that cannot be, twice: what is loaded lazily stays after the first time.
  void ExpectRefusedWithoutATrace(const CudaEngineOptions& options, const char* name) {
    size_t before = 0;
    for (int i = 0; i < 2; ++i) {
      before = FreeBytes();
      const auto engine = CudaEngine::Create(weights_, options, &notifier_);
      ASSERT_FALSE(engine);
      EXPECT_EQ(engine.error().code, ErrorCode::kInvalidArgument) << engine.error().message;
      EXPECT_NE(engine.error().message.find(name), std::string::npos) << engine.error().message;
    }
    EXPECT_EQ(FreeBytes(), before);
    DrivenEngine after(weights_, TinyEngineOptions());
    EXPECT_EQ(after.Generate({TinyRequest(1, 20, 5)})[0].tokens.size(), 5U);
  }

  Notifier notifier_;
  std::shared_ptr<const DeviceWeights> weights_ =
      LoadWeights(*WriteAndLoad("memory", TinyHalfShape(16)), DType::kFloat32);
};

TEST_F(CudaMemoryTest, AKvCacheThatDoesNotFitIsNamed) {
  CudaEngineOptions options = TinyEngineOptions();
  options.kv_cache_bytes = int64_t{1} << 42;
  ExpectRefusedWithoutATrace(options, "'kv_cache_bytes'");
}

TEST_F(CudaMemoryTest, AKvCacheTooSmallForOneSequenceIsNamed) {
  CudaEngineOptions options = TinyEngineOptions();
  options.kv_cache_bytes = 1000;
  ExpectRefusedWithoutATrace(options, "'kv_cache_bytes'");
}

TEST_F(CudaMemoryTest, AShareTooSmallForOneBlockNamesTheOption) {
  CudaEngineOptions options = TinyEngineOptions();
  options.kv_cache_limit = 1000;
  ExpectRefusedWithoutATrace(options, "'kv_cache_bytes' is not set");
}

// Another model's load may have taken memory since the share was computed.
TEST_F(CudaMemoryTest, TheDefaultKvCacheLeavesPartOfWhatIsFree) {
  constexpr int64_t kFree = int64_t{1} << 30;
  const auto weights = LoadWideWeights({.num_heads = 16, .num_decoder_layers = 8});
  const DeviceBuffer taken =
      ValueOf(DeviceBuffer::Allocate(static_cast<int64_t>(FreeBytes()) - kFree));
  CudaEngineOptions options = TinyEngineOptions();
  options.max_active_sequences = 32;
  options.max_source_tokens = 1024;
  DrivenEngine engine(weights, options);
  constexpr int64_t kBlockBytes = int64_t{8} * 2 * 16 * 16 * 64 * 2;
  const int64_t pool = engine.engine().info().total_blocks * kBlockBytes;
  EXPECT_LE(pool, kFree * 6 / 10);
  EXPECT_GE(pool, kFree * 5 / 10);
  EXPECT_EQ(engine.Generate({TinyRequest(1, 20, 5)})[0].tokens.size(), 5U);
}

TEST_F(CudaMemoryTest, WeightsThatDoNotFitNameTheOptions) {
  // Some 70 MB in bfloat16.
  const auto checkpoint = std::make_shared<MemoryCheckpoint>(WideOptions(
      {.d_model = 1024, .num_heads = 16, .d_ff = 2048, .num_layers = 2, .num_decoder_layers = 2}));
  EngineOptions options;
  options.kind = EngineKind::kCuda;
  options.max_active_sequences = 1;
  options.max_source_tokens = 16;
  options.max_decoder_tokens = 16;
  const auto load = [&] { return MakeCudaEngineFactory(checkpoint)->Create(options, &notifier_); };
  {
    const DeviceBuffer taken =
        ValueOf(DeviceBuffer::Allocate(static_cast<int64_t>(FreeBytes()) - (int64_t{24} << 20)));
    const auto engine = load();
    ASSERT_FALSE(engine);
    EXPECT_EQ(engine.error().code, ErrorCode::kInvalidArgument) << engine.error().message;
    for (const char* word : {"weights", "out of memory", "'weights_dtype'", "'kv_cache_bytes'"}) {
      EXPECT_NE(engine.error().message.find(word), std::string::npos) << engine.error().message;
    }
  }
  const auto engine = load();
  EXPECT_TRUE(engine) << engine.error().message;
}

TEST_F(CudaMemoryTest, BuffersThatDoNotFitNameTheOptions) {
  CudaEngineOptions options = TinyEngineOptions();
  // What the KV cache leaves is less than the 32 MiB that cuBLASLt works in.
  options.kv_cache_bytes = static_cast<int64_t>(FreeBytes()) - (int64_t{16} << 20);
  ExpectRefusedWithoutATrace(options, "'max_active_sequences'");
}

TEST_F(CudaMemoryTest, AnEngineLeavesNothingBehind) {
  std::vector<size_t> free_bytes;
  for (int i = 0; i < 4; ++i) {
    {
      DrivenEngine engine(weights_, TinyEngineOptions());
      engine.Generate(SixRequests(5));
    }
    free_bytes.push_back(FreeBytes());
  }
  // The first ones warm up what CUDA and cuBLASLt keep for the process.
  EXPECT_EQ(free_bytes[3], free_bytes[2]);
}

}  // namespace
}  // namespace seq2seq
