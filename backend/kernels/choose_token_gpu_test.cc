// Token choice against the sampler of the host, and what it does to slots against plain arithmetic.
#include "backend/kernels/choose_token.h"

#include <algorithm>
#include <cmath>

#include "backend/engine/sampling.h"
#include "backend/kernels/kernel_test_util.h"
#include "backend/kernels/step_state.h"

namespace seq2seq::kernels {
namespace {

constexpr int32_t kRows = 24;

LogitsPart PartOf(const std::vector<float>& logits, int32_t first, int32_t last,
                  const std::vector<int32_t>& banned) {
  LogitsPart part{-INFINITY, INT32_MAX, -INFINITY, 0.0F};
  for (int32_t i = first; i < last; ++i) {
    part.max = std::max(part.max, logits[i]);
    const bool is_banned = std::find(banned.begin(), banned.end(), i) != banned.end();
    if (!is_banned && logits[i] > part.best) {
      part.best = logits[i];
      part.best_index = i;
    }
  }
  for (int32_t i = first; i < last; ++i) part.sum_exp += std::exp(logits[i] - part.max);
  return part;
}

SamplingOptions OptionsOf(int32_t row, int32_t round) {
  SamplingOptions options;
  options.do_sample = row % 8 != 0;
  options.return_logprobs = true;
  options.seed = 1000003ULL * row + round * 77ULL + (uint64_t{1} << 40);
  options.temperature = 0.3F + 0.2F * static_cast<float>(row % 7);
  if (row % 8 == 2 || row % 8 == 6) options.top_k = 1 + row * 5;
  if (row % 8 == 3 || row % 8 == 6) options.top_p = 0.5F + 0.02F * static_cast<float>(row);
  if (row % 8 == 4 || row % 8 == 6) options.min_p = 0.01F * static_cast<float>(1 + row);
  if (row % 8 == 5 || row % 8 == 7) options.typical_p = 0.3F + 0.02F * static_cast<float>(row);
  return options;
}

// One step of kRows rows with random logits; row r is slot kRows - 1 - r.
void TestStep(int32_t vocabulary, int32_t round, bool coarse) {
  const std::vector<int32_t> eos = {1, 5};
  const int32_t tiles = TileCount(vocabulary);
  std::vector<RowInfo> infos(kRows);
  std::vector<SlotState> states(kRows);
  std::vector<LogitsPart> parts;
  std::vector<double> all_logits;
  std::vector<TokenChoice> expected(kRows);
  Sampler sampler(vocabulary);
  for (int32_t row = 0; row < kRows; ++row) {
    std::vector<float> logits;
    for (const double value : RandomValues(vocabulary, round * 100 + row, 2.5)) {
      // Coarse logits have many equals, which the filters must treat as the host does.
      logits.push_back(static_cast<float>(coarse ? std::round(value * 2.0) / 2.0 : value));
    }
    const int32_t slot = kRows - 1 - row;
    const SamplingOptions options = OptionsOf(row, round);
    SlotState& state = states[slot];
    state.seed = options.seed;
    state.position = 40 + row;
    state.generated = 3 + row;
    state.pending_count = row % 4;
    state.min_new_tokens = row % 3 == 0 ? 100 : 0;
    state.max_new_tokens = row % 5 == 0 ? 4 + row : 1000;
    state.do_sample = options.do_sample ? 1 : 0;
    state.top_k = options.top_k;
    state.temperature = options.temperature;
    state.top_p = options.top_p;
    state.min_p = options.min_p;
    state.typical_p = options.typical_p;
    state.return_logprobs = 1;
    state.score = -1.0F;
    const std::vector<int32_t> banned = row % 3 == 0 ? eos : std::vector<int32_t>{};
    infos[row] = {slot, 0, 1,
                  RowInfo::kActive | RowInfo::kChoose | (banned.empty() ? 0 : RowInfo::kBanEos) |
                      (options.do_sample ? RowInfo::kSample : 0)};
    for (int32_t t = 0; t < tiles; ++t) {
      parts.push_back(PartOf(logits, t * 16, std::min(vocabulary, t * 16 + 16), banned));
    }
    all_logits.insert(all_logits.end(), logits.begin(), logits.end());
    expected[row] =
        sampler.Choose({logits, banned, options, static_cast<uint64_t>(state.generated)});
  }
  const DeviceRecords<StepHeader> header({StepHeader{kRows, 0, 1, 1, 2}});
  const DeviceRecords<int32_t> ring({1});
  const DeviceRecords<RowInfo> device_infos(infos);
  const DeviceRecords<SlotState> device_states(states);
  const DeviceRecords<LogitsPart> device_parts(parts);
  const DeviceValues logits(ElementType::kFloat32, all_logits);
  const DeviceRecords<int32_t> device_eos(eos);
  const DeviceRecords<RowOutcome> outcomes(std::vector<RowOutcome>(2 * kRows));
  ChooseTokenArgs args;
  args.header = header.data();
  args.ring = ring.data();
  args.row_infos = device_infos.data();
  args.states = device_states.data();
  args.parts = device_parts.data();
  args.tiles = tiles;
  args.logits = logits.floats();
  args.vocabulary = vocabulary;
  args.eos_tokens = device_eos.data();
  args.eos_count = 2;
  args.outcomes = outcomes.data();
  args.outcome_stride = kRows;
  RunOnStream([&](cudaStream_t stream) { return LaunchChooseTokens(args, kRows, {stream}); });
  const std::vector<RowOutcome> got = outcomes.Read();
  const std::vector<SlotState> moved = device_states.Read();
  for (int32_t row = 0; row < kRows; ++row) {
    const RowOutcome& outcome = got[kRows + row];
    const SlotState& before = states[kRows - 1 - row];
    const SlotState& after = moved[kRows - 1 - row];
    const std::string name = "vocabulary " + std::to_string(vocabulary) + " round " +
                             std::to_string(round) + " row " + std::to_string(row);
    Check(outcome.token == expected[row].token, name + ": token " + std::to_string(outcome.token) +
                                                    ", host " +
                                                    std::to_string(expected[row].token));
    Check(std::abs(outcome.logprob - expected[row].logprob) < 1e-4F, name + ": log-probability");
    Check(std::abs(outcome.score + 1.0F - outcome.logprob) < 1e-5F, name + ": score");
    Check(outcome.slot == kRows - 1 - row && outcome.count == 1, name + ": slot and count");
    const bool is_eos = outcome.token == 1 || outcome.token == 5;
    const bool full = before.generated + 1 >= before.max_new_tokens;
    const RowStop stop = is_eos ? RowStop::kEos : full ? RowStop::kLength : RowStop::kNone;
    Check(outcome.stop == stop, name + ": stop");
    Check(after.position == before.position + std::max(before.pending_count, 1) &&
              after.generated == before.generated + 1 && after.pending_count == 0 &&
              after.next_token == outcome.token && after.ended == (stop == RowStop::kNone ? 0 : 1),
          name + ": the slot moved on");
  }
}

void TestIdleRows() {
  const DeviceRecords<StepHeader> header({StepHeader{2, 0, 1, 0, 2}});
  const DeviceRecords<int32_t> ring({0});
  const DeviceRecords<RowInfo> infos({RowInfo{7, 0, 0, 0}, RowInfo{3, 0, 0, 0}, RowInfo{}});
  const DeviceRecords<SlotState> states(std::vector<SlotState>(8));
  RowOutcome marked;
  marked.count = 99;
  const DeviceRecords<RowOutcome> outcomes(std::vector<RowOutcome>(3, marked));
  ChooseTokenArgs args;
  args.header = header.data();
  args.ring = ring.data();
  args.row_infos = infos.data();
  args.states = states.data();
  args.outcomes = outcomes.data();
  args.outcome_stride = 3;
  RunOnStream([&](cudaStream_t stream) { return LaunchChooseTokens(args, 3, {stream}); });
  const std::vector<RowOutcome> got = outcomes.Read();
  Check(got[0].slot == 7 && got[0].count == 0, "an ended slot brings no token");
  Check(got[1].slot == 3 && got[1].count == 0, "an ended slot brings no token");
  Check(got[2].count == 99, "rows beyond the plan's report nothing");
}

// A vocabulary smaller than a tile, one of some tiles, and one that a thread block goes through
// several times.
TEST(ChooseTokenTest, EqualsTheHostsSampler) {
  TestStep(9, 50, true);
  for (int round = 0; round < 4; ++round) {
    TestStep(211, round, round % 2 == 1);
    TestStep(3001, round, round % 2 == 1);
  }
}

TEST(ChooseTokenTest, LargeVocabularyEqualsTheHostsSampler) {
  for (int round = 0; round < 20; ++round) TestStep(32'128, round, round % 2 == 1);
}

TEST(ChooseTokenTest, IdleRowsReportNothing) { TestIdleRows(); }

}  // namespace
}  // namespace seq2seq::kernels
