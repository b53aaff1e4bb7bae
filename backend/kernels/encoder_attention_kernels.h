// The kernels behind LaunchEncoderAttention that have files of their own.
#ifndef SEQ2SEQ_BACKEND_KERNELS_ENCODER_ATTENTION_KERNELS_H_
#define SEQ2SEQ_BACKEND_KERNELS_ENCODER_ATTENTION_KERNELS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "backend/kernels/element_type.h"
#include "backend/kernels/encoder_attention.h"
#include "backend/kernels/launch.h"

namespace seq2seq::kernels {

// On devices that IsHopper() is true of.
bool HopperAttentionTakes(ElementType type, const EncoderAttentionArgs& args);
cudaError_t LaunchHopperAttention(ElementType type, const EncoderAttentionArgs& args,
                                  const LaunchContext& context);
// Allows its kernels all shared memory.
cudaError_t PrepareHopperAttention();

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_ENCODER_ATTENTION_KERNELS_H_
