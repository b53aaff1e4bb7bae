// Sampled tokens against the sampler of the host, over the filters' thresholds and ties.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "backend/engine/sampling.h"
#include "backend/kernels/choose_token.h"
#include "backend/kernels/kernel_test_util.h"
#include "backend/kernels/projection.h"
#include "backend/kernels/step_state.h"

namespace seq2seq::kernels {
namespace {

constexpr int32_t kWidth = 32;  // of the embeddings
constexpr int32_t kDraws = 3;   // of each row
constexpr int32_t kForever = 1 << 30;
const std::vector<int32_t> kEos = {1, 5};

struct Row {
  std::vector<float> logits;
  SamplingOptions options;
  bool bans_eos = false;
};

float Cleaned(float logit) { return logit > -INFINITY ? std::min(logit, FLT_MAX) : -INFINITY; }

bool IsEos(int32_t token) { return std::ranges::find(kEos, token) != kEos.end(); }

// What the head says of a row's logits.
void AppendParts(const Row& row, std::vector<LogitsPart>* parts) {
  const auto vocabulary = static_cast<int32_t>(row.logits.size());
  for (int32_t first = 0; first < vocabulary; first += kTileOutputs) {
    LogitsPart part{-INFINITY, INT32_MAX, -INFINITY, 1.0F};
    for (int32_t i = first; i < std::min(vocabulary, first + kTileOutputs); ++i) {
      const float logit = Cleaned(row.logits[i]);
      part.max = std::max(part.max, logit);
      if ((row.bans_eos && IsEos(i)) || !(logit > part.best)) continue;
      part.best = logit;
      part.best_index = i;
    }
    parts->push_back(part);
  }
}

SlotState StateOf(const Row& row) {
  SlotState state;
  state.seed = row.options.seed;
  state.generated = 2;
  state.min_new_tokens = row.bans_eos ? kForever : 0;
  state.max_new_tokens = kForever;
  state.do_sample = 1;
  state.top_k = row.options.top_k;
  state.temperature = row.options.temperature;
  state.top_p = row.options.top_p;
  state.min_p = row.options.min_p;
  state.typical_p = row.options.typical_p;
  return state;
}

// kDraws tokens of each row, [draw][row], in as many launches.
std::vector<RowOutcome> Draw(const std::vector<Row>& rows) {
  const auto count = static_cast<int32_t>(rows.size());
  const auto vocabulary = static_cast<int32_t>(rows[0].logits.size());
  std::vector<int32_t> slots;
  std::vector<SlotState> states;
  std::vector<RowInfo> infos;
  std::vector<LogitsPart> parts;
  std::vector<double> logits;
  for (const Row& row : rows) {
    const auto slot = static_cast<int32_t>(slots.size());
    slots.push_back(slot);
    states.push_back(StateOf(row));
    infos.push_back({slot, 0, 1,
                     RowInfo::kActive | RowInfo::kChoose | RowInfo::kSample |
                         (row.bans_eos ? RowInfo::kBanEos : 0)});
    AppendParts(row, &parts);
    logits.insert(logits.end(), row.logits.begin(), row.logits.end());
  }
  const ElementType type = ElementType::kFloat32;
  const DeviceRecords<StepHeader> header({StepHeader{count, 0, 1, 0, kDraws}});
  const DeviceRecords<int32_t> device_slots(slots);
  const DeviceRecords<SlotState> device_states(states);
  const DeviceRecords<RowInfo> device_infos(infos);
  const DeviceRecords<int32_t> rings{std::vector<int32_t>(count)};
  const DeviceRecords<int32_t> eos(kEos);
  const DeviceRecords<LogitsPart> device_parts(parts);
  const DeviceRecords<RowOutcome> outcomes{std::vector<RowOutcome>(size_t{kDraws} * count)};
  const DeviceValues device_logits(type, logits);
  const DeviceValues embedding(type, std::vector<double>(int64_t{vocabulary} * kWidth));
  const DeviceValues floats(type, std::vector<double>(3 * int64_t{count} * kWidth));
  ChooseTokenArgs args;
  args.pass.header = header.data();
  args.pass.row_slots = device_slots.data();
  args.pass.tables.states = device_states.data();
  args.pass.rows = device_infos.data();
  args.pass.rings = rings.data();
  args.pass.embedding = embedding.data();
  args.pass.norm_weight = embedding.floats();
  args.pass.epsilon = 1.0F;
  float* values = floats.floats();
  float* scaled = values + int64_t{count} * kWidth;
  float* sums = scaled + int64_t{count} * kWidth;
  args.pass.residual = {values, scaled, sums, 4, kWidth, count};
  args.pass.norm_scale = sums + int64_t{count} * 4;
  args.parts = device_parts.data();
  args.tiles = TileCount(vocabulary);
  args.logits = device_logits.floats();
  args.vocabulary = vocabulary;
  args.eos_tokens = eos.data();
  args.eos_count = static_cast<int32_t>(kEos.size());
  args.outcomes = outcomes.data();
  args.outcome_stride = count;
  RunOnStream([&](cudaStream_t stream) {
    cudaError_t error = cudaSuccess;
    for (int32_t draw = 0; draw < kDraws && error == cudaSuccess; ++draw) {
      error = LaunchChooseTokens(type, args, count, {stream});
    }
    return error;
  });
  return outcomes.Read();
}

std::string NameOf(const Row& row) {
  const SamplingOptions& options = row.options;
  return "vocabulary " + std::to_string(row.logits.size()) + " top_k " +
         std::to_string(options.top_k) + " top_p " + std::to_string(options.top_p) + " min_p " +
         std::to_string(options.min_p) + " typical_p " + std::to_string(options.typical_p) +
         " temperature " + std::to_string(options.temperature) +
         (row.bans_eos ? " EOS banned" : "");
}

void ExpectHostsTokens(const std::vector<Row>& rows, const std::string& name) {
  const std::vector<RowOutcome> outcomes = Draw(rows);
  Sampler sampler(static_cast<int32_t>(rows[0].logits.size()));
  for (size_t r = 0; r < rows.size(); ++r) {
    const Row& row = rows[r];
    const std::vector<int32_t> banned = row.bans_eos ? kEos : std::vector<int32_t>{};
    for (uint64_t draw = 0; draw < kDraws; ++draw) {
      SamplingOptions options = row.options;
      options.do_sample = true;
      const int32_t expected = sampler.Choose({row.logits, banned, options, 2 + draw}).token;
      EXPECT_EQ(outcomes[draw * rows.size() + r].token, expected)
          << name << ", row " << r << ", draw " << draw << ": " << NameOf(row);
      if (IsEos(expected)) break;
    }
  }
}

// Each filter alone, some and all together; k of 1, around the number of tiles and of tokens.
std::vector<SamplingOptions> Filters(int32_t vocabulary) {
  const int32_t tiles = TileCount(vocabulary);
  std::vector<SamplingOptions> all;
  for (const int32_t top_k :
       {0, 1, 3, tiles, tiles + 1, vocabulary - 1, vocabulary, vocabulary + 7}) {
    all.push_back({.top_k = top_k});
    all.push_back({.top_k = top_k, .top_p = 0.8F});
    all.push_back({.top_k = top_k, .typical_p = 0.7F});
    all.push_back({.top_k = top_k, .top_p = 0.95F, .min_p = 0.02F, .typical_p = 0.9F});
  }
  for (const float part : {1e-6F, 0.1F, 0.25F, 0.5F, 0.75F, 0.999999F}) {
    all.push_back({.top_p = part});
    all.push_back({.min_p = part});
    all.push_back({.typical_p = part});
    all.push_back({.top_k = 40, .top_p = part, .min_p = 0.01F});
  }
  all.push_back({.min_p = 1.0F});
  return all;
}

using Logits = std::function<std::vector<float>(int32_t vocabulary, uint64_t seed)>;

// Normal numbers changed by `change`(number, token).
Logits Normal(double scale, const std::function<double(double, int32_t)>& change) {
  return [=](int32_t vocabulary, uint64_t seed) {
    std::vector<float> logits;
    for (const double value : RandomValues(vocabulary, seed, scale)) {
      const auto token = static_cast<int32_t>(logits.size());
      logits.push_back(static_cast<float>(change(value, token)));
    }
    return logits;
  };
}

double Same(double value, int32_t) { return value; }

struct NamedLogits {
  const char* name;
  Logits logits;
};

// Logits whose thresholds are found in different ways.
std::vector<NamedLogits> Distributions() {
  return {
      {"Spread", Normal(2.5, Same)},
      {"Peaked",
       Normal(2.5, [](double x, int32_t token) { return x + (token % 70 == 6 ? 12 : 0); })},
      {"Narrow", Normal(1e-3, [](double x, int32_t) { return x + 3; })},
      {"Tiny", Normal(1e-30, Same)},
      {"Huge", Normal(1e4, Same)},
      {"Coarse", Normal(2.5, [](double x, int32_t) { return std::round(2 * x) / 2; })},
      {"NarrowAndCoarse", Normal(1.0, [](double x, int32_t) { return std::round(x) / 256; })},
      {"Equal", Normal(1.0, [](double, int32_t) { return -7.0; })},
      {"Zeros", Normal(1.0, [](double x, int32_t) { return x < 0 ? 0.0 : -0.0; })},
      {"FewFinite",
       Normal(1.0, [](double x,
                      int32_t token) { return token % 7 == 2 && token < 30 ? x : -INFINITY; })},
      {"OneFinite",
       Normal(1.0, [](double x, int32_t token) { return token == 8 ? x : -INFINITY; })},
      {"Broken", Normal(2.5,
                        [](double x, int32_t token) {
                          return token % 5 == 3 ? NAN : token == 7 ? -INFINITY : x;
                        })},
      {"Infinite", Normal(2.5,
                          [](double x, int32_t token) {
                            return token % 40 == 4 ? INFINITY : token % 40 == 7 ? NAN : x;
                          })},
  };
}

// Of Filters() one in `every`, another one for each kind of logits.
void TestFilters(int32_t vocabulary, const NamedLogits& kind, size_t every) {
  std::vector<Row> rows;
  const size_t first = std::string(kind.name).size() % every;
  const std::vector<SamplingOptions> filters = Filters(vocabulary);
  for (size_t index = first; index < filters.size(); index += every) {
    SamplingOptions options = filters[index];
    options.seed = 1000003ULL * index + (uint64_t{1} << 40);
    options.temperature = index % 3 == 0 ? 1.0F : 0.3F + 0.2F * static_cast<float>(index % 7);
    rows.push_back({kind.logits(vocabulary, index), options, index % 4 == 1});
  }
  ExpectHostsTokens(rows, kind.name);
}

class RowSamplerTest : public testing::TestWithParam<NamedLogits> {};

// A vocabulary smaller than a tile; one of a few tiles; one that is longer than the list of what
// top_k leaves.
TEST_P(RowSamplerTest, EqualsTheHostsSampler) {
  TestFilters(9, GetParam(), 1);
  TestFilters(211, GetParam(), 1);
  TestFilters(3001, GetParam(), 3);
}

TEST_P(RowSamplerTest, LargeVocabularyEqualsTheHostsSampler) { TestFilters(32'128, GetParam(), 2); }

INSTANTIATE_TEST_SUITE_P(All, RowSamplerTest, testing::ValuesIn(Distributions()),
                         [](const auto& info) { return info.param.name; });

// More tiles have the k-th largest logit than the list of tiles has room for.
TEST(ManyTilesTest, EqualsTheHostsSampler) {
  constexpr int32_t kVocabulary = 33'000;
  Row row{std::vector<float>(kVocabulary, 0.5F), {.top_k = 3, .top_p = 0.5F, .seed = 9}};
  row.logits[32'990] = 1.0F;
  ExpectHostsTokens({row}, "equal tiles");
}

// As large as vocabularies get; more tokens above the threshold than the list has room for.
TEST(LargestVocabularyTest, EqualsTheHostsSampler) {
  constexpr int32_t kVocabulary = 250'112;
  const std::vector<NamedLogits> kinds = Distributions();
  for (size_t k = 0; k < kinds.size(); k += 3) {
    const NamedLogits& kind = kinds[k];
    std::vector<Row> rows;
    for (const SamplingOptions& filters :
         std::vector<SamplingOptions>{{.top_k = 50, .top_p = 0.9F},
                                      {.top_k = 2000, .top_p = 0.99F},
                                      {.top_k = 5000},
                                      {.top_k = 200'000, .top_p = 0.9F},
                                      {.top_p = 0.9F},
                                      {.typical_p = 0.9F},
                                      {.min_p = 0.05F},
                                      {}}) {
      rows.push_back({kind.logits(kVocabulary, rows.size()), filters, false});
      rows.back().options.seed = 77 * rows.size();
    }
    ExpectHostsTokens(rows, kind.name);
  }
}

// A row's tokens don't depend on the rows beside it.
TEST(RowSamplerBatchTest, RowsAreIndependent) {
  constexpr int32_t kVocabulary = 3001;
  std::vector<Row> rows;
  for (const SamplingOptions& filters : Filters(kVocabulary)) {
    rows.push_back({Normal(2.5, Same)(kVocabulary, rows.size()), filters, false});
    rows.back().options.seed = rows.size();
  }
  const std::vector<RowOutcome> together = Draw(rows);
  for (size_t r = 0; r < rows.size(); r += 5) {
    const std::vector<RowOutcome> alone = Draw({rows[r]});
    for (size_t draw = 0; draw < kDraws; ++draw) {
      EXPECT_EQ(alone[draw].token, together[draw * rows.size() + r].token) << NameOf(rows[r]);
    }
  }
}

}  // namespace
}  // namespace seq2seq::kernels
