#include "backend/cuda/cuda_decoder.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "backend/core/format.h"
#include "backend/core/kv_blocks.h"
#include "backend/cuda/cuda_decoder_graph.h"
#include "backend/cuda/cuda_status.h"
#include "backend/cuda/round_up.h"

namespace seq2seq {
namespace {

using kernels::BindUpload;
using kernels::ElementBytes;
using kernels::RowOutcome;
using kernels::SlotState;
using kernels::StepHeader;

constexpr size_t kAlignment = 256;

constexpr size_t Aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Of the passes between a step's first and last, see CudaDecoder::later_passes_.
constexpr size_t kHeadersBytes = Aligned(CudaDecoder::kMaxPasses * sizeof(StepHeader));

// 1, 2, 4, 8, 16, 32, then multiples of 64.
std::vector<int32_t> BucketSizes(int32_t max_rows) {
  std::vector<int32_t> sizes;
  int32_t size = 1;
  while (size < max_rows) {
    sizes.push_back(size);
    size = size < 64 ? size * 2 : size + 64;
  }
  sizes.push_back(max_rows);
  return sizes;
}

SlotState StateOf(const BindRecord& bind) {
  SlotState state;
  state.seed = bind.sampling.seed;
  state.position = bind.position;
  state.generated = bind.generated;
  state.pending_count = static_cast<int32_t>(bind.pending_tokens.size());
  state.min_new_tokens = bind.min_new_tokens;
  state.max_new_tokens = bind.max_new_tokens;
  state.source_length = bind.source_length;
  state.do_sample = bind.sampling.do_sample ? 1 : 0;
  state.top_k = bind.sampling.top_k;
  state.temperature = bind.sampling.temperature;
  state.top_p = bind.sampling.top_p;
  state.min_p = bind.sampling.min_p;
  state.typical_p = bind.sampling.typical_p;
  state.return_logprobs = bind.sampling.return_logprobs ? 1 : 0;
  return state;
}

StopReason StopReasonOf(kernels::RowStop stop) {
  switch (stop) {
    case kernels::RowStop::kNone:
      return StopReason::kNone;
    case kernels::RowStop::kEos:
      return StopReason::kEos;
    case kernels::RowStop::kLength:
      return StopReason::kLength;
  }
  return StopReason::kNone;
}

}  // namespace

Result<std::unique_ptr<CudaDecoder>> CudaDecoder::Create(
    std::shared_ptr<const DeviceWeights> weights, const KvPool* pool, const Limits& limits) {
  std::unique_ptr<CudaDecoder> decoder(new CudaDecoder(std::move(weights), pool, limits));
  int device = 0;
  int major = 0;
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaGetDevice(&device));
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  decoder->dependent_launch_ = major >= 9;
  decoder->row_capacity_ = RoundUp(limits.max_slots, 8);
  SEQ2SEQ_ASSIGN_OR_RETURN(decoder->stream_, CudaStream::Create(StreamPriority::kHigh));
  SEQ2SEQ_ASSIGN_OR_RETURN(decoder->signals_, CudaStream::Create(StreamPriority::kHigh));
  for (CudaEvent& event : decoder->finished_) {
    SEQ2SEQ_ASSIGN_OR_RETURN(event, CudaEvent::Create());
  }
  SEQ2SEQ_RETURN_IF_ERROR(decoder->Allocate());
  SEQ2SEQ_RETURN_IF_ERROR(decoder->AllocateStepBuffers());
  SEQ2SEQ_RETURN_IF_ERROR(decoder->CaptureGraphs());
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(decoder->stream_.get()));
  return decoder;
}

// Device memory must not go while kernels may still use it.
CudaDecoder::~CudaDecoder() {
  for (const CudaStream* stream : {&stream_, &signals_}) {
    if (stream->get() != nullptr) static_cast<void>(cudaStreamSynchronize(stream->get()));
  }
}

Status CudaDecoder::Allocate() {
  const size_t slots = limits_.max_slots;
  tables_.pending_stride = std::min(limits_.max_decoder_tokens, kMaxPasses);
  tables_.self_stride =
      static_cast<int32_t>(KvBlocksFor(limits_.max_decoder_tokens, kernels::kBlockTokens));
  tables_.cross_stride =
      static_cast<int32_t>(KvBlocksFor(limits_.max_source_tokens, kernels::kBlockTokens));
  const size_t words_a_slot =
      size_t(tables_.pending_stride) + tables_.self_stride + tables_.cross_stride;
  rows_offset_ = Aligned(sizeof(StepHeader));
  binds_offset_ = rows_offset_ + Aligned(slots * sizeof(SlotId));
  words_offset_ = binds_offset_ + Aligned(slots * sizeof(BindUpload));
  const size_t bytes = words_offset_ + slots * words_a_slot * sizeof(int32_t);
  for (int i = 0; i < kRing; ++i) {
    SEQ2SEQ_ASSIGN_OR_RETURN(host_uploads_[i], PinnedBuffer::Allocate(bytes));
    SEQ2SEQ_ASSIGN_OR_RETURN(later_passes_[i], PinnedBuffer::Allocate(kHeadersBytes + rows_offset_ +
                                                                      slots * sizeof(SlotId)));
  }
  const cudaStream_t stream = stream_.get();
  const auto zeroed = [&](size_t count) { return DeviceBuffer::AllocateZeroed(count, stream); };
  SEQ2SEQ_ASSIGN_OR_RETURN(uploads_, zeroed(bytes));
  SEQ2SEQ_ASSIGN_OR_RETURN(outcomes_, PinnedBuffer::Allocate(kRing * slots * sizeof(RowOutcome)));
  SEQ2SEQ_ASSIGN_OR_RETURN(states_, zeroed(slots * sizeof(SlotState)));
  SEQ2SEQ_ASSIGN_OR_RETURN(pending_, zeroed(slots * tables_.pending_stride * sizeof(int32_t)));
  SEQ2SEQ_ASSIGN_OR_RETURN(self_blocks_, zeroed(slots * tables_.self_stride * sizeof(int32_t)));
  SEQ2SEQ_ASSIGN_OR_RETURN(cross_blocks_, zeroed(slots * tables_.cross_stride * sizeof(int32_t)));
  tables_.states = states_.as<SlotState>();
  tables_.pending = pending_.as<int32_t>();
  tables_.self_blocks = self_blocks_.as<int32_t>();
  tables_.cross_blocks = cross_blocks_.as<int32_t>();
  pending_counts_.assign(slots, 0);
  long_prefixes_.resize(slots);
  // Of no value yet, so that pages which no prefix needs aren't resident.
  prefix_tokens_.reset(new (std::nothrow) int32_t[slots * limits_.max_decoder_tokens]);
  if (prefix_tokens_ == nullptr) return OutOfMemory("tokens of decoder prefixes");
  prefix_rows_.reserve(slots);
  last_rows_.reserve(slots);
  for (RowsInFlight& rows : rows_in_flight_) {
    rows.slots.reserve(slots);
    rows.outcomes.reserve(slots);
  }
  return OkStatus();
}

Status CudaDecoder::AllocateStepBuffers() {
  const ModelSpec& spec = weights_->spec;
  const size_t rows = row_capacity_;
  const size_t element = ElementBytes(weights_->type);
  const cudaStream_t stream = stream_.get();
  const auto zeroed = [&](size_t count) { return DeviceBuffer::AllocateZeroed(count, stream); };
  // Inputs of projections are padded to whole chunks with zeros that nobody overwrites.
  const auto blocked = [&](int32_t width) {
    return zeroed(size_t(RoundUp(width, kernels::kChunkInputs)) * rows * element);
  };
  SEQ2SEQ_ASSIGN_OR_RETURN(row_infos_, zeroed(rows * sizeof(kernels::RowInfo)));
  SEQ2SEQ_ASSIGN_OR_RETURN(rings_, zeroed(rows * sizeof(int32_t)));
  SEQ2SEQ_ASSIGN_OR_RETURN(values_, zeroed(rows * spec.d_model * sizeof(float)));
  SEQ2SEQ_ASSIGN_OR_RETURN(scaled_, blocked(spec.d_model));
  SEQ2SEQ_ASSIGN_OR_RETURN(sum_squares_, zeroed(SumStride(spec) * rows * sizeof(float)));
  SEQ2SEQ_ASSIGN_OR_RETURN(norm_scales_, zeroed(2 * rows * sizeof(float)));
  SEQ2SEQ_ASSIGN_OR_RETURN(query_, zeroed(rows * spec.decoder_inner() * sizeof(float)));
  SEQ2SEQ_ASSIGN_OR_RETURN(attended_, blocked(spec.decoder_inner()));
  SEQ2SEQ_ASSIGN_OR_RETURN(activated_, blocked(spec.decoder.d_ff));
  SEQ2SEQ_ASSIGN_OR_RETURN(logits_parts_, zeroed(rows * kernels::TileCount(spec.vocab_size) *
                                                 sizeof(kernels::LogitsPart)));
  SEQ2SEQ_ASSIGN_OR_RETURN(logits_, zeroed(rows * spec.vocab_size * sizeof(float)));
  return OkStatus();
}

Status CudaDecoder::CaptureGraphs() {
  for (const int32_t rows : BucketSizes(limits_.max_slots)) {
    SEQ2SEQ_ASSIGN_OR_RETURN(CudaGraph graph, CudaGraph::Capture(stream_.get(), [&] {
                               return GraphBuilder(*this, rows).Queue();
                             }));
    // Once without a row, as the header is zeros: the first launch takes longer.
    SEQ2SEQ_RETURN_IF_ERROR(GraphBuilder(*this, rows).Begin());
    SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaGraphLaunch(graph.get(), stream_.get()));
    buckets_.push_back({rows, std::move(graph)});
  }
  return OkStatus();
}

const CudaDecoder::Bucket& CudaDecoder::BucketFor(int32_t rows) const {
  return *std::ranges::find_if(buckets_, [rows](const Bucket& b) { return b.rows >= rows; });
}

bool CudaDecoder::SameRows(const StepPlan& plan) const {
  return rows_known_ && plan.bind.empty() && std::ranges::equal(plan.rows, last_rows_);
}

// What this step and those after it need to know of the plan's bind records.
void CudaDecoder::NotePrefixes(const StepPlan& plan) {
  for (const BindRecord& bind : plan.bind) {
    pending_counts_[bind.slot] = static_cast<int32_t>(bind.pending_tokens.size());
    long_prefixes_[bind.slot] = {StateOf(bind), 0};
    if (pending_counts_[bind.slot] <= kMaxPasses) continue;
    std::ranges::copy(bind.pending_tokens, PrefixTokens(bind.slot).begin());
  }
}

std::span<int32_t> CudaDecoder::PrefixTokens(SlotId slot) {
  const auto most = static_cast<size_t>(limits_.max_decoder_tokens);
  return {prefix_tokens_.get() + size_t(slot) * most, most};
}

// Says which rows take part in the step's passes before the last and which in the last, and returns
// the number of passes.
int32_t CudaDecoder::DivideRows(const StepPlan& plan, RowsInFlight* flying) {
  prefix_rows_.clear();
  last_rows_.clear();
  flying->slots.assign(plan.rows.begin(), plan.rows.end());
  flying->outcomes.clear();
  int32_t passes = 1;
  for (const SlotId slot : plan.rows) {
    const int32_t pending = pending_counts_[slot];
    passes = std::max(passes, std::min(pending, kMaxPasses));
    if (pending > 1) prefix_rows_.push_back(slot);
    const bool chooses = pending <= kMaxPasses;
    flying->outcomes.push_back(chooses ? static_cast<int32_t>(last_rows_.size()) : -1);
    if (chooses) last_rows_.push_back(slot);
  }
  return passes;
}

// Notes what the step leaves for the next. A slot that has more than a step's passes take is not
// told so on the device: it has one token a pass there, and misses the last pass.
void CudaDecoder::ConsumePrefixes(const StepPlan& plan, int32_t passes) {
  for (const SlotId slot : plan.rows) {
    LongPrefix& prefix = long_prefixes_[slot];
    if (pending_counts_[slot] <= kMaxPasses) {
      pending_counts_[slot] = 0;
      prefix.consumed = 0;
    } else {
      pending_counts_[slot] -= passes - 1;
      prefix.state.position += passes - 1;
      prefix.consumed += passes - 1;
    }
  }
}

// The plan's bind records, and those that bring slots the next part of a long prefix. Returns where
// the upload ends, and how many there are.
size_t CudaDecoder::WriteBinds(const StepPlan& plan, std::byte* upload, int32_t* count) {
  auto* uploads = reinterpret_cast<BindUpload*>(upload + binds_offset_);
  auto* words = reinterpret_cast<int32_t*>(upload + words_offset_);
  int32_t word = 0;
  const auto write = [&](SlotId slot, const SlotState& state, const BindLists& lists) {
    const auto pending =
        lists.pending.first(std::min(lists.pending.size(), static_cast<size_t>(kMaxPasses)));
    BindUpload& bind = uploads[(*count)++];
    bind.state = state;
    bind.state.pending_count = static_cast<int32_t>(pending.size());
    bind.slot = slot;
    bind.first_word = word;
    bind.self_count = static_cast<int32_t>(lists.self.size());
    bind.cross_count = static_cast<int32_t>(lists.cross.size());
    for (const std::span<const int32_t> list : {pending, lists.self, lists.cross}) {
      std::ranges::copy(list, words + word);
      word += static_cast<int32_t>(list.size());
    }
  };
  *count = 0;
  for (const BindRecord& bind : plan.bind) {
    // More blocks than the tables hold are never reached.
    const auto self = bind.self_blocks.first(
        std::min(bind.self_blocks.size(), static_cast<size_t>(tables_.self_stride)));
    const auto cross = bind.cross_blocks.first(
        std::min(bind.cross_blocks.size(), static_cast<size_t>(tables_.cross_stride)));
    write(bind.slot, StateOf(bind), {bind.pending_tokens, self, cross});
  }
  for (const SlotId slot : prefix_rows_) {
    const LongPrefix& prefix = long_prefixes_[slot];
    if (prefix.consumed == 0) continue;
    write(slot, prefix.state,
          {PrefixTokens(slot).subspan(prefix.consumed, pending_counts_[slot]), {}, {}});
  }
  return words_offset_ + word * sizeof(int32_t);
}

// Writes header and rows of a pass, and returns where they end.
size_t CudaDecoder::WriteRows(std::span<const SlotId> rows, const StepHeader& header,
                              std::byte* upload) const {
  *reinterpret_cast<StepHeader*>(upload) = header;
  std::memcpy(upload + rows_offset_, rows.data(), rows.size_bytes());
  return rows_offset_ + rows.size_bytes();
}

Status CudaDecoder::CopyUpload(const void* from, size_t bytes) {
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(
      cudaMemcpyAsync(uploads_.as(), from, bytes, cudaMemcpyHostToDevice, stream_.get()));
  return OkStatus();
}

// Everything that the step's first pass needs.
Status CudaDecoder::Upload(const StepPlan& plan, const StepHeader& header) {
  auto* upload = host_uploads_[header.ring].as<std::byte>();
  const std::vector<SlotId>& rows = header.passes > 1 ? prefix_rows_ : last_rows_;
  int32_t binds = 0;
  const size_t rows_end = WriteRows(rows, header, upload);
  const size_t binds_end = WriteBinds(plan, upload, &binds);
  SEQ2SEQ_RETURN_IF_ERROR(CopyUpload(upload, binds == 0 ? rows_end : binds_end));
  const auto* device = uploads_.as<std::byte>();
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(kernels::LaunchBindSlots(
      reinterpret_cast<const BindUpload*>(device + binds_offset_),
      reinterpret_cast<const int32_t*>(device + words_offset_), binds, tables_, {stream_.get()}));
  return OkStatus();
}

// The passes before a step's last, which consume prefixes, for their rows alone. The first one's
// header and rows are on the device.
Status CudaDecoder::LaunchPrefixPasses(StepHeader header) {
  auto* headers = later_passes_[header.ring].as<StepHeader>();
  for (header.pass = 0; header.pass < header.passes - 1; ++header.pass) {
    if (header.pass > 0) {
      headers[header.pass] = header;
      SEQ2SEQ_RETURN_IF_ERROR(CopyUpload(headers + header.pass, sizeof(header)));
    }
    SEQ2SEQ_RETURN_IF_ERROR(LaunchPass(header.rows, false));
  }
  return OkStatus();
}

// begun: by the step before, which had the same rows.
Status CudaDecoder::LaunchPass(int32_t rows, bool begun) {
  const Bucket& bucket = BucketFor(rows);
  if (!begun) SEQ2SEQ_RETURN_IF_ERROR(GraphBuilder(*this, bucket.rows).Begin());
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaGraphLaunch(bucket.graph.get(), stream_.get()));
  return OkStatus();
}

Status CudaDecoder::LaunchPasses(const StepPlan& plan, uint64_t sequence, int32_t passes,
                                 bool same_rows) {
  StepHeader header;
  header.passes = passes;
  header.ring = static_cast<int32_t>(sequence % kRing);
  header.ring_size = kRing;
  header.rows = static_cast<int32_t>(passes > 1 ? prefix_rows_.size() : last_rows_.size());
  if (!same_rows) SEQ2SEQ_RETURN_IF_ERROR(Upload(plan, header));
  SEQ2SEQ_RETURN_IF_ERROR(LaunchPrefixPasses(header));
  if (last_rows_.empty()) return OkStatus();
  if (passes > 1) {
    header.rows = static_cast<int32_t>(last_rows_.size());
    header.pass = passes - 1;
    auto* upload = later_passes_[header.ring].as<std::byte>() + kHeadersBytes;
    SEQ2SEQ_RETURN_IF_ERROR(CopyUpload(upload, WriteRows(last_rows_, header, upload)));
  }
  return LaunchPass(header.rows, same_rows);
}

Status CudaDecoder::Launch(const StepPlan& plan, uint64_t sequence) {
  NotePrefixes(plan);
  const bool same_rows = SameRows(plan);
  const int32_t passes = DivideRows(plan, &rows_in_flight_[sequence % kRing]);
  rows_known_ = false;
  SEQ2SEQ_RETURN_IF_ERROR(LaunchPasses(plan, sequence, passes, same_rows));
  ConsumePrefixes(plan, passes);
  // After several passes the header says "last of several"; the next step must be told otherwise.
  rows_known_ = passes == 1 && !plan.rows.empty();
  return OkStatus();
}

// An event that a thread can sleep for holds up the stream that records it, so another stream does.
Status CudaDecoder::SignalEnd(uint64_t sequence, const CudaEvent& ended) {
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaStreamWaitEvent(signals_.get(), ended.get(), 0));
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaEventRecord(finished_[sequence % kRing].get(), signals_.get()));
  return OkStatus();
}

Status CudaDecoder::Wait(uint64_t sequence) {
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(finished_[sequence % kRing].get()));
  return OkStatus();
}

void CudaDecoder::Read(uint64_t sequence, StepResult* result) const {
  const RowOutcome* outcomes = outcomes_.as<RowOutcome>() + sequence % kRing * limits_.max_slots;
  const RowsInFlight& rows = rows_in_flight_[sequence % kRing];
  result->Clear();
  for (size_t row = 0; row < rows.slots.size(); ++row) {
    const int32_t at = rows.outcomes[row];
    const RowOutcome outcome = at < 0 ? RowOutcome{.slot = rows.slots[row]} : outcomes[at];
    RowResult out;
    out.slot = outcome.slot;
    out.parent_row = static_cast<int32_t>(row);
    out.first_token = static_cast<int32_t>(result->tokens.size());
    out.token_count = outcome.count;
    out.score = outcome.score;
    out.stop = StopReasonOf(outcome.stop);
    if (outcome.count > 0) {
      result->tokens.push_back(outcome.token);
      result->logprobs.push_back(outcome.logprob);
    }
    result->rows.push_back(out);
  }
}

}  // namespace seq2seq
