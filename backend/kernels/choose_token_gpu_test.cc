// Token choice against the sampler of the host, and what it does to slots against plain arithmetic.
#include "backend/kernels/choose_token.h"

#include <algorithm>
#include <cmath>

#include "backend/engine/sampling.h"
#include "backend/kernels/kernel_test_util.h"
#include "backend/kernels/operand_layout.h"
#include "backend/kernels/step_state.h"

namespace seq2seq::kernels {
namespace {

constexpr int32_t kRows = 24;
constexpr int32_t kWidth = 40;  // of the embeddings
constexpr int32_t kCapacity = 24;

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

// What a pass's kernels leave, on the device; the values are in `type`.
class DevicePass {
 public:
  // Row r is slot row_slots[r].
  DevicePass(ElementType type, const StepHeader& header, const std::vector<int32_t>& row_slots,
             const std::vector<SlotState>& states, const std::vector<RowInfo>& infos,
             int32_t vocabulary)
      : type_(type),
        header_({header}),
        row_slots_(row_slots),
        states_(states),
        infos_(infos),
        rings_(std::vector<int32_t>(infos.size(), header.ring)),
        embedding_(type, RandomValues(int64_t{vocabulary} * kWidth, 61)),
        norm_(ElementType::kFloat32, RandomValues(kWidth, 62)),
        values_(ElementType::kFloat32, Poison(kCapacity * kWidth)),
        scaled_(type, Poison(kCapacity * 64)),
        sums_(ElementType::kFloat32, Poison(kCapacity * 4)),
        scale_(ElementType::kFloat32, Poison(kCapacity)) {}

  BeginPassArgs args() const {
    BeginPassArgs args;
    args.header = header_.data();
    args.row_slots = row_slots_.data();
    args.tables.states = states_.data();
    args.rows = infos_.data();
    args.rings = rings_.data();
    args.embedding = embedding_.data();
    args.norm_weight = norm_.floats();
    args.epsilon = 1e-6F;
    args.norm_scale = scale_.floats();
    args.residual = {values_.floats(), scaled_.data(), sums_.floats(), 4, kWidth, kCapacity};
    return args;
  }

  std::vector<SlotState> states() const { return states_.Read(); }
  std::vector<RowInfo> infos() const { return infos_.Read(); }
  std::vector<int32_t> rings() const { return rings_.Read(); }
  std::vector<double> values() const { return values_.Read(); }

  // What the first projection reads of a row: sums of squares, scale, then each value as it is and
  // normed.
  std::vector<double> Started(int32_t row) const {
    const std::vector<double> sums = sums_.Read();
    const std::vector<double> values = values_.Read();
    const std::vector<double> scaled = scaled_.Read();
    std::vector<double> started(sums.begin() + 4 * row, sums.begin() + 4 * row + 4);
    started.push_back(scale_.Read()[row]);
    for (int32_t k = 0; k < kWidth; ++k) {
      started.push_back(values[row * kWidth + k]);
      started.push_back(scaled[BlockedPlace(type_, row, k, kCapacity)]);
    }
    return started;
  }

  // What that is with a token's embedding.
  std::vector<double> StartWith(int32_t token) const {
    const double* x = &embedding_.rounded()[int64_t{token} * kWidth];
    double squares = 0.0;
    for (int32_t k = 0; k < kWidth; ++k) squares += x[k] * x[k];
    const double scale = 1.0 / std::sqrt(squares / kWidth + 1e-6);
    std::vector<double> start{squares, 0.0, 0.0, 0.0, scale};
    for (int32_t k = 0; k < kWidth; ++k) {
      start.insert(start.end(), {x[k], x[k] * norm_.rounded()[k] * scale});
    }
    return start;
  }

 private:
  ElementType type_;
  DeviceRecords<StepHeader> header_;
  DeviceRecords<int32_t> row_slots_;
  DeviceRecords<SlotState> states_;
  DeviceRecords<RowInfo> infos_;
  DeviceRecords<int32_t> rings_;
  DeviceValues embedding_;
  DeviceValues norm_;
  DeviceValues values_;
  DeviceValues scaled_;
  DeviceValues sums_;
  DeviceValues scale_;
};

// What a row whose slot is in `state` does in the next step.
void CheckNextRow(const RowInfo& next, int32_t slot, const SlotState& state,
                  const std::string& name) {
  const int32_t flags = state.ended != 0
                            ? 0
                            : RowInfo::kActive | RowInfo::kChoose |
                                  (state.generated < state.min_new_tokens ? RowInfo::kBanEos : 0) |
                                  (state.do_sample != 0 ? RowInfo::kSample : 0);
  Check(next.slot == slot && next.source_length == state.source_length && next.flags == flags &&
            (flags == 0 || next.position == state.position),
        name + ": the row in the next step");
}

void Choose(ElementType type, const ChooseTokenArgs& args, int32_t bucket) {
  RunOnStream(
      [&](cudaStream_t stream) { return LaunchChooseTokens(type, args, bucket, {stream}); });
}

// One step of kRows rows with random logits; row r is slot kRows - 1 - r.
void TestStep(int32_t vocabulary, int32_t round, bool coarse) {
  const ElementType type = kElementTypes[round % 3];
  const std::vector<int32_t> eos = {1, 5};
  const int32_t tiles = TileCount(vocabulary);
  std::vector<RowInfo> infos(kRows);
  std::vector<SlotState> states(kRows);
  std::vector<int32_t> row_slots;
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
    state.source_length = 50 + row;
    row_slots.push_back(slot);
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
  const DevicePass pass(type, StepHeader{kRows, 0, 1, 1, 2}, row_slots, states, infos, vocabulary);
  const DeviceRecords<LogitsPart> device_parts(parts);
  const DeviceValues logits(ElementType::kFloat32, all_logits);
  const DeviceRecords<int32_t> device_eos(eos);
  const DeviceRecords<RowOutcome> outcomes(std::vector<RowOutcome>(2 * kRows));
  ChooseTokenArgs args;
  args.pass = pass.args();
  args.parts = device_parts.data();
  args.tiles = tiles;
  args.logits = logits.floats();
  args.vocabulary = vocabulary;
  args.eos_tokens = device_eos.data();
  args.eos_count = 2;
  args.outcomes = outcomes.data();
  args.outcome_stride = kRows;
  Choose(type, args, kRows);
  const std::vector<RowOutcome> got = outcomes.Read();
  const std::vector<SlotState> moved = pass.states();
  const std::vector<RowInfo> next = pass.infos();
  std::vector<std::vector<double>> started;
  Check(pass.rings() == std::vector<int32_t>(kRows, 0), "the place for results starts over");
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
    CheckNextRow(next[row], kRows - 1 - row, after, name);
    started.push_back(pass.Started(row));
    CheckClose(started[row], pass.StartWith(outcome.token), Tolerance(type), name + ": next start");
  }
  // The host may begin the next step instead, which must not make a difference.
  RunOnStream(
      [&](cudaStream_t stream) { return LaunchBeginPass(type, pass.args(), kRows, {stream}); });
  for (int32_t row = 0; row < kRows; ++row) {
    const SlotState& state = moved[kRows - 1 - row];
    CheckNextRow(pass.infos()[row], kRows - 1 - row, state, "LaunchBeginPass");
    if (state.ended != 0) continue;
    EXPECT_EQ(pass.Started(row), started[row]) << "row " << row;
  }
}

void TestIdleRows() {
  std::vector<SlotState> states(8);
  states[7].ended = states[3].ended = 1;
  const DevicePass pass(ElementType::kFloat32, StepHeader{2, 0, 1, 0, 2}, {7, 3, 0}, states,
                        {RowInfo{7, 0, 0, 0}, RowInfo{3, 0, 0, 0}, RowInfo{}}, 2);
  RowOutcome marked;
  marked.count = 99;
  const DeviceRecords<RowOutcome> outcomes(std::vector<RowOutcome>(3, marked));
  ChooseTokenArgs args;
  args.pass = pass.args();
  args.outcomes = outcomes.data();
  args.outcome_stride = 3;
  Choose(ElementType::kFloat32, args, 3);
  const std::vector<RowOutcome> got = outcomes.Read();
  Check(got[0].slot == 7 && got[0].count == 0, "an ended slot brings no token");
  Check(got[1].slot == 3 && got[1].count == 0, "an ended slot brings no token");
  Check(got[2].count == 99, "rows beyond the plan's report nothing");
  for (const RowInfo& info : pass.infos()) EXPECT_EQ(info.flags, 0);
  for (int32_t row = 0; row < 3; ++row) {
    CheckClose(pass.Started(row), pass.StartWith(0), 1e-5, "an idle row has finite values");
  }
}

// A pass that is not its step's last one, and rows that would have something to choose.
void TestEarlierPass() {
  std::vector<SlotState> states(1);
  states[0].pending_count = 3;
  const std::vector<RowInfo> infos{RowInfo{0, 5, 9, RowInfo::kActive | RowInfo::kChoose}};
  const DevicePass pass(ElementType::kFloat32, StepHeader{1, 1, 3, 1, 2}, {0}, states, infos, 2);
  RowOutcome marked;
  marked.count = 99;
  const DeviceRecords<RowOutcome> outcomes(std::vector<RowOutcome>(2, marked));
  const DeviceRecords<LogitsPart> parts({LogitsPart{1.0F, 1, 1.0F, 1.0F}});
  ChooseTokenArgs args;
  args.pass = pass.args();
  args.parts = parts.data();
  args.tiles = 1;
  args.vocabulary = 2;
  args.outcomes = outcomes.data();
  args.outcome_stride = 1;
  Choose(ElementType::kFloat32, args, 1);
  EXPECT_EQ(outcomes.Read()[1].count, 99);
  EXPECT_EQ(pass.states()[0].pending_count, 3);
  EXPECT_EQ(pass.infos()[0].position, 5);
  EXPECT_EQ(pass.rings()[0], 1);
  for (const double value : pass.values()) ASSERT_TRUE(std::isnan(value));
}

// Equal logits in tiles that different threads and warps read: the lowest id wins. Zeros of both
// signs are equal.
void TestEqualLogits(const std::vector<float>& logits, int32_t expected) {
  const auto vocabulary = static_cast<int32_t>(logits.size());
  const int32_t tiles = TileCount(vocabulary);
  std::vector<LogitsPart> parts;
  for (int32_t t = 0; t < tiles; ++t) {
    parts.push_back(PartOf(logits, t * 16, std::min(vocabulary, t * 16 + 16), {}));
  }
  std::vector<SlotState> states(1);
  states[0].max_new_tokens = 9;
  states[0].return_logprobs = 1;
  const DevicePass pass(ElementType::kFloat32, StepHeader{1, 0, 1, 0, 1}, {0}, states,
                        {RowInfo{0, 0, 1, RowInfo::kActive | RowInfo::kChoose}}, vocabulary);
  const DeviceRecords<LogitsPart> device_parts(parts);
  const DeviceRecords<RowOutcome> outcomes(std::vector<RowOutcome>(1));
  ChooseTokenArgs args;
  args.pass = pass.args();
  args.parts = device_parts.data();
  args.tiles = tiles;
  args.vocabulary = vocabulary;
  args.outcomes = outcomes.data();
  args.outcome_stride = 1;
  Choose(ElementType::kFloat32, args, 1);
  const RowOutcome outcome = outcomes.Read()[0];
  EXPECT_EQ(outcome.token, expected);
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(double{logit} - logits[expected]);
  EXPECT_NEAR(outcome.logprob, -std::log(sum), 1e-5);
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

TEST(ChooseTokenTest, EarlierPassesChooseNothing) { TestEarlierPass(); }

TEST(ChooseTokenTest, OfEqualLogitsTheLowestIdWins) {
  constexpr int32_t kVocabulary = 16 * 2100;  // several rounds of a block
  std::vector<float> logits(kVocabulary, -1.0F);
  for (const int32_t token : {33'599, 16 * 512 + 3, 16 * 40 + 7, 16 * 1100}) logits[token] = 2.5F;
  TestEqualLogits(logits, 16 * 40 + 7);
  logits.assign(kVocabulary, -3.0F);
  logits[20'000] = 0.0F;
  logits[16 * 33 + 1] = -0.0F;
  TestEqualLogits(logits, 16 * 33 + 1);
  TestEqualLogits(std::vector<float>(kVocabulary, -7.0F), 0);
}

}  // namespace
}  // namespace seq2seq::kernels
