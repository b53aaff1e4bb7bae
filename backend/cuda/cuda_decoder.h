// Decode steps on the device: slots, KV cache reads and writes, token choice.
#ifndef SEQ2SEQ_BACKEND_CUDA_CUDA_DECODER_H_
#define SEQ2SEQ_BACKEND_CUDA_CUDA_DECODER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
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
// Decoder prefixes take a pass of their rows alone for each token before the pass that chooses
// tokens. A step has kMaxPasses at most: a longer prefix takes several steps, and brings a token in
// the last of them only.
//
// Threads: Launch() and SignalEnd() from one thread; Wait() from another, after SignalEnd() of that
// step; Read() after Wait() of it. Both threads must have the device current.
class CudaDecoder {
 public:
  // Steps whose results may be unread at a time.
  static constexpr int32_t kRing = 2;
  static constexpr int32_t kMaxPasses = 16;

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

  // Lets Wait() know where it ends: at `ended`, which stream() has recorded behind it.
  [[nodiscard]] Status SignalEnd(uint64_t sequence, const CudaEvent& ended);

  // Where Launch() queues.
  cudaStream_t stream() const { return stream_.get(); }

  // Sleeps until that step has ended.
  [[nodiscard]] Status Wait(uint64_t sequence);

  // Fills *result but its step number from that step.
  void Read(uint64_t sequence, StepResult* result) const;

 private:
  class GraphBuilder;
  struct Bucket {
    int32_t rows = 0;
    CudaGraph graph;
  };

  // A decoder prefix of more than kMaxPasses tokens, as the next step finds it. The device gets it
  // by and by: each step binds the slot anew, with its next tokens.
  struct LongPrefix {
    kernels::SlotState state;
    int32_t consumed = 0;  // of its tokens in prefix_tokens_
  };
  // What a launched step says of its rows.
  struct RowsInFlight {
    std::vector<SlotId> slots;
    std::vector<int32_t> outcomes;  // whose of outcomes_, or -1: no token in this step
  };
  // A bind record's part of the upload.
  struct BindLists {
    std::span<const int32_t> pending;
    std::span<const BlockId> self;
    std::span<const BlockId> cross;
  };

  CudaDecoder(std::shared_ptr<const DeviceWeights> weights, const KvPool* pool,
              const Limits& limits)
      : weights_(std::move(weights)), pool_(pool), limits_(limits) {}
  Status Allocate();
  Status AllocateStepBuffers();
  Status CaptureGraphs();
  bool SameRows(const StepPlan& plan) const;
  void NotePrefixes(const StepPlan& plan);
  std::span<int32_t> PrefixTokens(SlotId slot);
  int32_t DivideRows(const StepPlan& plan, RowsInFlight* flying);
  void ConsumePrefixes(const StepPlan& plan, int32_t passes);
  size_t WriteBinds(const StepPlan& plan, std::byte* upload, int32_t* count);
  size_t WriteRows(std::span<const SlotId> rows, const kernels::StepHeader& header,
                   std::byte* upload) const;
  Status CopyUpload(const void* from, size_t bytes);
  Status Upload(const StepPlan& plan, const kernels::StepHeader& header);
  Status LaunchPass(int32_t rows, bool begun);
  Status LaunchPrefixPasses(kernels::StepHeader header);
  Status LaunchPasses(const StepPlan& plan, uint64_t sequence, int32_t passes, bool same_rows);
  const Bucket& BucketFor(int32_t rows) const;

  std::shared_ptr<const DeviceWeights> weights_;
  const KvPool* pool_;
  Limits limits_;
  int32_t row_capacity_ = 0;
  bool dependent_launch_ = false;
  CudaStream stream_;
  CudaStream signals_;
  CudaEvent finished_[kRing];  // on signals_

  // A step's uploads: header, rows, bind records, words. The same layout in both memories; header
  // and rows of passes after the first are copied from later_passes_: headers, and the rows of the
  // last pass.
  size_t rows_offset_ = 0;
  size_t binds_offset_ = 0;
  size_t words_offset_ = 0;
  PinnedBuffer host_uploads_[kRing];
  PinnedBuffer later_passes_[kRing];
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
  std::vector<int32_t> pending_counts_;       // by slot: tokens to consume yet, 0 for one
  std::vector<LongPrefix> long_prefixes_;     // by slot
  std::unique_ptr<int32_t[]> prefix_tokens_;  // [max_slots][max_decoder_tokens], of long prefixes
  std::vector<SlotId> prefix_rows_;           // of the passes before a step's last
  std::vector<SlotId> last_rows_;             // of the last pass, as the device has them
  RowsInFlight rows_in_flight_[kRing];
  bool rows_known_ = false;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CUDA_CUDA_DECODER_H_
