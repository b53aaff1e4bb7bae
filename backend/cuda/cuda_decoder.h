// Decode steps on the device: slots, KV cache reads and writes, token choice.
#ifndef SEQ2SEQ_BACKEND_CUDA_CUDA_DECODER_H_
#define SEQ2SEQ_BACKEND_CUDA_CUDA_DECODER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/core/status.h"
#include "backend/cuda/cuda_event.h"
#include "backend/cuda/cuda_graph.h"
#include "backend/cuda/cuda_stream.h"
#include "backend/cuda/device_buffer.h"
#include "backend/cuda/device_weights.h"
#include "backend/cuda/kv_pool.h"
#include "backend/cuda/pinned_buffer.h"
#include "backend/engine/step.h"
#include "backend/kernels/choose_token.h"
#include "backend/kernels/decode_attention.h"
#include "backend/kernels/projection.h"
#include "backend/kernels/step_state.h"

namespace seq2seq {

// A step is one launch of a captured graph (one a bucket of batch sizes), preceded by one small
// copy if the plan differs from the last. Its results go straight to pinned host memory.
//
// Threads: Launch() from one thread; Wait() from another; Read() after Wait() of that step. Both
// threads must have the device current.
class CudaDecoder {
 public:
  // Steps whose results may be unread at a time.
  static constexpr int32_t kRing = 2;

  struct Limits {
    int32_t max_slots = 0;
    int32_t max_source_tokens = 0;
    int32_t max_decoder_tokens = 0;
  };

  // Captures all graphs. `pool` must outlive the decoder.
  [[nodiscard]] static Result<std::unique_ptr<CudaDecoder>> Create(
      std::shared_ptr<const DeviceWeights> weights, const KvPool* pool, const Limits& limits);

  ~CudaDecoder();
  CudaDecoder(const CudaDecoder&) = delete;
  CudaDecoder& operator=(const CudaDecoder&) = delete;

  // Queues the step, which CallCheck has passed; it is the `sequence`th (0, 1, ...).
  [[nodiscard]] Status Launch(const StepPlan& plan, uint64_t sequence);

  // Where Launch() queues.
  cudaStream_t stream() const { return stream_.get(); }

  // Sleeps until that step has ended.
  [[nodiscard]] Status Wait(uint64_t sequence);

  // Fills *result but its step number from that step.
  void Read(uint64_t sequence, int32_t rows, StepResult* result) const;

 private:
  class GraphBuilder;
  struct Bucket {
    int32_t rows = 0;
    CudaGraph graph;
  };

  CudaDecoder(std::shared_ptr<const DeviceWeights> weights, const KvPool* pool,
              const Limits& limits)
      : weights_(std::move(weights)), pool_(pool), limits_(limits) {}
  Status Allocate();
  Status AllocateStepBuffers();
  Status CaptureGraphs();
  int32_t PassesFor(const StepPlan& plan);
  bool SameRows(const StepPlan& plan) const;
  Status Upload(const StepPlan& plan, uint64_t sequence, int32_t passes);
  Status LaunchPasses(const StepPlan& plan, uint64_t sequence, int32_t passes, bool begun);
  Status SignalEnd(uint64_t sequence);
  const Bucket& BucketFor(int32_t rows) const;

  std::shared_ptr<const DeviceWeights> weights_;
  const KvPool* pool_;
  Limits limits_;
  int32_t row_capacity_ = 0;
  bool dependent_launch_ = false;
  CudaStream stream_;
  CudaEvent ended_;  // the last step queued
  CudaStream signals_;
  CudaEvent finished_[kRing];  // on signals_

  // A step's uploads: header, rows, bind records, words. The same layout in both memories; the
  // header of each pass after the first is copied from pass_headers_.
  size_t rows_offset_ = 0;
  size_t binds_offset_ = 0;
  size_t words_offset_ = 0;
  PinnedBuffer host_uploads_[kRing];
  PinnedBuffer pass_headers_[kRing];
  DeviceBuffer uploads_;
  PinnedBuffer outcomes_;

  // By slot.
  kernels::SlotTables tables_;
  DeviceBuffer states_;
  DeviceBuffer pending_;
  DeviceBuffer self_blocks_;
  DeviceBuffer cross_blocks_;

  // Of the step that runs.
  DeviceBuffer row_infos_;
  DeviceBuffer rings_;   // int32 [rows]: where the running step's results go
  DeviceBuffer values_;  // float [rows][d_model]
  DeviceBuffer scaled_;  // blocked, see kernels::Residual
  DeviceBuffer sum_squares_;
  DeviceBuffer norm_scales_;  // float [2][rows]
  DeviceBuffer query_;        // float [rows][inner]
  DeviceBuffer attended_;     // blocked [inner]
  DeviceBuffer activated_;    // blocked [d_ff]
  DeviceBuffer logits_parts_;
  DeviceBuffer logits_;  // float [rows][vocabulary]

  std::vector<Bucket> buckets_;  // ascending

  // Host's view of what is queued.
  std::vector<int32_t> pending_counts_;  // by slot: tokens that its next step consumes, 0 for one
  std::vector<SlotId> last_rows_;        // of the last step, as the device has them
  bool rows_known_ = false;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CUDA_CUDA_DECODER_H_
