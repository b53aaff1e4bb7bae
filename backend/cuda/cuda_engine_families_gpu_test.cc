// Families of encoder-decoders as parameters of the engine, beside a plain model in double
// precision: random models with the norms, positions, biases and activations that a family has.
#include <algorithm>
#include <cmath>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "backend/cuda/cuda_engine_test_util.h"
#include "backend/testing/memory_checkpoint.h"
#include "backend/testing/reference_model.h"

namespace seq2seq {
namespace {

constexpr int32_t kNewTokens = 20;
constexpr int32_t kEos = 1;
constexpr float kLogprobTolerance = 1e-4F;

struct Family {
  const char* name;
  MemoryCheckpointOptions (*options)();

  friend void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }
};

// Heads that all kernels of half types take; one stack is deeper than the other.
MemoryCheckpointOptions Shape() {
  MemoryCheckpointOptions options;
  options.spec.vocab_size = 211;
  options.spec.d_model = 72;
  options.spec.head_dim = 64;
  options.spec.encoder = {.layers = 2, .heads = 2, .d_ff = 104};
  options.spec.decoder = {.layers = 3, .heads = 2, .d_ff = 136};
  options.spec.max_positions = 64;
  return options;
}

MemoryCheckpointOptions T5() {
  MemoryCheckpointOptions options = Shape();
  options.spec.relative_positions = {.buckets = 8, .max_distance = 20};
  options.spec.activation = Activation::kGeluTanh;
  options.spec.gated_ffn = true;
  return options;
}

MemoryCheckpointOptions LayerNormShape() {
  MemoryCheckpointOptions options = Shape();
  options.spec.norm = NormKind::kLayer;
  options.spec.norm_epsilon = 1e-5F;
  options.spec.positions = PositionKind::kTable;
  options.spec.attention_scale = 0.125F;
  options.spec.tied_head = true;
  options.spec.head_input_scale = 0.3F;  // so that tied logits are no larger than others
  options.biases = true;
  return options;
}

MemoryCheckpointOptions Bart() {
  MemoryCheckpointOptions options = LayerNormShape();
  options.spec.norm_placement = NormPlacement::kPost;
  options.spec.final_norm = false;
  options.spec.embedding_norm = true;
  options.spec.position_offset = 2;
  options.spec.activation = Activation::kGelu;
  return options;
}

MemoryCheckpointOptions Mbart() {
  MemoryCheckpointOptions options = Bart();
  options.spec.norm_placement = NormPlacement::kPre;
  options.spec.final_norm = true;
  options.spec.embedding_scale = std::sqrt(72.0F);
  return options;
}

MemoryCheckpointOptions Marian() {
  MemoryCheckpointOptions options = LayerNormShape();
  options.spec.norm_placement = NormPlacement::kPost;
  options.spec.final_norm = false;
  options.spec.embedding_scale = std::sqrt(72.0F);
  options.spec.activation = Activation::kSilu;
  return options;
}

MemoryCheckpointOptions M2m100() {
  MemoryCheckpointOptions options = LayerNormShape();
  options.spec.embedding_scale = std::sqrt(72.0F);
  options.spec.position_offset = 2;
  options.spec.activation = Activation::kRelu;
  return options;
}

constexpr Family kFamilies[] = {
    {"T5", T5}, {"Bart", Bart}, {"Mbart", Mbart}, {"Marian", Marian}, {"M2m100", M2m100},
};

std::vector<DriverRequest> Requests() {
  std::vector<DriverRequest> requests;
  for (int32_t i = 0; i < 5; ++i) {
    DriverRequest& request = requests.emplace_back();
    for (int32_t k = 0; k < 1 + 11 * i; ++k) request.source.push_back(2 + (i * 13 + k * k) % 200);
    // One of several tokens, which takes as many passes.
    for (int32_t k = 0; k < i; ++k) request.prefix.push_back(3 + 7 * k);
    request.min_new_tokens = kNewTokens;
    request.max_new_tokens = kNewTokens;
    request.sampling.return_logprobs = true;
  }
  return requests;
}

// What greedy decoding chooses, by logits behind each prefix.
struct Truth {
  std::vector<int32_t> tokens;
  std::vector<double> logprobs;
};

Truth Decode(const ReferenceModel& model, const DriverRequest& request) {
  Truth truth;
  const ReferenceModel::Rows encoded = model.Encode(request.source);
  std::vector<int32_t> input = request.prefix;
  for (int32_t i = 0; i < request.max_new_tokens; ++i) {
    const ReferenceModel::Row logits = model.Logits(encoded, input);
    ReferenceModel::Row allowed = logits;
    if (i < request.min_new_tokens) allowed[kEos] = -INFINITY;
    const auto token = static_cast<int32_t>(std::ranges::max_element(allowed) - allowed.begin());
    truth.tokens.push_back(token);
    truth.logprobs.push_back(LogProbability(logits, token));
    input.push_back(token);
  }
  return truth;
}

CudaEngineOptions OptionsFor(int32_t slots) {
  CudaEngineOptions options;
  options.max_active_sequences = slots;
  options.max_source_tokens = 60;
  options.max_decoder_tokens = 30;
  return options;
}

class FamilyTest : public testing::TestWithParam<Family> {
 protected:
  MemoryCheckpoint checkpoint_{GetParam().options()};
  ReferenceModel model_{checkpoint_};
};

TEST_P(FamilyTest, Float32ChoosesTheTokensOfDoublePrecision) {
  DrivenEngine engine(LoadWeights(checkpoint_, DType::kFloat32), OptionsFor(5));
  const std::vector<DriverRequest> requests = Requests();
  const std::vector<DriverSequence> got = engine.Generate(requests);
  for (size_t row = 0; row < requests.size(); ++row) {
    const Truth truth = Decode(model_, requests[row]);
    EXPECT_EQ(got[row].tokens, truth.tokens) << row;
    ASSERT_EQ(got[row].logprobs.size(), truth.logprobs.size());
    for (size_t i = 0; i < truth.logprobs.size(); ++i) {
      EXPECT_NEAR(got[row].logprobs[i], truth.logprobs[i], kLogprobTolerance) << row << ", " << i;
    }
    EXPECT_EQ(engine.Generate({requests[row]})[0].tokens, truth.tokens) << row << " alone";
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyTest, testing::ValuesIn(kFamilies),
                         [](const auto& info) { return std::string(info.param.name); });

using FamilyAndFormat = std::tuple<Family, DType>;

class HalfFamilyTest : public testing::TestWithParam<FamilyAndFormat> {};

// A greedy choice's log-probability is the largest: it may be compared whoever won it. Batches of
// few rows and of many, which other kernels compute. The bound: as in HalfPrecisionTest of
// cuda_engine_gpu_test.cc.
TEST_P(HalfFamilyTest, LogProbabilitiesAreNearThoseOfDoublePrecision) {
  const auto& [family, dtype] = GetParam();
  const MemoryCheckpoint checkpoint(family.options());
  const ReferenceModel model(checkpoint);
  const double bound = 64.0 * (dtype == DType::kFloat16 ? 0x1p-10 : 0x1p-7);
  constexpr int32_t kMostRows = 80;
  DrivenEngine engine(LoadWeights(checkpoint, dtype), OptionsFor(kMostRows));
  std::vector<DriverRequest> requests = Requests();
  std::vector<double> truth;
  for (DriverRequest& request : requests) {
    const auto forced = static_cast<int32_t>(request.source.size() % 7);
    request.max_new_tokens = forced + 1;
    const Truth whole = Decode(model, request);
    request.prefix.insert(request.prefix.end(), whole.tokens.begin(),
                          whole.tokens.begin() + forced);
    request.min_new_tokens = request.max_new_tokens = 1;
    truth.push_back(whole.logprobs[forced]);
  }
  double worst = 0.0;
  for (const int32_t rows : {1, 5, 40, kMostRows}) {
    std::vector<DriverRequest> batch;
    for (int32_t row = 0; row < rows; ++row) batch.push_back(requests[row % requests.size()]);
    const std::vector<DriverSequence> got = engine.Generate(batch);
    for (int32_t row = 0; row < rows; ++row) {
      ASSERT_TRUE(std::isfinite(got[row].logprobs[0])) << rows << " rows";
      worst = std::max(worst, std::abs(got[row].logprobs[0] - truth[row % requests.size()]));
    }
  }
  RecordProperty("worst_logprob_difference", std::to_string(worst));
  EXPECT_LE(worst, bound);
}

INSTANTIATE_TEST_SUITE_P(Families, HalfFamilyTest,
                         testing::Combine(testing::ValuesIn(kFamilies),
                                          testing::Values(DType::kFloat16, DType::kBFloat16)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" +
                                  std::string(DTypeName(std::get<1>(info.param)));
                         });

struct Refusal {
  const char* name;
  Family family;
  void (*change)(MemoryCheckpointOptions*);
  const char* word;

  friend void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name; }
};

constexpr Refusal kRefusals[] = {
    {"rms_post",
     {"T5", T5},
     [](MemoryCheckpointOptions* o) { o->spec.norm_placement = NormPlacement::kPost; },
     "RMSNorm behind sub-layers"},
    {"rms_without_final",
     {"T5", T5},
     [](MemoryCheckpointOptions* o) { o->spec.final_norm = false; },
     "RMSNorm without a final norm"},
    {"rms_with_table",
     {"T5", T5},
     [](MemoryCheckpointOptions* o) { o->spec.positions = PositionKind::kTable; },
     "RMSNorm with a table of positions"},
    {"rms_of_embeddings",
     {"T5", T5},
     [](MemoryCheckpointOptions* o) { o->spec.embedding_norm = true; },
     "RMSNorm of embeddings"},
    {"rms_scaled",
     {"T5", T5},
     [](MemoryCheckpointOptions* o) { o->spec.embedding_scale = 8.0F; },
     "RMSNorm with scaled embeddings"},
    {"rms_biased",
     {"T5", T5},
     [](MemoryCheckpointOptions* o) { o->biases = true; },
     "RMSNorm with a bias"},
    {"layer_relative",
     {"Bart", Bart},
     [](MemoryCheckpointOptions* o) {
       o->spec.positions = PositionKind::kRelativeBuckets;
       o->spec.relative_positions = {8, 20};
     },
     "LayerNorm with relative positions"},
    {"layer_pre_without_final",
     {"M2m100", M2m100},
     [](MemoryCheckpointOptions* o) { o->spec.final_norm = false; },
     "LayerNorm before sub-layers without a final norm"},
    {"layer_post_with_final",
     {"Bart", Bart},
     [](MemoryCheckpointOptions* o) { o->spec.final_norm = true; },
     "LayerNorm behind sub-layers with a final norm"},
};

class RefusalTest : public testing::TestWithParam<Refusal> {};

TEST_P(RefusalTest, NamesThePropertyThatNoKernelHas) {
  MemoryCheckpointOptions options = GetParam().family.options();
  GetParam().change(&options);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  const auto weights = DeviceWeights::Load(MemoryCheckpoint(options), DType::kFloat32);
  ASSERT_FALSE(weights);
  EXPECT_EQ(weights.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(weights.error().message.find(GetParam().word), std::string::npos)
      << weights.error().message;
}

INSTANTIATE_TEST_SUITE_P(Properties, RefusalTest, testing::ValuesIn(kRefusals),
                         [](const auto& info) { return std::string(info.param.name); });

// A position beyond the table would read what is not there.
TEST(PositionLimitTest, OptionsBeyondTheTableAreRefusedByTheirNames) {
  const MemoryCheckpoint checkpoint(Bart());
  const auto weights = LoadWeights(checkpoint, DType::kFloat32);
  for (const auto& [name, member] :
       {std::pair{"max_source_tokens", &CudaEngineOptions::max_source_tokens},
        std::pair{"max_decoder_tokens", &CudaEngineOptions::max_decoder_tokens}}) {
    CudaEngineOptions options = OptionsFor(1);
    Notifier notifier;
    options.*member = 64;
    EXPECT_TRUE(CudaEngine::Create(weights, options, &notifier));
    options.*member = 65;
    const auto engine = CudaEngine::Create(weights, options, &notifier);
    ASSERT_FALSE(engine);
    EXPECT_EQ(engine.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(engine.error().message.find(name), std::string::npos) << engine.error().message;
  }
}

}  // namespace
}  // namespace seq2seq
