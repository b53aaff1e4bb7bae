#include "backend/cuda/cuda_engine.h"

#include <algorithm>
#include <limits>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "backend/core/format.h"
#include "backend/core/kv_blocks.h"
#include "backend/cuda/cublas_lt.h"
#include "backend/cuda/cuda_status.h"

namespace seq2seq {
namespace {

using kernels::kBlockTokens;

constexpr int32_t kEncodeTokens = 8192;

// Memory that runs out at load is the options' fault, later it is not the request's.
Status AtRunTime(Status status) {
  if (!status && status.error().code == ErrorCode::kInvalidArgument) {
    status.error().code = ErrorCode::kInternal;
  }
  return status;
}

// What `call` returns, or what an exception becomes. Messages are short enough to need no memory.
template <typename Call>
Status WithoutThrowing(Call call) noexcept {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return Internal("out of memory");
  } catch (...) {
    return Internal("an exception");
  }
}

// Sequences must not outgrow the tables of positions.
Status CheckPositions(const DeviceWeights& weights, const CudaEngineOptions& options) {
  const auto check = [&](const char* name, int32_t tokens, int32_t table_rows) -> Status {
    const int32_t positions = table_rows - weights.spec.position_offset;
    if (weights.spec.positions != PositionKind::kTable || tokens <= positions) return OkStatus();
    return InvalidArgument(
        Format("option '{}' is {}; the model has {} positions", name, tokens, positions));
  };
  SEQ2SEQ_RETURN_IF_ERROR(
      check("max_source_tokens", options.max_source_tokens, weights.encoder_start.positions));
  return check("max_decoder_tokens", options.max_decoder_tokens, weights.decoder_start.positions);
}

}  // namespace

Result<std::unique_ptr<Engine>> CudaEngine::Create(std::shared_ptr<const DeviceWeights> weights,
                                                   const CudaEngineOptions& options,
                                                   Notifier* notifier) {
  std::unique_ptr<CudaEngine> engine(new CudaEngine(options, notifier));
  SEQ2SEQ_RETURN_IF_ERROR(engine->Build(std::move(weights)));
  return std::unique_ptr<Engine>(std::move(engine));
}

Status CudaEngine::Build(std::shared_ptr<const DeviceWeights> weights) {
  SEQ2SEQ_RETURN_IF_ERROR(MakeCurrent());
  SEQ2SEQ_RETURN_IF_ERROR(CheckPositions(*weights, options_));
  const int64_t all_sources = int64_t{options_.max_active_sequences} * options_.max_source_tokens;
  info_.max_slots = options_.max_active_sequences;
  info_.block_tokens = kBlockTokens;
  info_.max_encode_items = options_.max_active_sequences;
  info_.max_encode_tokens = static_cast<int32_t>(std::min<int64_t>(all_sources, kEncodeTokens));
  info_.max_encodes_in_flight = 1;
  info_.max_steps_in_flight = CudaDecoder::kRing;
  SEQ2SEQ_RETURN_IF_ERROR(BuildPool(*weights));
  if (Status built = BuildAround(weights); !built) {
    if (built.error().code != ErrorCode::kInvalidArgument) return built;
    return InvalidArgument(Format(
        "options 'max_active_sequences', 'max_source_tokens', 'max_decoder_tokens': buffers for "
        "{} sequences of {} and {} tokens do not fit beside a KV cache of {} bytes (option "
        "'kv_cache_bytes'): {}",
        options_.max_active_sequences, options_.max_source_tokens, options_.max_decoder_tokens,
        pool_.memory.bytes(), built.error().message));
  }
  encode_batch_.reserve(info_.max_encode_items);
  encoded_.reserve(info_.max_encode_items);
  encode_results_.reserve(info_.max_encode_items);
  good_sources_.reserve(info_.max_encode_items);
  check_.emplace(CallLimits{.slots = options_.max_active_sequences,
                            .source_tokens = options_.max_source_tokens,
                            .decoder_tokens = options_.max_decoder_tokens,
                            .block_tokens = kBlockTokens,
                            .total_blocks = info_.total_blocks,
                            .vocab_size = weights->spec.vocab_size});
  return StartThreads();
}

Status CudaEngine::StartThreads() {
  try {
    encode_thread_ = std::thread([this] { RunEncodes(); });
    step_thread_ = std::thread([this] { WatchSteps(); });
  } catch (const std::system_error& error) {
    return Internal(Format("the CUDA engine's threads do not start: {}", error.what()));
  }
  return OkStatus();
}

// What needs memory beside the KV cache.
Status CudaEngine::BuildAround(const std::shared_ptr<const DeviceWeights>& weights) {
  std::shared_ptr<const CublasLt> lt = options_.cublas_lt;
  if (lt == nullptr) {
    SEQ2SEQ_ASSIGN_OR_RETURN(lt, CublasLt::Load());
  }
  SEQ2SEQ_ASSIGN_OR_RETURN(copier_, CudaMemoryCopier::Create());
  SEQ2SEQ_RETURN_IF_ERROR(turns_.Init());
  return BuildStages(weights, lt);
}

Status CudaEngine::BuildStages(const std::shared_ptr<const DeviceWeights>& weights,
                               const std::shared_ptr<const CublasLt>& lt) {
  SEQ2SEQ_ASSIGN_OR_RETURN(
      encoder_, CudaEncoder::Create(
                    weights, lt, &pool_, &turns_,
                    {.max_tokens = std::max(info_.max_encode_tokens, options_.max_source_tokens),
                     .max_items = info_.max_encode_items,
                     .warm_up_tokens =
                         std::min(options_.max_source_tokens, pool_.total_blocks * kBlockTokens)}));
  SEQ2SEQ_ASSIGN_OR_RETURN(
      decoder_, CudaDecoder::Create(weights, &pool_,
                                    {.max_slots = options_.max_active_sequences,
                                     .max_source_tokens = options_.max_source_tokens,
                                     .max_decoder_tokens = options_.max_decoder_tokens}));
  return OkStatus();
}

Status CudaEngine::BuildPool(const DeviceWeights& weights) {
  // First, as it is here that a lost device shows.
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaMemGetInfo(&free_bytes, &total_bytes));
  const ModelSpec& spec = weights.spec;
  pool_.layout = {spec.decoder.layers, spec.decoder.heads, spec.head_dim};
  const int64_t block_bytes =
      pool_.layout.BlockStride() * static_cast<int64_t>(kernels::ElementBytes(weights.type));
  const int64_t sequence_blocks = KvBlocksFor(options_.max_source_tokens, kBlockTokens) +
                                  KvBlocksFor(options_.max_decoder_tokens, kBlockTokens);
  const int64_t wanted = 2 * options_.max_active_sequences * sequence_blocks;
  const int64_t limit =
      std::min(options_.kv_cache_limit,
               static_cast<int64_t>(static_cast<double>(free_bytes) * kKvMemoryShare));
  int64_t blocks = options_.kv_cache_bytes.has_value() ? *options_.kv_cache_bytes / block_bytes
                                                       : std::min(limit / block_bytes, wanted);
  blocks = std::min<int64_t>(blocks, std::numeric_limits<int32_t>::max() / kBlockTokens);
  if (blocks < 1) {
    const std::string given =
        options_.kv_cache_bytes.has_value()
            ? Format("is {}", *options_.kv_cache_bytes)
            : Format(
                  "is not set, and this instance's share of {} bytes of free device memory is {}",
                  free_bytes, limit);
    return InvalidArgument(
        Format("option 'kv_cache_bytes' {}; one block of {} positions of this model takes {} "
               "bytes, and at least one is needed",
               given, kBlockTokens, block_bytes));
  }
  Result<DeviceBuffer> memory = DeviceBuffer::Allocate(blocks * block_bytes);
  if (!memory) {
    return InvalidArgument(
        Format("option 'kv_cache_bytes': {} KV blocks of {} bytes do not fit; {} bytes of device "
               "memory are free ({})",
               blocks, block_bytes, free_bytes, memory.error().message));
  }
  pool_.memory = *std::move(memory);
  pool_.total_blocks = static_cast<int32_t>(blocks);
  info_.total_blocks = pool_.total_blocks;
  return OkStatus();
}

CudaEngine::~CudaEngine() {
  {
    std::lock_guard lock(encode_mutex_);
    stop_encoding_ = true;
  }
  encode_condition_.notify_all();
  {
    std::lock_guard lock(step_mutex_);
    stop_watching_ = true;
  }
  step_condition_.notify_all();
  if (encode_thread_.joinable()) encode_thread_.join();
  if (step_thread_.joinable()) step_thread_.join();
  static_cast<void>(MakeCurrent());
}

Status CudaEngine::MakeCurrent() const {
  SEQ2SEQ_RETURN_IF_CUDA_ERROR(cudaSetDevice(options_.device_id));
  return OkStatus();
}

Status CudaEngine::Health() const {
  std::lock_guard lock(health_mutex_);
  return health_;
}

// The first failure stays: later ones follow from it.
void CudaEngine::Fail(const Error& error) {
  std::lock_guard lock(health_mutex_);
  if (!health_) return;
  health_ =
      WithoutThrowing([&] { return Unavailable("the CUDA engine failed: " + error.message); });
  health_.error().code = ErrorCode::kUnavailable;  // whatever the message has become
}

Status CudaEngine::StartEncode(std::span<const EncodeItem> batch) {
  SEQ2SEQ_RETURN_IF_ERROR(Health());
  int64_t tokens = 0;
  for (const EncodeItem& item : batch) tokens += static_cast<int64_t>(item.source_ids.size());
  const int32_t limit = batch.size() == 1
                            ? std::max(info_.max_encode_tokens, options_.max_source_tokens)
                            : info_.max_encode_tokens;
  if (static_cast<int64_t>(batch.size()) > info_.max_encode_items || tokens > limit) {
    return Internal(Format("{} sources of {} tokens are more than one encode takes ({}, {})",
                           batch.size(), tokens, info_.max_encode_items, limit));
  }
  if (batch.empty()) return OkStatus();
  bool here = false;
  {
    std::lock_guard lock(encode_mutex_);
    if (encode_in_flight_) return Internal("an encode is in flight already");
    encode_in_flight_ = true;
    encode_batch_.assign(batch.begin(), batch.end());
    here = !encode_thread_busy_ && encoder_->QueuesAtOnce(batch);
  }
  if (here) QueueEncode(MakeCurrent());
  {
    std::lock_guard lock(encode_mutex_);
    (here ? encode_to_end_ : encode_to_queue_) = true;
    encode_thread_busy_ = true;
  }
  encode_condition_.notify_one();
  return OkStatus();
}

void CudaEngine::PollEncoded(std::vector<EncodeDone>* done) {
  std::lock_guard lock(encode_mutex_);
  if (encoded_.empty()) return;
  done->insert(done->end(), encoded_.begin(), encoded_.end());
  encoded_.clear();
  encode_in_flight_ = false;
}

void CudaEngine::RunEncodes() {
  const Status device = MakeCurrent();
  std::unique_lock lock(encode_mutex_);
  while (true) {
    encode_thread_busy_ = encode_to_end_ || encode_to_queue_;
    encode_condition_.wait(lock,
                           [this] { return encode_to_end_ || encode_to_queue_ || stop_encoding_; });
    const bool queued = std::exchange(encode_to_end_, false);
    if (!queued && stop_encoding_) return;
    if (!queued) encode_to_queue_ = false;
    lock.unlock();
    if (!queued) QueueEncode(device);
    EndEncode();
    lock.lock();
  }
}

// Reports the batch if it could be queued; else leaves that to EndEncode(). No exception leaves it.
void CudaEngine::QueueEncode(const Status& device) {
  encode_queued_ = WithoutThrowing([&] { return QueueGoodSources(device); });
  if (encode_queued_) return ReportEncodes();
  // The last error is this thread's own, and reported by EndEncode().
  static_cast<void>(cudaGetLastError());
}

// A source that cannot be encoded fails alone.
Status CudaEngine::QueueGoodSources(const Status& device) {
  encode_results_.clear();
  good_sources_.clear();
  for (const EncodeItem& item : encode_batch_) {
    encode_results_.push_back({item.ticket, check_->CheckSource(item)});
    if (encode_results_.back().status) good_sources_.push_back(item);
  }
  if (good_sources_.empty()) return OkStatus();
  if (!device) Fail(device.error());
  SEQ2SEQ_RETURN_IF_ERROR(device);
  return AtRunTime(encoder_->Encode(good_sources_));
}

// Waits until the device has done what was queued. A failed call takes the batch's other sources
// along, but later encodes and steps only if the device is lost.
void CudaEngine::EndEncode() {
  if (encode_queued_) {
    const Status ended = WithoutThrowing([&] { return encoder_->Wait(); });
    if (ended) return;
    Fail(ended.error());
    notifier_->Notify();
    return;
  }
  const Status recovered = WithoutThrowing([&] { return encoder_->Recover(); });
  if (!recovered) Fail(encode_queued_.error());
  FailEncodes(encode_queued_);
  ReportEncodes();
}

void CudaEngine::ReportEncodes() {
  {
    std::lock_guard lock(encode_mutex_);
    for (EncodeDone& done : encode_results_) encoded_.push_back(std::move(done));
    encode_batch_.clear();
  }
  notifier_->Notify();
}

// All of the batch's that have not failed already; there is room for their results.
void CudaEngine::FailEncodes(const Status& status) {
  for (size_t i = encode_results_.size(); i < encode_batch_.size(); ++i) {
    encode_results_.push_back({encode_batch_[i].ticket, OkStatus()});
  }
  for (EncodeDone& done : encode_results_) {
    if (done.status) done.status = WithoutThrowing([&] { return status; });
  }
}

Status CudaEngine::Launch(const StepPlan& plan) {
  SEQ2SEQ_RETURN_IF_ERROR(Health());
  if (launched_ - polled_ >= kRing) return Internal("too many steps in flight");
  SEQ2SEQ_RETURN_IF_ERROR(check_->CheckPlan(plan));
  if (const Status status = AtRunTime(QueueStep(plan)); !status) {
    Fail(status.error());
    return status;
  }
  check_->Apply(plan);
  in_flight_[launched_ % kRing] = {plan.step, OkStatus()};
  {
    std::lock_guard lock(step_mutex_);
    ++launched_;
  }
  step_condition_.notify_one();
  return OkStatus();
}

Status CudaEngine::QueueStep(const StepPlan& plan) {
  SEQ2SEQ_RETURN_IF_ERROR(MakeCurrent());
  SEQ2SEQ_RETURN_IF_ERROR(
      turns_.Step(decoder_->stream(), [&] { return decoder_->Launch(plan, launched_); }));
  return decoder_->SignalEnd(launched_, turns_.step_ended());
}

void CudaEngine::WatchSteps() {
  const Status device = MakeCurrent();
  uint64_t next = 0;
  std::unique_lock lock(step_mutex_);
  while (true) {
    step_condition_.wait(lock, [&] { return launched_ > next || stop_watching_; });
    if (launched_ == next) return;
    lock.unlock();
    Status status = WithoutThrowing([&] { return device ? decoder_->Wait(next) : device; });
    if (!status) Fail(status.error());
    in_flight_[next % kRing].status = std::move(status);
    completed_.store(++next, std::memory_order_release);
    notifier_->Notify();
    lock.lock();
  }
}

bool CudaEngine::PollStep(StepResult* result) {
  if (completed_.load(std::memory_order_acquire) == polled_) return false;
  const InFlight& done = in_flight_[polled_ % kRing];
  if (done.status) {
    decoder_->Read(polled_, result);
  } else {
    result->Clear();
    result->status = done.status;
  }
  result->step = done.step;
  ++polled_;
  return true;
}

}  // namespace seq2seq
