// What a model computes, in double precision, by loops over numbers: no cache, no batch, nothing
// that an engine has. The truth for engines' tests on tiny checkpoints.
#ifndef SEQ2SEQ_BACKEND_TESTING_REFERENCE_MODEL_H_
#define SEQ2SEQ_BACKEND_TESTING_REFERENCE_MODEL_H_

#include <cstdint>
#include <span>
#include <vector>

#include "backend/model/checkpoint.h"

namespace seq2seq {

class ReferenceModel {
 public:
  using Row = std::vector<double>;
  using Rows = std::vector<Row>;  // a token each

  // `checkpoint` is in float32 and must outlive the model.
  explicit ReferenceModel(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  // The encoder's output for each token of a source.
  Rows Encode(std::span<const int32_t> source) const;

  // The logits behind the last of `tokens`, the decoder's input so far.
  Row Logits(const Rows& encoded, std::span<const int32_t> tokens) const;

 private:
  Rows Embed(const StackWeights& stack, std::span<const int32_t> tokens) const;
  Row Norm(const NormWeights& norm, const Row& x) const;
  Row Normed(const NormWeights& norm, const Row& x) const;
  void AddTo(Row* x, const Row& result, const NormWeights& norm) const;
  Rows Attend(const AttentionWeights& weights, const StackSpec& stack, const Rows& queries_from,
              const Rows& keys_from, const TensorView* position_bias, bool causal) const;
  void AttendToSelf(const StackWeights& stack, const LayerWeights& layer, const StackSpec& spec,
                    bool causal, Rows* rows) const;
  Row FeedForward(const FfnWeights& weights, const Row& x) const;

  const Checkpoint& checkpoint_;
};

// Log-probability of one of a row's logits.
double LogProbability(const ReferenceModel::Row& logits, int32_t token);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TESTING_REFERENCE_MODEL_H_
