// The engine on the CPU.
#ifndef SEQ2SEQ_BACKEND_CPU_CPU_ENGINE_H_
#define SEQ2SEQ_BACKEND_CPU_CPU_ENGINE_H_

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "backend/core/ids.h"
#include "backend/core/notifier.h"
#include "backend/core/sampling_options.h"
#include "backend/core/status.h"
#include "backend/cpu/decoder.h"
#include "backend/cpu/encoder.h"
#include "backend/cpu/kv_pool.h"
#include "backend/cpu/slot_table.h"
#include "backend/cpu/thread_pool.h"
#include "backend/cpu/weights.h"
#include "backend/engine/engine.h"
#include "backend/engine/sampling.h"

namespace seq2seq::cpu {

struct CpuEngineOptions {
  int32_t max_slots = 0;           // >= 1
  int32_t max_source_tokens = 0;   // >= 1
  int32_t max_decoder_tokens = 0;  // >= 1
  int32_t threads = 1;             // >= 1
  std::optional<int64_t> kv_cache_bytes;  // absent: kDefaultKvCacheBytes
  std::vector<int32_t> eos_token_ids;
};

// One worker thread runs encodes and steps, in turns, on a pool of threads that are its own; so all
// threads serve whatever runs. While both wait, encodes get kEncodeTurn of time between two steps, in
// slices of a few milliseconds: running sequences slow down by a bounded amount, and newcomers join
// soon, which fills the batch and thereby helps everybody.
class CpuEngine final : public Engine {
 public:
  static constexpr int64_t kDefaultKvCacheBytes = int64_t{1} << 30;

  // kInvalidArgument names the option that does not fit. `notifier` must outlive the engine.
  [[nodiscard]] static Result<std::unique_ptr<CpuEngine>> Create(
      std::shared_ptr<const Weights> weights, const CpuEngineOptions& options, Notifier* notifier);
  ~CpuEngine() override;

  const EngineInfo& info() const override { return info_; }
  Status Health() const override { return OkStatus(); }  // nothing here can get lost
  [[nodiscard]] Status StartEncode(std::span<const EncodeItem> batch) override;
  void PollEncoded(std::vector<EncodeDone>* done) override;
  [[nodiscard]] Status Launch(const StepPlan& plan) override;
  bool PollStep(StepResult* result) override;

 private:
  enum class Phase : uint8_t { kIdle, kWaiting, kRunning, kDone };
  enum class Task : uint8_t { kLeave, kEncode, kStep };

  CpuEngine(std::shared_ptr<const Weights> weights, const CpuEngineOptions& options,
            Notifier* notifier);
  // Everything that can fail or throw.
  Status Start(const CpuEngineOptions& options);

  // An error if the source can't be encoded; it concerns this item alone.
  Status CheckItem(const EncodeItem& item) const;

  void WorkerMain();
  // Blocks until there is something to do.
  Task NextTask();
  void RunEncodeSlice();
  void RunStep();
  void FeedRow(int32_t row, Slot* slot);
  void ChooseToken(int32_t row, int32_t thread);

  std::shared_ptr<const Weights> weights_;
  std::vector<int32_t> eos_token_ids_;
  Notifier* notifier_;
  EngineInfo info_;
  std::unique_ptr<ThreadPool> pool_;
  std::optional<KvPool> kv_;
  std::unique_ptr<Encoder> encoder_;
  std::unique_ptr<Decoder> decoder_;
  std::vector<Sampler> samplers_;  // one a thread
  std::optional<SlotTable> slots_;  // the scheduler's between steps, the worker's during one

  // The batch being encoded, the step being run: written by the scheduler's thread while the phase is
  // kIdle, by the worker until it is kDone.
  std::vector<EncodeDone> encode_results_;
  std::vector<EncoderSource> encode_sources_;
  StepResult step_;
  std::vector<SlotId> step_rows_;
  std::vector<TokenChoice> choices_;  // by row
  int64_t encode_turn_ns_ = 0;        // worker's: time of encodes since the last step

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  Phase encode_phase_ = Phase::kIdle;  // under mutex_
  Phase step_phase_ = Phase::kIdle;    // under mutex_
  bool leaving_ = false;               // under mutex_
  std::thread worker_;
};

}  // namespace seq2seq::cpu

#endif  // SEQ2SEQ_BACKEND_CPU_CPU_ENGINE_H_
