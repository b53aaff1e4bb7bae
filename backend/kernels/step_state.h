// What the device keeps for running sequences, and the kernels that change it between steps.
//
// A slot's state lives in device tables; a step reads it through its rows. All pointers here are
// device pointers.
#ifndef SEQ2SEQ_BACKEND_KERNELS_STEP_STATE_H_
#define SEQ2SEQ_BACKEND_KERNELS_STEP_STATE_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "backend/kernels/element_type.h"
#include "backend/kernels/launch.h"

namespace seq2seq::kernels {

// One sequence. Written by LaunchBindSlots and by the step that chooses its next token.
struct SlotState {
  uint64_t seed = 0;
  int32_t position = 0;   // decoder tokens in the self-attention cache
  int32_t generated = 0;  // new tokens chosen so far
  int32_t pending_count =
      0;  // tokens of SlotTables::pending that the next step consumes; 0: next_token
  int32_t next_token = 0;
  int32_t min_new_tokens = 0;
  int32_t max_new_tokens = 0;
  int32_t source_length = 0;
  int32_t ended = 0;
  int32_t do_sample = 0;
  int32_t top_k = 0;
  float temperature = 1.0F;
  float top_p = 1.0F;
  float min_p = 0.0F;
  float typical_p = 1.0F;
  int32_t return_logprobs = 0;
  float score = 0.0F;  // sum of the log-probabilities of the new tokens
};

struct SlotTables {
  SlotState* states = nullptr;      // [max_slots]
  int32_t* pending = nullptr;       // [max_slots][pending_stride] decoder tokens to consume
  int32_t* self_blocks = nullptr;   // [max_slots][self_stride] KV blocks in order of position
  int32_t* cross_blocks = nullptr;  // [max_slots][cross_stride]
  int32_t pending_stride = 0;
  int32_t self_stride = 0;
  int32_t cross_stride = 0;
};

// One sequence to put into a slot. Its lists lie one after the other in the upload's words, from
// `first_word` on: pending tokens (state.pending_count), self blocks, cross blocks.
struct BindUpload {
  SlotState state;
  int32_t slot = 0;
  int32_t first_word = 0;
  int32_t self_count = 0;
  int32_t cross_count = 0;
};

// One pass through the decoder. Slots with several pending tokens need several passes: the last
// pass of a step is the one that chooses tokens, and a slot with p pending tokens takes part in the
// last p passes.
struct StepHeader {
  int32_t rows = 0;  // rows in use; the rest of the bucket is idle
  int32_t pass = 0;  // 0 .. passes - 1
  int32_t passes = 1;
  int32_t ring = 0;  // where the results of this step go
  int32_t ring_size = 1;
};

// A row of the running pass. Read in one piece.
struct alignas(16) RowInfo {
  static constexpr int32_t kActive = 1;  // computes: writes its keys and values
  static constexpr int32_t kChoose = 2;  // chooses a token at the end of the pass
  static constexpr int32_t kBanEos = 4;
  static constexpr int32_t kSample = 8;  // wants the logits themselves

  int32_t slot = 0;
  int32_t position = 0;  // of the token that this pass feeds
  int32_t source_length = 0;
  int32_t flags = 0;
};

// The residual stream of one step, and what the next projection needs of it.
//
// RMSNorm is split: whoever writes the residual also writes x * weight * scale in the model's
// number format and sums of squares, one part per block; the projection multiplies its result by
// rsqrt(mean of squares + epsilon) / scale. `scale` is the factor of the norm before, which keeps
// float16 in range.
struct Residual {
  float* values = nullptr;  // [row_capacity][width]
  void* scaled = nullptr;   // [width / 32][row_capacity][32], the model's number format
  // [row_capacity][sum_stride] parts; sum_stride is a multiple of 4, and up to the next multiple of
  // 4 parts that are not in use are 0.
  float* sum_squares = nullptr;
  int32_t sum_stride = 0;
  int32_t width = 0;
  int32_t row_capacity = 0;
};

// Copies `count` bind records and their lists into the tables. `uploads` and `words` are device
// memory.
cudaError_t LaunchBindSlots(const BindUpload* uploads, const int32_t* words, int32_t count,
                            const SlotTables& tables, const LaunchContext& context);

struct BeginPassArgs {
  const StepHeader* header = nullptr;
  const int32_t* row_slots = nullptr;  // [rows] row -> slot
  SlotTables tables;
  RowInfo* rows = nullptr;             // out, [bucket]
  int32_t* rings = nullptr;            // out, [bucket]: where the row's result goes
  const void* embedding = nullptr;     // [vocabulary][width], the model's number format
  const float* norm_weight = nullptr;  // [width], of the first norm
  float epsilon = 0.0F;
  float* norm_scale = nullptr;  // out, [row_capacity]
  Residual residual;            // out, one part of sums
};

// Fills `rows` and `rings`, looks up the input tokens' embeddings and starts the residual stream
// with them. A step whose rows are those of the step before needs it not: LaunchChooseTokens has
// done it.
cudaError_t LaunchBeginPass(ElementType type, const BeginPassArgs& args, int32_t bucket,
                            const LaunchContext& context);

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_STEP_STATE_H_
