// Checkpoints that never were files, of any family that a ModelSpec can describe.
#ifndef SEQ2SEQ_BACKEND_TESTING_MEMORY_CHECKPOINT_H_
#define SEQ2SEQ_BACKEND_TESTING_MEMORY_CHECKPOINT_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "backend/core/dtype.h"
#include "backend/model/checkpoint.h"
#include "backend/testing/random_weights.h"
#include "backend/testing/tiny_checkpoint.h"

namespace seq2seq {

enum class MemoryNumbers : uint8_t {
  // Uniform with a variance of 1 / inputs, so that activations neither vanish nor explode; norm
  // weights lie in [0.75, 1.25], biases in [-0.5, 0.5]. For small shapes.
  kOwn,
  // All tensors are views into one block of numbers, uniform with a deviation of 0.02, at offsets
  // that differ; norm weights are ones. For measurements on large shapes: making all of their
  // numbers would take longer than what is measured.
  kShared,
};

struct MemoryCheckpointOptions {
  ModelSpec spec;
  bool biases = false;  // of all projections but a gated feed-forward's, of norms and of the logits
  DType dtype = DType::kFloat32;
  uint64_t seed = 1;
  MemoryNumbers numbers = MemoryNumbers::kOwn;
};

// A T5 of kShared numbers, of the shape and number format that the options say (model type, config
// and generation_config aside); the head is its own.
MemoryCheckpointOptions LargeT5(const TinyCheckpointOptions& options);

// The embedding is shared by both stacks, and the head is it too if spec.tied_head; each stack has
// a table of positions of its own. EOS is 1.
class MemoryCheckpoint final : public Checkpoint {
 public:
  explicit MemoryCheckpoint(const MemoryCheckpointOptions& options);
  explicit MemoryCheckpoint(const TinyCheckpointOptions& options)
      : MemoryCheckpoint(LargeT5(options)) {}

  const ModelSpec& spec() const override { return options_.spec; }
  const GenerationConfig& generation() const override { return generation_; }
  const StackWeights& encoder() const override { return encoder_; }
  const StackWeights& decoder() const override { return decoder_; }
  const TensorView& lm_head() const override { return lm_head_; }

 private:
  void MakeBlock();
  TensorView Numbers(std::vector<int64_t> shape, float center, float spread);
  TensorView Tensor(std::vector<int64_t> shape, float spread);
  TensorView Matrix(int64_t outputs, int64_t inputs);
  TensorView Bias(int64_t outputs);
  LinearWeights Linear(int64_t outputs, int64_t inputs);
  NormWeights Norm();
  AttentionWeights Attention(int64_t inner);
  FfnWeights FeedForward(int64_t d_ff);
  StackWeights Stack(const StackSpec& stack, bool decoder);

  const MemoryCheckpointOptions options_;
  WeightSource source_;
  std::deque<std::vector<std::byte>> numbers_;  // views point into them
  TensorView block_;                            // kShared: the first of numbers_
  int64_t next_ = 0;                            // in the block
  GenerationConfig generation_;
  StackWeights encoder_;
  StackWeights decoder_;
  TensorView lm_head_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TESTING_MEMORY_CHECKPOINT_H_
