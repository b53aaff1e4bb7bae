// The decoder stack: tokens in, logits out, keys and values into the KV pool.
#ifndef SEQ2SEQ_BACKEND_CPU_DECODER_H_
#define SEQ2SEQ_BACKEND_CPU_DECODER_H_

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

// One token of one sequence.
struct DecoderToken {
  int32_t token = 0;  // in the vocabulary
  int32_t position =
      0;  // its place in the sequence; all places before are in the cache or added earlier
  const BlockId* self_blocks = nullptr;   // enough for `position`
  const BlockId* cross_blocks = nullptr;  // filled by the encoder
  int32_t source_length = 0;
  int32_t logits_row =
      -1;  // where its logits go, each row once; -1: only its keys and values matter
};

struct DecoderOptions {
  int32_t max_logits_rows = 0;
  int32_t max_source_tokens = 0;
  int32_t max_decoder_tokens = 0;
};

// Computes any mix of sequences and positions, token-packed. Fp32 throughout, from weights of any
// dtype; a token's values do not depend on the others in the batch. Use: Add() every token,
// ComputeLogits(), read logits(). One thread; borrows all of its arguments. Memory: all allocated
// by Create().
class Decoder {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Decoder>> Create(const Weights* weights,
                                                               const Compute& compute, KvPool* kv,
                                                               const DecoderOptions& options);

  void Add(const DecoderToken& token);
  // Ends the batch: logits of rows [0, rows).
  void ComputeLogits(int32_t rows);
  // May be changed by the caller until the next Add().
  std::span<float> logits(int32_t row) {
    return {logits_.row(row), static_cast<size_t>(weights_->spec().vocab_size)};
  }

 private:
  Decoder(const Weights* weights, const Compute& compute, KvPool* kv);
  // Hands out the scratch memory; with `base` null only counts. Returns the floats needed.
  size_t LayOut(float* base, const DecoderOptions& options);

  // Runs the tokens added so far through all layers.
  void Flush();
  void RunSelfAttention(int32_t layer);
  void RunCrossAttention(int32_t layer);
  void RunFeedForward(int32_t layer);
  void CollectHeadInputs();
  const PositionBias& BiasOf(int32_t layer) const {
    return position_bias_[position_bias_.size() > 1 ? layer : 0];
  }
  // Attention of one head for the tokens [begin, end).
  void AttendSelf(int32_t layer, int32_t head, int32_t begin, int32_t end, float* scores);
  void AttendCross(int32_t layer, int32_t head, int32_t begin, int32_t end, float* scores);
  // Calls attend(head, first token, end, scores) for all heads and tokens, in parallel. Tokens of
  // one sequence stay together.
  template <typename Attend>
  void ForHeads(const Attend& attend);

  const Weights* weights_;
  Compute compute_;
  KvPool* kv_;
  std::vector<PositionBias> position_bias_;  // one, or one a layer
  std::vector<DecoderToken> tokens_;         // reserved
  size_t max_tokens_ = 0;                    // in one pass through the layers
  bool sequences_repeat_ = false;            // some sequence has several of the tokens
  AnonymousMemory memory_;
  Rows hidden_, normed_, qkv_, attended_, ffn_, ffn_up_;  // [max_tokens_, ...]
  Rows head_input_, logits_;                              // [max_logits_rows, ...]
  Rows scores_;                                           // [threads, positions]
};

}  // namespace seq2seq::cpu

#endif  // SEQ2SEQ_BACKEND_CPU_DECODER_H_
