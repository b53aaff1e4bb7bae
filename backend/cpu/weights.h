// A checkpoint's weights as the CPU engine computes with them.
#ifndef SEQ2SEQ_BACKEND_CPU_WEIGHTS_H_
#define SEQ2SEQ_BACKEND_CPU_WEIGHTS_H_

#include <memory>
#include <optional>
#include <vector>

#include "backend/core/dtype.h"
#include "backend/core/status.h"
#include "backend/cpu/anonymous_memory.h"
#include "backend/cpu/packed_matrix.h"
#include "backend/model/checkpoint.h"
#include "backend/model/model_spec.h"

namespace seq2seq::cpu {

struct Linear {
  PackedMatrix matrix;      // no outputs: the family does not have it
  std::vector<float> bias;  // [outputs] or empty
};

struct SelfAttention {
  std::vector<float> norm;
  Linear qkv;  // q, k and v stacked
  Linear out;
};

struct CrossAttention {
  std::vector<float> norm;
  Linear q;
  Linear kv;  // k and v stacked; applied to the encoder's output
  Linear out;
};

struct FeedForward {
  std::vector<float> norm;
  Linear gate;  // absent unless gated
  Linear up;
  Linear down;
};

struct Layer {
  SelfAttention self;
  CrossAttention cross;  // decoder only
  FeedForward ffn;
  std::vector<float> position_bias;  // [buckets, heads]; empty: as in layer 0
};

struct Stack {
  PackedMatrix embedding;
  std::vector<Layer> layers;
  std::vector<float> final_norm;
};

// Immutable, shared by the engines of one model that use one dtype; safe from any thread. Matrices
// stay in the format they are stored in (or cast to) and are widened where they are used; one copy
// in all: a tied head and the embeddings are the same memory. Does not need the checkpoint once
// made.
class Weights {
 public:
  // `dtype` absent: as stored. kUnsupported if the CPU engine lacks something that the spec asks
  // for; kInvalidArgument if values do not fit `dtype` or memory is short.
  [[nodiscard]] static Result<std::shared_ptr<const Weights>> Make(const Checkpoint& checkpoint,
                                                                   std::optional<DType> dtype);

  const ModelSpec& spec() const { return spec_; }
  const Stack& encoder() const { return encoder_; }
  const Stack& decoder() const { return decoder_; }
  const Linear& head() const { return head_; }

 private:
  Status Fill(const Checkpoint& checkpoint, std::optional<DType> dtype);

  ModelSpec spec_;
  Stack encoder_;
  Stack decoder_;
  Linear head_;
  AnonymousMemory memory_;
};

}  // namespace seq2seq::cpu

#endif  // SEQ2SEQ_BACKEND_CPU_WEIGHTS_H_
