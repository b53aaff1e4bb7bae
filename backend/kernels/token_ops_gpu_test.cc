// The encoder's per-token kernels against arithmetic in double.
#include "backend/kernels/token_ops.h"

#include "backend/kernels/kernel_test_util.h"

namespace seq2seq::kernels {
namespace {

std::string Name(ElementType type, const char* what) {
  return std::string(TypeName(type)) + " " + what;
}

void TestEmbed(ElementType type, int32_t width) {
  constexpr int32_t kVocabulary = 30;
  const std::vector<int32_t> ids = {3, 29, 0, 3, 17};
  const auto tokens = static_cast<int32_t>(ids.size());
  const DeviceValues embedding(type, RandomValues(kVocabulary * width, 1, 3.0));
  const DeviceRecords<int32_t> device_ids(ids);
  const DeviceValues values(ElementType::kFloat32, Poison(tokens * width));
  RunOnStream([&](cudaStream_t stream) {
    return LaunchEmbedTokens(type, embedding.data(), device_ids.data(), tokens, width,
                             values.floats(), {stream});
  });
  std::vector<double> expected;
  for (const int32_t id : ids) {
    for (int32_t k = 0; k < width; ++k) expected.push_back(embedding.rounded()[id * width + k]);
  }
  CheckClose(values.Read(), expected, 0.0, Name(type, "embedding"));
}

void TestActivate(ElementType type, ActivationKind kind, bool gated, int32_t width) {
  constexpr int32_t kTokens = 7;
  const int32_t input_width = gated ? 2 * width : width;
  const DeviceValues input(type, RandomValues(kTokens * input_width, 3, 2.0));
  const DeviceValues output(type, Poison(kTokens * width));
  ActivateTokensArgs args;
  args.input = input.data();
  args.output = output.data();
  args.tokens = kTokens;
  args.width = width;
  args.kind = kind;
  args.gated = gated;
  RunOnStream([&](cudaStream_t stream) { return LaunchActivateTokens(type, args, {stream}); });
  std::vector<double> expected;
  for (int32_t token = 0; token < kTokens; ++token) {
    for (int32_t k = 0; k < width; ++k) {
      const double activated = ExactActivation(kind, input.rounded()[token * input_width + k]);
      expected.push_back(gated ? activated * input.rounded()[token * input_width + width + k]
                               : activated);
    }
  }
  CheckClose(output.Read(), expected, Tolerance(type), Name(type, gated ? "gated" : "activation"));
}

void TestScatter(ElementType type, int32_t first_layer, int32_t layers) {
  const KvLayout layout(3, 3, 16);
  const int32_t inner = layout.heads * layout.head_dim;
  const int32_t width = layers * 2 * inner;
  // More tokens than a block of threads has, some of which go nowhere.
  std::vector<int32_t> places;
  for (int32_t i = 0; i < 21; ++i) places.push_back(i % 5 == 2 ? -1 : i * 17 % 48);
  const auto tokens = static_cast<int32_t>(places.size());
  const DeviceValues source(type, RandomValues(tokens * width, 4));
  const DeviceValues pool(type, Poison(9 * layout.BlockStride()));
  const DeviceRecords<int32_t> device_places(places);
  ScatterKeyValuesArgs args;
  args.key_values = source.data();
  args.layers = layers;
  args.places = device_places.data();
  args.tokens = tokens;
  args.pool = pool.data();
  args.layout = layout;
  args.layer_offset = first_layer * layout.LayerStride();
  RunOnStream([&](cudaStream_t stream) { return LaunchScatterKeyValues(type, args, {stream}); });
  const std::vector<double> got = pool.Read();
  std::vector<double> actual, expected;
  for (int32_t token = 0; token < tokens; ++token) {
    if (places[token] < 0) continue;
    for (int32_t i = 0; i < width; ++i) {
      const int64_t at = places[token] / kBlockTokens * layout.BlockStride() +
                         (first_layer + i / (2 * inner)) * layout.LayerStride() +
                         i / inner % 2 * layout.ValueOffset() +
                         i % inner / layout.head_dim * layout.HeadStride() +
                         places[token] % kBlockTokens * layout.head_dim + i % layout.head_dim;
      actual.push_back(got[at]);
      expected.push_back(source.rounded()[token * width + i]);
    }
  }
  CheckClose(actual, expected, 0.0, Name(type, "scatter"));
  int32_t written = 0;
  for (const double value : got) written += std::isnan(value) ? 0 : 1;
  Check(written == static_cast<int32_t>(expected.size()),
        Name(type, "scatter writes nothing else"));
}

class TokenOpsTest : public testing::TestWithParam<ElementType> {};

// Widths below and above one thread block, and none that a vector divides.
TEST_P(TokenOpsTest, Embedding) {
  for (const int32_t width : {8, 64, 1000, 1536}) TestEmbed(GetParam(), width);
}

TEST_P(TokenOpsTest, Activations) {
  for (const ActivationKind kind : {ActivationKind::kRelu, ActivationKind::kGelu,
                                    ActivationKind::kGeluTanh, ActivationKind::kSilu}) {
    TestActivate(GetParam(), kind, false, 40);
    TestActivate(GetParam(), kind, true, 40);
  }
  // Several blocks of threads, the last of them not full.
  TestActivate(GetParam(), ActivationKind::kSilu, false, 4104);
  TestActivate(GetParam(), ActivationKind::kSilu, true, 4104);
}

TEST_P(TokenOpsTest, ScatterOfKeysAndValues) {
  TestScatter(GetParam(), 1, 1);
  TestScatter(GetParam(), 0, 3);
  TestScatter(GetParam(), 1, 2);
}

INSTANTIATE_TEST_SUITE_P(Types, TokenOpsTest, testing::ValuesIn(kElementTypes), TypeParamName);

}  // namespace
}  // namespace seq2seq::kernels
