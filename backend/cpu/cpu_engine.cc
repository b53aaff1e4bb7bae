#include "backend/cpu/cpu_engine.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "backend/core/format.h"
#include "backend/cpu/kernels/kernel_table.h"

namespace seq2seq::cpu {
namespace {

// Tokens of one StartEncode: enough for full speed, little enough that the first sources of many
// start to decode before the last ones are encoded.
constexpr int32_t kMaxEncodeTokens = 2048;
constexpr std::chrono::nanoseconds kEncodeTurn = std::chrono::milliseconds(20);

int64_t NowNs() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

}  // namespace

CpuEngine::CpuEngine(std::shared_ptr<const Weights> weights, Notifier* notifier)
    : weights_(std::move(weights)), notifier_(notifier) {}

Result<std::unique_ptr<CpuEngine>> CpuEngine::Create(std::shared_ptr<const Weights> weights,
                                                     const CpuEngineOptions& options,
                                                     Notifier* notifier) {
  try {
    std::unique_ptr<CpuEngine> engine(new CpuEngine(std::move(weights), notifier));
    SEQ2SEQ_RETURN_IF_ERROR(engine->Start(options));
    return engine;
  } catch (const std::exception& failure) {
    return InvalidArgument(Format(
        "can't create a CPU engine with {} slots, {} source and {} decoder "
        "tokens: {}",
        options.max_slots, options.max_source_tokens, options.max_decoder_tokens, failure.what()));
  }
}

Status CpuEngine::Start(const CpuEngineOptions& options) {
  const ModelSpec& spec = weights_->spec();
  const int32_t slots = options.max_slots;
  SEQ2SEQ_ASSIGN_OR_RETURN(pool_, ThreadPool::Create(options.threads));
  SEQ2SEQ_ASSIGN_OR_RETURN(
      kv_, KvPool::Create(spec, options.kv_cache_bytes.value_or(kDefaultKvCacheBytes)));
  info_.max_slots = slots;
  info_.block_tokens = kPanelColumns;
  info_.total_blocks = kv_->total_blocks();
  info_.max_encode_items = slots;
  info_.max_encode_tokens = kMaxEncodeTokens;

  const Compute compute{FindKernels(BestKernelLevel()), pool_.get()};
  SEQ2SEQ_ASSIGN_OR_RETURN(
      encoder_,
      Encoder::Create(weights_.get(), compute, &*kv_,
                      {.max_items = slots,
                       .max_tokens = std::max(kMaxEncodeTokens, options.max_source_tokens),
                       .max_source_tokens = options.max_source_tokens}));
  SEQ2SEQ_ASSIGN_OR_RETURN(runner_,
                           StepRunner::Create(weights_.get(), compute, &*kv_,
                                              {.max_slots = slots,
                                               .max_source_tokens = options.max_source_tokens,
                                               .max_decoder_tokens = options.max_decoder_tokens,
                                               .eos_token_ids = options.eos_token_ids}));
  check_.emplace(CallLimits{.slots = slots,
                            .source_tokens = options.max_source_tokens,
                            .decoder_tokens = options.max_decoder_tokens,
                            .block_tokens = info_.block_tokens,
                            .total_blocks = info_.total_blocks,
                            .vocab_size = spec.vocab_size});
  encode_results_.reserve(slots);
  encode_sources_.reserve(slots);
  step_.Reserve(slots);
  worker_ = std::thread([this] { WorkerMain(); });
  return OkStatus();
}

CpuEngine::~CpuEngine() {
  {
    std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  wake_.notify_one();
  if (worker_.joinable()) worker_.join();
}

Status CpuEngine::StartEncode(std::span<const EncodeItem> batch) {
  {
    std::lock_guard lock(mutex_);
    if (encode_phase_ != Phase::kIdle) return Internal("an encode is in flight");
  }
  int64_t tokens = 0;
  for (const EncodeItem& item : batch) tokens += static_cast<int64_t>(item.source_ids.size());
  const int64_t limit = batch.size() == 1 ? encoder_->max_source_tokens() : info_.max_encode_tokens;
  if (static_cast<int64_t>(batch.size()) > info_.max_encode_items || tokens > limit) {
    return Internal(Format("{} sources of {} tokens are more than one encode takes ({}, {})",
                           batch.size(), tokens, info_.max_encode_items, limit));
  }
  encode_results_.clear();
  encode_sources_.clear();
  for (const EncodeItem& item : batch) {
    Status status = check_->CheckSource(item);
    if (status) encode_sources_.push_back({item.source_ids, item.cross_blocks});
    encode_results_.push_back({item.ticket, std::move(status)});
  }
  {
    std::lock_guard lock(mutex_);
    encode_phase_ = Phase::kInFlight;
  }
  wake_.notify_one();
  return OkStatus();
}

void CpuEngine::PollEncoded(std::vector<EncodeDone>* done) {
  {
    std::lock_guard lock(mutex_);
    if (encode_phase_ != Phase::kDone) return;
    encode_phase_ = Phase::kIdle;
  }
  for (EncodeDone& result : encode_results_) done->push_back(std::move(result));
  encode_results_.clear();
}

Status CpuEngine::Launch(const StepPlan& plan) {
  {
    std::lock_guard lock(mutex_);
    if (step_phase_ != Phase::kIdle) return Internal("a step is in flight");
  }
  SEQ2SEQ_RETURN_IF_ERROR(runner_->Prepare(plan));
  {
    std::lock_guard lock(mutex_);
    step_phase_ = Phase::kInFlight;
  }
  wake_.notify_one();
  return OkStatus();
}

bool CpuEngine::PollStep(StepResult* result) {
  {
    std::lock_guard lock(mutex_);
    if (step_phase_ != Phase::kDone) return false;
    step_phase_ = Phase::kIdle;
  }
  *result = step_;
  return true;
}

void CpuEngine::WorkerMain() {
  while (true) {
    switch (NextTask()) {
      case Task::kLeave:
        return;
      case Task::kEncode:
        RunEncodeSlice();
        break;
      case Task::kStep:
        RunStep();
        break;
    }
  }
}

CpuEngine::Task CpuEngine::NextTask() {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [this] {
    return leaving_ || encode_phase_ == Phase::kInFlight || step_phase_ == Phase::kInFlight;
  });
  if (leaving_) return Task::kLeave;
  if (encode_phase_ != Phase::kInFlight) return Task::kStep;
  const bool turn_over = encode_turn_ns_ >= kEncodeTurn.count();
  return step_phase_ == Phase::kInFlight && turn_over ? Task::kStep : Task::kEncode;
}

void CpuEngine::RunEncodeSlice() {
  const int64_t begin = NowNs();
  if (!encode_begun_) encoder_->Begin(encode_sources_);
  encode_begun_ = !encoder_->Advance();
  encode_turn_ns_ += NowNs() - begin;
  if (encode_begun_) return;
  {
    std::lock_guard lock(mutex_);
    encode_phase_ = Phase::kDone;
  }
  notifier_->Notify();
}

void CpuEngine::RunStep() {
  runner_->Run(&step_);
  encode_turn_ns_ = 0;
  {
    std::lock_guard lock(mutex_);
    step_phase_ = Phase::kDone;
  }
  notifier_->Notify();
}

}  // namespace seq2seq::cpu
