// Token choice against the sampler of the host, and the bookkeeping of slots against plain
// arithmetic.
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

// A slot with three pending tokens and one without, over the three passes of a step.
void TestBeginPass(ElementType type) {
  constexpr int32_t kWidth = 48;
  constexpr int32_t kVocabulary = 10;
  constexpr int32_t kCapacity = 8;
  const DeviceRecords<SlotState> states(std::vector<SlotState>(4));
  const DeviceRecords<int32_t> pending(std::vector<int32_t>(4 * 5, -1));
  const DeviceRecords<int32_t> self_blocks(std::vector<int32_t>(4 * 2, -1));
  const DeviceRecords<int32_t> cross_blocks(std::vector<int32_t>(4 * 3, -1));
  const SlotTables tables{
      states.data(), pending.data(), self_blocks.data(), cross_blocks.data(), 5, 2, 3};
  BindUpload fresh;
  fresh.slot = 2;
  fresh.state.position = 6;
  fresh.state.pending_count = 3;
  fresh.state.min_new_tokens = 4;
  fresh.state.source_length = 33;
  fresh.self_count = 1;
  fresh.cross_count = 3;
  BindUpload running = fresh;
  running.slot = 0;
  running.first_word = 7;
  running.state.pending_count = 1;
  running.state.position = 20;
  running.state.do_sample = 1;
  running.self_count = 2;
  running.cross_count = 1;
  const DeviceRecords<BindUpload> uploads({fresh, running});
  const DeviceRecords<int32_t> words({4, 5, 6, 70, 80, 81, 82, 9, 71, 72, 83});
  RunOnStream([&](cudaStream_t stream) {
    return LaunchBindSlots(uploads.data(), words.data(), 2, tables, {stream});
  });
  const std::vector<int32_t> cross = cross_blocks.Read();
  const std::vector<int32_t> self = self_blocks.Read();
  Check(cross[6] == 80 && cross[7] == 81 && cross[8] == 82 && cross[0] == 83, "cross blocks");
  Check(self[4] == 70 && self[0] == 71 && self[1] == 72, "self blocks");
  const DeviceValues embedding(type, RandomValues(kVocabulary * kWidth, 11));
  const DeviceValues norm(ElementType::kFloat32, RandomValues(kWidth, 12));
  const int32_t tokens[3][2] = {{4, -1}, {5, -1}, {6, 9}};
  for (int32_t pass = 0; pass < 3; ++pass) {
    const DeviceRecords<StepHeader> header({StepHeader{2, pass, 3, 1, 2}});
    const DeviceRecords<int32_t> rows({2, 0});
    const DeviceRecords<int32_t> ring({-1});
    const DeviceRecords<RowInfo> infos(std::vector<RowInfo>(3));
    const DeviceValues values(ElementType::kFloat32, Poison(kCapacity * kWidth));
    const DeviceValues scaled(type, Poison(2 * kCapacity * 32));
    const DeviceValues sums(ElementType::kFloat32, Poison(4 * kCapacity));
    const DeviceValues scale(ElementType::kFloat32, Poison(kCapacity));
    BeginPassArgs args;
    args.header = header.data();
    args.row_slots = rows.data();
    args.ring = ring.data();
    args.tables = tables;
    args.rows = infos.data();
    args.embedding = embedding.data();
    args.norm_weight = norm.floats();
    args.epsilon = 1e-6F;
    args.norm_scale = scale.floats();
    args.residual = {values.floats(), scaled.data(), sums.floats(), 4, kWidth, kCapacity};
    RunOnStream([&](cudaStream_t stream) { return LaunchBeginPass(type, args, 3, {stream}); });
    const std::vector<RowInfo> got = infos.Read();
    const bool last = pass == 2;
    const std::string name = "pass " + std::to_string(pass);
    const int32_t choose = last ? RowInfo::kChoose | RowInfo::kBanEos : 0;
    Check(got[0].slot == 2 && got[0].position == 6 + pass && got[0].source_length == 33 &&
              got[0].flags == (RowInfo::kActive | choose),
          name + ": the row with pending tokens");
    Check(got[1].slot == 0 &&
              got[1].flags == (last ? RowInfo::kActive | choose | RowInfo::kSample : 0) &&
              (!last || got[1].position == 20),
          name + ": the row without joins in the last pass");
    Check(got[2].flags == 0, name + ": a row beyond the plan's is idle");
    Check(header.Read()[0].ring == (last ? 0 : 1) && ring.Read()[0] == (last ? 1 : -1),
          name + ": the place for results moves on once a step");
    std::vector<double> actual, expected;
    for (int32_t row = 0; row < 2; ++row) {
      if (tokens[pass][row] < 0) continue;
      double squares = 0.0;
      const double* x = &embedding.rounded()[tokens[pass][row] * kWidth];
      for (int32_t k = 0; k < kWidth; ++k) squares += x[k] * x[k];
      const double exact_scale = 1.0 / std::sqrt(squares / kWidth + 1e-6);
      expected.insert(expected.end(), {squares, exact_scale});
      actual.insert(actual.end(), {sums.Read()[4 * row], scale.Read()[row]});
      for (int32_t k = 0; k < kWidth; ++k) {
        expected.insert(expected.end(), {x[k], x[k] * norm.rounded()[k] * exact_scale});
        actual.insert(actual.end(), {values.Read()[row * kWidth + k],
                                     scaled.Read()[(k / 32 * kCapacity + row) * 32 + k % 32]});
      }
    }
    CheckClose(actual, expected, Tolerance(type),
               std::string(TypeName(type)) + " begin pass " + std::to_string(pass));
  }
}

}  // namespace
}  // namespace seq2seq::kernels

int main() {
  using namespace seq2seq::kernels;  // NOLINT: a test's main
  for (int round = 0; round < 20; ++round) {
    TestStep(211, round, round % 2 == 1);
    TestStep(32128, round, round % 2 == 1);
  }
  TestStep(9, 50, true);
  TestIdleRows();
  for (const ElementType type :
       {ElementType::kFloat32, ElementType::kFloat16, ElementType::kBfloat16}) {
    TestBeginPass(type);
  }
  return TestResult();
}
