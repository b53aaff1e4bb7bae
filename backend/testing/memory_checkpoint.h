// A T5 checkpoint that never was a file, for measurements on large shapes: making and writing all
// of its numbers would take longer than what is measured.
#ifndef SEQ2SEQ_BACKEND_TESTING_MEMORY_CHECKPOINT_H_
#define SEQ2SEQ_BACKEND_TESTING_MEMORY_CHECKPOINT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/core/dtype.h"
#include "backend/model/checkpoint.h"
#include "backend/testing/tiny_checkpoint.h"

namespace seq2seq {

// Of the shape and number format that the options say (model type, config and generation_config
// aside); the head is its own. All matrices are views into one block of numbers, uniform with a
// deviation of 0.02, at offsets that differ; norm weights are ones.
class MemoryCheckpoint final : public Checkpoint {
 public:
  explicit MemoryCheckpoint(const TinyCheckpointOptions& options);

  const ModelSpec& spec() const override { return spec_; }
  const GenerationConfig& generation() const override { return generation_; }
  const StackWeights& encoder() const override { return encoder_; }
  const StackWeights& decoder() const override { return decoder_; }
  const TensorView& lm_head() const override { return lm_head_; }

 private:
  TensorView Matrix(int64_t rows, int64_t columns);
  NormWeights Norm() const;
  AttentionWeights Attention();
  StackWeights Stack(const StackSpec& stack, bool decoder);

  DType dtype_;
  std::vector<std::byte> numbers_;
  std::vector<std::byte> ones_;
  int64_t capacity_ = 0;  // elements of numbers_
  int64_t next_ = 0;
  ModelSpec spec_;
  GenerationConfig generation_;
  StackWeights encoder_;
  StackWeights decoder_;
  TensorView lm_head_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TESTING_MEMORY_CHECKPOINT_H_
