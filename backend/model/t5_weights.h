// T5, mT5 and UMT5: from the names that transformers gives their tensors to roles.
#ifndef SEQ2SEQ_BACKEND_MODEL_T5_WEIGHTS_H_
#define SEQ2SEQ_BACKEND_MODEL_T5_WEIGHTS_H_

#include "backend/core/status.h"
#include "backend/model/checkpoint.h"
#include "backend/model/model_spec.h"
#include "backend/model/tensor_store.h"
#include "backend/model/tensor_view.h"

namespace seq2seq {

struct T5Weights {
  StackWeights encoder;
  StackWeights decoder;
  TensorView lm_head;
  bool tied_head = false;  // lm_head is the embedding
};

// Takes every tensor of the family out of `store`; what is left there is surplus. The embedding may
// be stored under any of the names that transformers ties to it, also several times if the copies
// are equal. Views point into the store.
[[nodiscard]] Result<T5Weights> TakeT5Weights(const ModelSpec& spec, TensorStore* store);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_MODEL_T5_WEIGHTS_H_
