// Runs the encoder on a batch of sources and fills their cross-attention blocks.
#ifndef SEQ2SEQ_BACKEND_CUDA_CUDA_ENCODER_H_
#define SEQ2SEQ_BACKEND_CUDA_CUDA_ENCODER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/core/status.h"
#include "backend/cuda/cublas_lt.h"
#include "backend/cuda/cuda_event.h"
#include "backend/cuda/cuda_graph.h"
#include "backend/cuda/cuda_stream.h"
#include "backend/cuda/device_buffer.h"
#include "backend/cuda/device_turns.h"
#include "backend/cuda/device_weights.h"
#include "backend/cuda/kv_pool.h"
#include "backend/cuda/layer_norms.h"
#include "backend/cuda/pinned_buffer.h"
#include "backend/cuda/token_matmul.h"
#include "backend/engine/engine.h"
#include "backend/kernels/encoder_attention.h"
#include "backend/kernels/layer_norm.h"

namespace seq2seq {

// Sources are packed one after the other. All buffers are allocated at creation, for `max_tokens`
// tokens and `max_items` sources. One thread at a time, which must have the device current.
//
// In half precision a batch that is one slice is padded at its end to a size that there is a graph
// for: one launch (10 us) instead of 200 (1.2 ms), and less time between the kernels.
class CudaEncoder {
 public:
  struct Limits {
    int32_t max_tokens = 0;
    int32_t max_items = 0;
    int32_t warm_up_tokens = 0;  // of one source, >= 1; the pool has blocks for it
  };

  // Encodes a source of nothing in particular into the pool's first blocks: the first launch of a
  // kernel loads it. `pool` and `turns` must outlive the encoder.
  [[nodiscard]] static Result<std::unique_ptr<CudaEncoder>> Create(
      std::shared_ptr<const DeviceWeights> weights, std::shared_ptr<const CublasLt> lt,
      const KvPool* pool, DeviceTurns* turns, const Limits& limits);

  // Queues the encode of `batch` in slices that take turns with decode steps, and returns when the
  // last one is queued: of that one, and the one before it, the device may have all to do yet.
  // Sleeps while it waits for earlier ones. Whatever `turns` lets queue from then on comes behind
  // the encode (DeviceTurns): steps find its cross-attention blocks filled, and the blocks may go
  // to others. `batch` and what it points to are not looked at any more.
  //
  // Call Wait() before the next Encode(), which uses the same buffers; after an error, or if it
  // throws, Recover() instead.
  [[nodiscard]] Status Encode(std::span<const EncodeItem> batch);

  // Whether Encode() would neither sleep nor take longer than the launch of a step.
  bool QueuesAtOnce(std::span<const EncodeItem> batch) const {
    return BucketFor(ShapeOf(batch)) != nullptr;
  }

  // Sleeps until the device has done what Encode() queued. An error means that the device is lost:
  // what can be wrong with a batch alone shows while it is queued.
  [[nodiscard]] Status Wait();

  // Waits until nothing of a failed Encode() can touch its blocks any more. OK if others can
  // follow; else the device is lost.
  [[nodiscard]] Status Recover();

 private:
  // Of a packed batch.
  struct Shape {
    int32_t tokens = 0;
    int32_t tiles = 0;
    int64_t scores = 0;  // of one head: each source's length squared
  };
  // All parts for batches of up to so many tokens and tiles.
  struct Bucket {
    Shape shape;
    CudaGraph graph;
  };

  CudaEncoder(std::shared_ptr<const DeviceWeights> weights, const KvPool* pool, DeviceTurns* turns,
              const Limits& limits)
      : weights_(std::move(weights)), pool_(pool), turns_(turns), limits_(limits) {}
  static Shape ShapeOf(std::span<const EncodeItem> batch);
  const Bucket* BucketFor(const Shape& shape) const;
  Status Allocate();
  Status Tune();
  Status CaptureGraphs();
  Status WarmUp();
  Status UploadBatch(std::span<const EncodeItem> batch);
  Status Upload(std::span<const EncodeItem> batch);
  Status Attention(size_t layer);
  Status FeedForward(size_t layer);
  Status QueueLayer(int32_t layer);
  Status FillCrossBlocks(int32_t group);
  Status QueuePart(int32_t part);
  Status QueueSlice();
  Status WaitForSlices(int32_t count);
  int64_t OperationsOf(int32_t part) const;
  bool IsOneSlice() const;
  int32_t TunedTokens() const;
  int32_t CrossLayersAtOnce() const;
  int32_t CrossLayersOf(int32_t group) const;
  int32_t CrossGroups() const;
  int32_t Parts() const { return weights_->spec.encoder.layers + CrossGroups(); }
  Status Start();
  Status NormRows(const NormOnDevice& own, const NormOnDevice& next);
  Status RunLayerNorm(const kernels::LayerNormArgs& args);
  LayerNorms Norms() const;
  // The products: what multiplies what, and where it goes.
  TokenMatmulArgs Product(const LinearOnDevice& weight, int32_t outputs, const DeviceBuffer& input,
                          int32_t inputs) const;
  TokenMatmulArgs AddedProduct(const LinearOnDevice& weight, int32_t inputs) const;
  TokenMatmulArgs QueryKeyValue(size_t layer) const;
  TokenMatmulArgs AttentionOut(size_t layer) const;
  TokenMatmulArgs FfnIn(size_t layer) const;
  TokenMatmulArgs FfnOut(size_t layer) const;
  TokenMatmulArgs CrossKeyValues(int32_t first_layer, int32_t layers) const;
  const int32_t* ids() const;  // on the device; the places follow, then the positions
  size_t InputBytes(const Shape& shape) const;

  std::shared_ptr<const DeviceWeights> weights_;
  const KvPool* pool_;
  DeviceTurns* turns_;
  Limits limits_;
  CudaStream stream_;
  CudaEvent finished_[2];  // of a slice and the one after it
  int32_t slices_ = 0;     // queued, of the batch
  std::unique_ptr<TokenMatmul> matmul_;
  // What a batch brings: tiles, ids, places in the pool and, where the model has a table of
  // positions, those. The same layout in both memories.
  PinnedBuffer host_inputs_;
  DeviceBuffer inputs_;
  DeviceBuffer values_;  // float [tokens][d_model], the residual stream
  DeviceBuffer normed_;  // [tokens][d_model]
  DeviceBuffer wide_;    // [tokens][3 inner], [tokens][2 d_ff] or [tokens][layers][2 decoder inner]
  DeviceBuffer narrow_;  // [tokens][inner] or [tokens][d_ff]
  std::vector<Bucket> buckets_;     // ascending
  Shape shape_;                     // of the batch, with its pads
  const Bucket* bucket_ = nullptr;  // of the batch; null: its parts are launched one by one
  int32_t next_part_ = 0;           // to queue: the encoder's layers, then groups of the decoder's
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CUDA_CUDA_ENCODER_H_
