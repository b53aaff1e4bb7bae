// The kernel behind LaunchDecodeAttention that has a file of its own.
#ifndef SEQ2SEQ_BACKEND_KERNELS_DECODE_ATTENTION_KERNELS_H_
#define SEQ2SEQ_BACKEND_KERNELS_DECODE_ATTENTION_KERNELS_H_

#include <cuda_runtime.h>

#include "backend/kernels/decode_attention.h"
#include "backend/kernels/element_type.h"
#include "backend/kernels/launch.h"

namespace seq2seq::kernels {

// Whether the device has the kernel, and the kernel takes such heads: half types, 64 dimensions, 16
// tokens a block of the cache, no splits.
bool CanStreamDecodeAttention(ElementType type, const DecodeAttentionArgs& args);
cudaError_t LaunchStreamedDecodeAttention(ElementType type, const DecodeAttentionArgs& args,
                                          const LaunchContext& context);

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_DECODE_ATTENTION_KERNELS_H_
