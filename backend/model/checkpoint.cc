#include "backend/model/checkpoint.h"

#include <new>
#include <utility>

#include "backend/core/format.h"
#include "backend/model/t5_weights.h"
#include "backend/model/tensor_store.h"

namespace seq2seq {
namespace {

class T5Checkpoint final : public Checkpoint {
 public:
  T5Checkpoint(ModelSpec spec, GenerationConfig generation, TensorStore store, T5Weights weights)
      : spec_(std::move(spec)),
        generation_(std::move(generation)),
        store_(std::move(store)),
        weights_(std::move(weights)) {}

  const ModelSpec& spec() const override { return spec_; }
  const GenerationConfig& generation() const override { return generation_; }
  const StackWeights& encoder() const override { return weights_.encoder; }
  const StackWeights& decoder() const override { return weights_.decoder; }
  const TensorView& lm_head() const override { return weights_.lm_head; }

 private:
  const ModelSpec spec_;
  const GenerationConfig generation_;
  const TensorStore store_;  // the views below point into its files
  const T5Weights weights_;
};

Result<std::shared_ptr<const Checkpoint>> LoadT5(const std::filesystem::path& directory) {
  SEQ2SEQ_ASSIGN_OR_RETURN(ModelSpec spec, LoadModelSpec(directory));
  SEQ2SEQ_ASSIGN_OR_RETURN(GenerationConfig generation, LoadGenerationConfig(directory, spec));
  SEQ2SEQ_ASSIGN_OR_RETURN(TensorStore store, TensorStore::Open(directory));
  SEQ2SEQ_ASSIGN_OR_RETURN(T5Weights weights, TakeT5Weights(spec, &store));
  SEQ2SEQ_RETURN_IF_ERROR(store.CheckAllUsed());
  // config.json says what should be; whether the head is the embedding is known only now.
  spec.tied_head = weights.tied_head;
  return std::make_shared<const T5Checkpoint>(std::move(spec), std::move(generation),
                                              std::move(store), std::move(weights));
}

}  // namespace

Result<std::shared_ptr<const Checkpoint>> Checkpoint::Load(const std::filesystem::path& directory) {
  try {
    return LoadT5(directory);
  } catch (const std::bad_alloc&) {
    return MakeError(ErrorCode::kUnavailable,
                     Format("{}: not enough memory to read the checkpoint", directory.string()));
  }
}

}  // namespace seq2seq
