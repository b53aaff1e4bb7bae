// The engine on one CUDA device.
#ifndef SEQ2SEQ_BACKEND_CUDA_CUDA_ENGINE_H_
#define SEQ2SEQ_BACKEND_CUDA_CUDA_ENGINE_H_

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "backend/core/notifier.h"
#include "backend/core/status.h"
#include "backend/cuda/cublas_lt.h"
#include "backend/cuda/cuda_decoder.h"
#include "backend/cuda/cuda_encoder.h"
#include "backend/cuda/cuda_memory_copier.h"
#include "backend/cuda/device_turns.h"
#include "backend/cuda/device_weights.h"
#include "backend/cuda/kv_pool.h"
#include "backend/engine/call_check.h"
#include "backend/engine/engine.h"
#include "backend/engine/step.h"

namespace seq2seq {

// Of the free memory, for the KV cache where no option says how large it is; the rest is for
// activations, graphs, and other models.
inline constexpr double kKvMemoryShare = 0.6;

struct CudaEngineOptions {
  int32_t device_id = 0;
  int32_t max_active_sequences = 0;  // >= 1: slots
  int32_t max_source_tokens = 0;     // >= 1
  int32_t max_decoder_tokens = 0;    // >= 1: prefix and new tokens of one sequence together
  std::optional<int64_t> kv_cache_bytes;
  // Where kv_cache_bytes is absent: as much as all slots could use twice over, and at most this and
  // kKvMemoryShare of what is free.
  int64_t kv_cache_limit = std::numeric_limits<int64_t>::max();
  std::shared_ptr<const CublasLt> cublas_lt = nullptr;  // null: CublasLt::Load()
};

// Two threads of its own, asleep unless the device has news: one runs encodes, one waits for steps,
// which Launch() queues. The two take turns on the device. An encode that is one launch is queued
// by StartEncode() itself if the encoding thread is asleep: it would take 0.1 to 0.2 ms to wake up.
//
// An encode is reported when its last slice has been queued, so that its sequences' first step is
// queued right behind it: no thread has to wake up between the two. What that means for
//  - KV blocks of a source that is cancelled after the report, and go to another at once: the
//    other's encode comes later in the same stream, and steps that name the blocks, for cross- or
//    self-attention, were launched later and wait for the slices queued before them (DeviceTurns).
//  - a source that fails: it is reported when nothing of its batch can touch the blocks any more
//    (CudaEncoder::Recover()). The batch before it has ended then.
//  - a device that is lost after the report: the encoding thread waits for the end of each encode,
//    so the engine fails even if no step follows. Nothing is said of the sources again. The steps
//    in flight fail, and so does a batch that StartEncode() has taken meanwhile.
//  - the next batch: taken at once, but not looked at before the encode on the device has ended,
//    whose buffers and events it uses. So no slices of two encodes are queued at a time, and steps
//    launched meanwhile come between them.
class CudaEngine final : public Engine {
 public:
  // kInvalidArgument naming the option if they don't fit the model or the device. `weights` must
  // lie on the device; `notifier` must outlive the engine.
  [[nodiscard]] static Result<std::unique_ptr<Engine>> Create(
      std::shared_ptr<const DeviceWeights> weights, const CudaEngineOptions& options,
      Notifier* notifier);

  ~CudaEngine() override;

  const EngineInfo& info() const override { return info_; }
  Status Health() const override;
  [[nodiscard]] Status StartEncode(std::span<const EncodeItem> batch) override;
  void PollEncoded(std::vector<EncodeDone>* done) override;
  [[nodiscard]] Status Launch(const StepPlan& plan) override;
  bool PollStep(StepResult* result) override;
  MemoryCopier* memory_copier() override { return copier_.get(); }

 private:
  static constexpr uint64_t kRing = CudaDecoder::kRing;

  struct InFlight {
    uint64_t step = 0;
    Status status;  // written by the watching thread before completed_ counts the step
  };

  CudaEngine(const CudaEngineOptions& options, Notifier* notifier)
      : options_(options), notifier_(notifier) {}
  Status Build(std::shared_ptr<const DeviceWeights> weights);
  Status BuildPool(const DeviceWeights& weights);
  Status BuildAround(const std::shared_ptr<const DeviceWeights>& weights);
  Status BuildStages(const std::shared_ptr<const DeviceWeights>& weights,
                     const std::shared_ptr<const CublasLt>& lt);
  Status StartThreads();
  Status MakeCurrent() const;
  void Fail(const Error& error);
  void RunEncodes();
  void QueueEncode(const Status& device);
  Status QueueGoodSources(const Status& device);
  void EndEncode();
  void FailEncodes(const Status& status);
  void ReportEncodes();
  Status QueueStep(const StepPlan& plan);
  void WatchSteps();

  CudaEngineOptions options_;
  Notifier* notifier_;
  EngineInfo info_;
  std::optional<CallCheck> check_;
  KvPool pool_;
  DeviceTurns turns_;
  std::unique_ptr<CudaEncoder> encoder_;
  std::unique_ptr<CudaDecoder> decoder_;
  std::unique_ptr<CudaMemoryCopier> copier_;

  mutable std::mutex health_mutex_;
  Status health_;

  std::mutex encode_mutex_;
  std::condition_variable encode_condition_;
  std::vector<EncodeDone> encoded_;
  bool encode_in_flight_ = false;  // from StartEncode() until PollEncoded() has reported it
  // What the encoding thread has to do, and whether it has anything.
  bool encode_to_end_ = false;  // of a batch that StartEncode() has queued
  bool encode_to_queue_ = false;
  bool encode_thread_busy_ = false;
  bool stop_encoding_ = false;
  // The encoding thread's, or StartEncode()'s while that has nothing to do.
  std::vector<EncodeItem> encode_batch_;
  std::vector<EncodeDone> encode_results_;
  std::vector<EncodeItem> good_sources_;
  Status encode_queued_;  // of the batch: OK, or why it could not be

  // Steps are numbered from 0: launched_ >= completed_ >= polled_. The caller's thread writes
  // launched_ and polled_, the watching thread completed_.
  std::array<InFlight, kRing> in_flight_;
  std::mutex step_mutex_;
  std::condition_variable step_condition_;
  uint64_t launched_ = 0;  // guarded by step_mutex_
  bool stop_watching_ = false;
  std::atomic<uint64_t> completed_ = 0;
  uint64_t polled_ = 0;

  std::thread encode_thread_;
  std::thread step_thread_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CUDA_CUDA_ENGINE_H_
