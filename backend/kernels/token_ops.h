// Per-token work of the encoder on packed tokens: all sources of a batch one after the other, no
// pads.
#ifndef SEQ2SEQ_BACKEND_KERNELS_TOKEN_OPS_H_
#define SEQ2SEQ_BACKEND_KERNELS_TOKEN_OPS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "backend/kernels/activation_kind.h"
#include "backend/kernels/element_type.h"
#include "backend/kernels/kv_layout.h"
#include "backend/kernels/launch.h"

namespace seq2seq::kernels {

// values[token][width] = embedding[ids[token]][width]. embedding: the model's number format.
cudaError_t LaunchEmbedTokens(ElementType type, const void* embedding, const int32_t* ids,
                              int32_t tokens, int32_t width, float* values,
                              const LaunchContext& context);

struct ActivateTokensArgs {
  const void* input = nullptr;  // [tokens][width], or gated: [tokens][2 width], gate then up
  void* output = nullptr;       // [tokens][width]
  int32_t tokens = 0;
  int32_t width = 0;
  ActivationKind kind = ActivationKind::kRelu;
  bool gated = false;
};

// The activation of a feed-forward layer; in and out in the model's number format.
// width is a multiple of 16 bytes.
cudaError_t LaunchActivateTokens(ElementType type, const ActivateTokensArgs& args,
                                 const LaunchContext& context);

struct ScatterKeyValuesArgs {
  // [tokens][layers][2 x heads x head_dim], of a layer keys then values
  const void* key_values = nullptr;
  int32_t layers = 1;
  // [tokens] block * kBlockTokens + offset in the block; negative: the token goes nowhere
  const int32_t* places = nullptr;
  int32_t tokens = 0;
  void* pool = nullptr;
  KvLayout layout;
  int64_t layer_offset = 0;  // elements, of the first layer's keys in a block
};

// Puts the keys and values of packed tokens into cache blocks. head_dim is a multiple of 16 bytes.
cudaError_t LaunchScatterKeyValues(ElementType type, const ScatterKeyValuesArgs& args,
                                   const LaunchContext& context);

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_TOKEN_OPS_H_
