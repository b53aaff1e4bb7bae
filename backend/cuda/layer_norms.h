// Which LayerNorms the layers of a stack need between their products, for families that have them
// (RMSNorm has ways of its own).
#ifndef SEQ2SEQ_BACKEND_CUDA_LAYER_NORMS_H_
#define SEQ2SEQ_BACKEND_CUDA_LAYER_NORMS_H_

#include <cstdint>
#include <vector>

#include "backend/cuda/device_weights.h"
#include "backend/kernels/layer_norm.h"
#include "backend/model/model_spec.h"

namespace seq2seq {

// The norm behind a sub-layer: of the next one's input (kPre), or its own (kPost).
inline const NormOnDevice& NormBehind(const ModelSpec& spec, const NormOnDevice& own,
                                      const NormOnDevice& next) {
  return spec.norm_placement == NormPlacement::kPre ? next : own;
}

// `rows`: what all of them have in common, i.e. everything but the norm and what becomes of it.
class LayerNorms {
 public:
  LayerNorms(const ModelSpec& spec, const kernels::LayerNormArgs& rows) : spec_(spec), rows_(rows) {
    rows_.epsilon = spec.norm_epsilon;
    rows_.width = spec.d_model;
  }

  // Behind a sub-layer, by NormBehind()'s norm.
  kernels::LayerNormArgs Behind(const NormOnDevice& norm) const {
    kernels::LayerNormArgs args = Args(norm);
    args.write_back = spec_.norm_placement == NormPlacement::kPost;
    return args;
  }

  // From the embeddings of tokens to the first layer's input, in this order. positions: of row r's
  // token at r * position_stride; first: the first layer's norm.
  std::vector<kernels::LayerNormArgs> Start(const StackStartOnDevice& start,
                                            const int32_t* positions, int32_t position_stride,
                                            const NormOnDevice& first) const {
    const bool pre = spec_.norm_placement == NormPlacement::kPre;
    kernels::LayerNormArgs begin = rows_;
    if (spec_.embedding_norm) {
      begin = Args(start.embedding_norm);
      begin.write_back = true;
    } else if (pre) {
      begin = Args(first);
    }
    begin.start = {.table = start.position_table.as<float>(),
                   .table_rows = start.positions,
                   .offset = spec_.position_offset,
                   .scale = spec_.embedding_scale,
                   .positions = positions,
                   .position_stride = position_stride};
    if (!pre || !spec_.embedding_norm) return {begin};
    begin.output = nullptr;
    return {begin, Args(first)};
  }

 private:
  kernels::LayerNormArgs Args(const NormOnDevice& norm) const {
    kernels::LayerNormArgs args = rows_;
    args.weight = norm.weight.as<float>();
    args.bias = norm.bias.as<float>();
    return args;
  }

  const ModelSpec& spec_;
  kernels::LayerNormArgs rows_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CUDA_LAYER_NORMS_H_
