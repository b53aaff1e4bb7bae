// A T5-shaped checkpoint of random numbers that never was a file: for speed measurements, where
// only shapes matter.
#ifndef SEQ2SEQ_BACKEND_TESTING_SYNTHETIC_CHECKPOINT_H_
#define SEQ2SEQ_BACKEND_TESTING_SYNTHETIC_CHECKPOINT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/core/dtype.h"
#include "backend/model/checkpoint.h"

namespace seq2seq {

struct SyntheticShape {
  int32_t vocab_size = 0;
  int32_t d_model = 0;
  int32_t head_dim = 0;
  int32_t heads = 0;
  int32_t d_ff = 0;
  int32_t encoder_layers = 0;
  int32_t decoder_layers = 0;
  bool gated = true;
};

// All matrices are views into one block of normal numbers with deviation 0.02, at offsets that
// differ; norm weights are ones.
class SyntheticCheckpoint final : public Checkpoint {
 public:
  SyntheticCheckpoint(const SyntheticShape& shape, DType dtype);

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

#endif  // SEQ2SEQ_BACKEND_TESTING_SYNTHETIC_CHECKPOINT_H_
