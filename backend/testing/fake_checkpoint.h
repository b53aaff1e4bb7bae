// A Checkpoint without weights, for engines that need none.
#ifndef SEQ2SEQ_BACKEND_TESTING_FAKE_CHECKPOINT_H_
#define SEQ2SEQ_BACKEND_TESTING_FAKE_CHECKPOINT_H_

#include <utility>

#include "backend/model/checkpoint.h"

namespace seq2seq {

// Pad and start token are 0, EOS is 1, as in the T5 family; positions are unlimited.
class FakeCheckpoint final : public Checkpoint {
 public:
  FakeCheckpoint() {
    spec_.model_type = "fake";
    spec_.vocab_size = 1000;
    generation_.eos_token_ids = {1};
  }
  FakeCheckpoint(ModelSpec spec, GenerationConfig generation)
      : spec_(std::move(spec)), generation_(std::move(generation)) {}

  const ModelSpec& spec() const override { return spec_; }
  const GenerationConfig& generation() const override { return generation_; }
  const StackWeights& encoder() const override { return weights_; }
  const StackWeights& decoder() const override { return weights_; }
  const TensorView& lm_head() const override { return lm_head_; }

 private:
  ModelSpec spec_;
  GenerationConfig generation_;
  StackWeights weights_;
  TensorView lm_head_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TESTING_FAKE_CHECKPOINT_H_
