// The encoder stack: sources in, cross-attention keys and values into the KV pool.
#ifndef SEQ2SEQ_BACKEND_CPU_ENCODER_H_
#define SEQ2SEQ_BACKEND_CPU_ENCODER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/core/ids.h"
#include "backend/core/status.h"
#include "backend/cpu/anonymous_memory.h"
#include "backend/cpu/compute.h"
#include "backend/cpu/kv_pool.h"
#include "backend/cpu/relative_positions.h"
#include "backend/cpu/weights.h"

namespace seq2seq::cpu {

struct EncoderOptions {
  int32_t max_items = 0;          // sources of one batch
  int32_t max_tokens = 0;         // their tokens together
  int32_t max_source_tokens = 0;  // of one source; <= max_tokens
};

struct EncoderSource {
  std::span<const int32_t> ids;           // in the vocabulary, at least one
  std::span<const BlockId> cross_blocks;  // enough for ids.size() positions
};

// Encodes batches of sources, token-packed: rows of all sources lie one after the other without
// padding, and attention stays inside each source. Fp32 throughout; a source's values do not depend
// on the others.
//
// The work is cut into slices of at most kSliceTokens rows of one layer, so that its owner can do
// other things between them: Begin() a batch, then Advance() until it returns true. One thread;
// borrows all of its arguments. Memory: all allocated by Create().
class Encoder {
 public:
  static constexpr int32_t kSliceTokens = 256;

  [[nodiscard]] static Result<std::unique_ptr<Encoder>> Create(const Weights* weights,
                                                               const Compute& compute, KvPool* kv,
                                                               const EncoderOptions& options);

  // Only when the last batch has ended. What the spans point to must live until this batch has. An
  // empty batch ends at once.
  void Begin(std::span<const EncoderSource> batch);
  // Runs one slice. Returns true once the batch has ended: its cross blocks are filled.
  bool Advance();

  int32_t max_source_tokens() const { return max_source_tokens_; }

 private:
  struct Source {
    int32_t first_row = 0;
    int32_t length = 0;
    EncoderSource spans;
  };
  // The rows of one source within a slice.
  struct Segment {
    const Source* source;
    int32_t begin;  // rows of the batch
    int32_t end;
  };

  Encoder(const Weights* weights, const Compute& compute, KvPool* kv);
  // Hands out the scratch memory; with `base` null only counts. Returns the floats needed.
  size_t LayOut(float* base, const EncoderOptions& options);

  // The three kinds of slices: q, k and v of a layer; the rest of the layer; a decoder layer's keys
  // and values.
  void ProjectLayer(int32_t layer, int32_t begin, int32_t end);
  void FinishLayer(int32_t layer, int32_t begin, int32_t end);
  void WriteCross(int32_t layer, int32_t begin, int32_t end);

  void Embed(int32_t begin, int32_t end);
  void FindSegments(int32_t begin, int32_t end);
  // Attention of one head for one segment; writes rows of attended_, the slice's first row at 0.
  void Attend(int32_t layer, int32_t head, const Segment& segment, int32_t slice_begin,
              float* scratch);
  void PackHead(const Source& source, int32_t head, float* keys, float* values) const;
  const PositionBias& BiasOf(int32_t layer) const {
    return position_bias_[position_bias_.size() > 1 ? layer : 0];
  }

  const Weights* weights_;
  Compute compute_;
  KvPool* kv_;
  std::vector<PositionBias> position_bias_;  // one, or one a layer
  std::vector<Source> sources_;              // reserved
  std::vector<Segment> segments_;            // reserved
  int32_t rows_ = 0;
  int32_t next_slice_ = 0;
  int32_t max_source_tokens_ = 0;
  size_t value_panels_ = 0;   // of one head
  size_t padded_source_ = 0;  // max_source_tokens_ rounded up to whole panels
  AnonymousMemory memory_;
  Rows hidden_, qkv_;                              // [max_tokens, ...]
  Rows normed_, attended_, ffn_, ffn_up_, cross_;  // [kSliceTokens, ...]
  Rows scratch_;                                   // [threads, keys + values + scores]
};

}  // namespace seq2seq::cpu

#endif  // SEQ2SEQ_BACKEND_CPU_ENCODER_H_
