// The bookkeeping of slots, and the start of a pass, against plain arithmetic.
#include "backend/kernels/step_state.h"

#include "backend/kernels/kernel_test_util.h"
#include "backend/kernels/operand_layout.h"

namespace seq2seq::kernels {
namespace {

constexpr int32_t kCapacity = 8;
constexpr float kEpsilon = 1e-6F;

// What LaunchBeginPass leaves, of a bucket of three rows.
struct BegunPass {
  BegunPass(ElementType type, const StepHeader& step, const std::vector<int32_t>& row_slots,
            const SlotTables& tables, const DeviceValues& embedding, const DeviceValues& norm)
      : width(static_cast<int32_t>(norm.rounded().size())),
        values(ElementType::kFloat32, Poison(size_t(kCapacity) * width)),
        scaled(type, Poison(size_t(width + 31) / 32 * 32 * kCapacity)) {
    const DeviceRecords<StepHeader> header({step});
    const DeviceRecords<int32_t> rows(row_slots);
    BeginPassArgs args;
    args.header = header.data();
    args.row_slots = rows.data();
    args.rings = rings.data();
    args.tables = tables;
    args.rows = infos.data();
    args.embedding = embedding.data();
    args.norm_weight = norm.floats();
    args.epsilon = kEpsilon;
    args.norm_scale = scale.floats();
    args.residual = {values.floats(), scaled.data(), sums.floats(), 4, width, kCapacity};
    RunOnStream([&](cudaStream_t stream) { return LaunchBeginPass(type, args, 3, {stream}); });
  }

  int32_t width;
  DeviceValues values;
  DeviceValues scaled;
  DeviceValues sums{ElementType::kFloat32, Poison(4 * kCapacity)};
  DeviceValues scale{ElementType::kFloat32, Poison(kCapacity)};
  DeviceRecords<RowInfo> infos{std::vector<RowInfo>(3)};
  DeviceRecords<int32_t> rings{std::vector<int32_t>(3, -1)};
};

// A slot with three pending tokens and one without, over the three passes of a step.
void TestBeginPass(ElementType type) {
  constexpr int32_t kWidth = 48;
  constexpr int32_t kVocabulary = 10;
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
    const BegunPass begun(type, {2, pass, 3, 1, 2}, {2, 0}, tables, embedding, norm);
    const std::vector<RowInfo> got = begun.infos.Read();
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
    Check(begun.rings.Read() == std::vector<int32_t>({1, 1, 1}), name + ": the place for results");
    const std::vector<double> values = begun.values.Read();
    const std::vector<double> scaled = begun.scaled.Read();
    std::vector<double> actual, expected;
    for (int32_t row = 0; row < 2; ++row) {
      if (tokens[pass][row] < 0) continue;
      double squares = 0.0;
      const double* x = &embedding.rounded()[tokens[pass][row] * kWidth];
      for (int32_t k = 0; k < kWidth; ++k) squares += x[k] * x[k];
      const double exact_scale = 1.0 / std::sqrt(squares / kWidth + kEpsilon);
      expected.insert(expected.end(), {squares, exact_scale});
      actual.insert(actual.end(), {begun.sums.Read()[4 * row], begun.scale.Read()[row]});
      for (int32_t k = 0; k < kWidth; ++k) {
        expected.insert(expected.end(), {x[k], x[k] * norm.rounded()[k] * exact_scale});
        actual.insert(actual.end(),
                      {values[row * kWidth + k], scaled[BlockedPlace(type, row, k, kCapacity)]});
      }
    }
    CheckClose(actual, expected, Tolerance(type),
               std::string(TypeName(type)) + " begin pass " + std::to_string(pass));
  }
}

// What a bind leaves alone: other slots, and what lies behind its lists.
TEST(BindSlotsTest, WritesItsSlotAlone) {
  SlotState marked;
  marked.position = 77;
  const DeviceRecords<SlotState> states(std::vector<SlotState>(3, marked));
  const DeviceRecords<int32_t> pending(std::vector<int32_t>(3 * 4, -1));
  const DeviceRecords<int32_t> self_blocks(std::vector<int32_t>(3 * 2, -1));
  const DeviceRecords<int32_t> cross_blocks(std::vector<int32_t>(3 * 2, -1));
  BindUpload upload;
  upload.slot = 1;
  upload.state.position = 5;
  upload.state.pending_count = 1;
  upload.self_count = 2;
  upload.cross_count = 1;
  const DeviceRecords<BindUpload> uploads({upload});
  const DeviceRecords<int32_t> words({10, 20, 21, 30});
  const SlotTables tables{
      states.data(), pending.data(), self_blocks.data(), cross_blocks.data(), 4, 2, 2};
  RunOnStream([&](cudaStream_t stream) {
    return LaunchBindSlots(uploads.data(), words.data(), 1, tables, {stream});
  });
  EXPECT_EQ(pending.Read(), (std::vector<int32_t>{-1, -1, -1, -1, 10, -1, -1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(self_blocks.Read(), (std::vector<int32_t>{-1, -1, 20, 21, -1, -1}));
  EXPECT_EQ(cross_blocks.Read(), (std::vector<int32_t>{-1, -1, 30, -1, -1, -1}));
  const std::vector<SlotState> got = states.Read();
  EXPECT_EQ(got[0].position, 77);
  EXPECT_EQ(got[1].position, 5);
  EXPECT_EQ(got[2].position, 77);
}

class BeginPassTest : public testing::TestWithParam<ElementType> {};

TEST_P(BeginPassTest, FollowsPendingTokensThroughThePasses) { TestBeginPass(GetParam()); }

// A slot that ended stays in a step's rows until the host knows: it must not touch the cache.
TEST_P(BeginPassTest, EndedSlotsAreIdleAndTheRestKeepsItsFlags) {
  constexpr int32_t kWidth = 2056;  // more than a block keeps in registers, no multiple of 32
  constexpr int32_t kRows = 3;
  std::vector<SlotState> slots(kRows);
  slots[0].ended = 1;
  slots[1].generated = 3;  // no EOS before the fourth token
  slots[1].min_new_tokens = 4;
  slots[1].next_token = 2;
  slots[2].generated = 4;
  slots[2].min_new_tokens = 4;
  slots[2].next_token = 1;
  slots[2].do_sample = 1;
  const DeviceRecords<SlotState> states(slots);
  const DeviceRecords<int32_t> lists(std::vector<int32_t>(kRows, 0));
  const SlotTables tables{states.data(), lists.data(), lists.data(), lists.data(), 1, 1, 1};
  const DeviceValues embedding(GetParam(), RandomValues(3 * kWidth, 31));
  const DeviceValues norm(ElementType::kFloat32, RandomValues(kWidth, 32));
  const BegunPass begun(GetParam(), {kRows, 0, 1, 2, 3}, {0, 1, 2}, tables, embedding, norm);
  const std::vector<RowInfo> got = begun.infos.Read();
  EXPECT_EQ(got[0].flags, 0);
  EXPECT_EQ(got[1].flags, RowInfo::kActive | RowInfo::kChoose | RowInfo::kBanEos);
  EXPECT_EQ(got[2].flags, RowInfo::kActive | RowInfo::kChoose | RowInfo::kSample);
  EXPECT_EQ(begun.rings.Read(), (std::vector<int32_t>{2, 2, 2}));
  std::vector<double> expected;
  for (const int32_t token : {0, 2, 1}) {
    const auto first = embedding.rounded().begin() + token * kWidth;
    expected.insert(expected.end(), first, first + kWidth);
  }
  std::vector<double> values = begun.values.Read();
  values.resize(expected.size());
  EXPECT_EQ(values, expected);
}

INSTANTIATE_TEST_SUITE_P(Types, BeginPassTest, testing::ValuesIn(kElementTypes), TypeParamName);

}  // namespace
}  // namespace seq2seq::kernels
