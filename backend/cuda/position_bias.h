// T5's relative-position biases, spread out by distance so that kernels look them up directly.
#ifndef SEQ2SEQ_BACKEND_CUDA_POSITION_BIAS_H_
#define SEQ2SEQ_BACKEND_CUDA_POSITION_BIAS_H_

#include <cstdint>
#include <vector>

#include "backend/model/model_spec.h"
#include "backend/model/tensor_view.h"

namespace seq2seq {

// The bucket of a key `distance` = key position - query position away (Raffel et al. 2020, 2.1,
// with the float32 arithmetic of the published code). A decoder looks back only: distance <= 0.
int32_t RelativeBucket(int32_t distance, bool bidirectional, const RelativePositionSpec& spec);

// [heads][2 max_distance + 1], index distance + max_distance: what the encoder's kernel reads.
std::vector<float> EncoderBiasByDistance(const TensorView& table, const RelativePositionSpec& spec);

// [heads][max_distance + 1], index -distance: what the decoder's kernel reads.
std::vector<float> DecoderBiasByDistance(const TensorView& table, const RelativePositionSpec& spec);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CUDA_POSITION_BIAS_H_
