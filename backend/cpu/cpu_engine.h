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

#include "backend/core/notifier.h"
#include "backend/core/status.h"
#include "backend/cpu/encoder.h"
#include "backend/cpu/kv_pool.h"
#include "backend/cpu/step_runner.h"
#include "backend/cpu/thread_pool.h"
#include "backend/cpu/weights.h"
#include "backend/engine/call_check.h"
#include "backend/engine/engine.h"

namespace seq2seq::cpu {

struct CpuEngineOptions {
  int32_t max_slots = 0;                  // >= 1
  int32_t max_source_tokens = 0;          // >= 1
  int32_t max_decoder_tokens = 0;         // >= 1
  int32_t threads = 1;                    // >= 1
  std::optional<int64_t> kv_cache_bytes;  // absent: kDefaultKvCacheBytes
  std::vector<int32_t> eos_token_ids;
};

// One worker thread runs encodes and steps, in turns, on a pool of threads that are its own; so all
// threads serve whatever runs. While both wait, encodes get kEncodeTurn of time between two steps,
// in slices of a few milliseconds: running sequences slow down by a bounded amount, and newcomers
// join soon, which fills the batch and thereby helps everybody.
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
  enum class Phase : uint8_t { kIdle, kInFlight, kDone };
  enum class Task : uint8_t { kLeave, kEncode, kStep };

  CpuEngine(std::shared_ptr<const Weights> weights, Notifier* notifier);
  // Everything that can fail or throw.
  Status Start(const CpuEngineOptions& options);

  void WorkerMain();
  // Blocks until there is something to do.
  Task NextTask();
  void RunEncodeSlice();
  void RunStep();

  std::shared_ptr<const Weights> weights_;
  Notifier* notifier_;
  EngineInfo info_;
  std::unique_ptr<ThreadPool> pool_;
  std::optional<KvPool> kv_;
  std::optional<CallCheck> check_;

  // The batch being encoded and the step being run belong to the scheduler's thread while the phase
  // is kIdle or kDone, to the worker otherwise.
  std::unique_ptr<Encoder> encoder_;
  std::vector<EncodeDone> encode_results_;
  std::vector<EncoderSource> encode_sources_;
  std::unique_ptr<StepRunner> runner_;
  StepResult step_;

  bool encode_begun_ = false;   // the worker's
  int64_t encode_turn_ns_ = 0;  // the worker's: time of encodes since the last step

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  Phase encode_phase_ = Phase::kIdle;  // under mutex_
  Phase step_phase_ = Phase::kIdle;    // under mutex_
  bool leaving_ = false;               // under mutex_
  std::thread worker_;
};

}  // namespace seq2seq::cpu

#endif  // SEQ2SEQ_BACKEND_CPU_CPU_ENGINE_H_
