// The projection of queries (self-attention: keys and values too) and the attention over the cache
// in one kernel, for the few rows of a decode step.
//
// A cluster of blocks computes one head: each block has some of the head's outputs, and hands them
// to the others through distributed shared memory. That saves a dependent stage's latency, which at
// a few rows is more than its bytes cost. Weights, old keys and old values are taken before the
// wait.
#ifndef SEQ2SEQ_BACKEND_KERNELS_PROJECTED_ATTENTION_H_
#define SEQ2SEQ_BACKEND_KERNELS_PROJECTED_ATTENTION_H_

#include <cuda_runtime.h>

#include "backend/kernels/decode_attention.h"
#include "backend/kernels/element_type.h"
#include "backend/kernels/launch.h"
#include "backend/kernels/projection.h"

namespace seq2seq::kernels {

// Describes both halves as for LaunchProjection and LaunchDecodeAttention, which together do the
// same.
struct ProjectedAttentionArgs {
  // kQueryKeyValue; query_key_value.query is not used. Self-attention: 3 x heads x head_dim
  // outputs, cross-attention: heads x head_dim.
  ProjectionArgs projection;
  // Of the same rows and pool. query and splits are not used.
  DecodeAttentionArgs attention;
};

// Whether the kernel takes this, and is the faster way: float16 or bfloat16, heads of 64, few rows,
// and a device of compute capability 9.0 or later (projection.max_splits > 1).
bool CanProjectAndAttend(ElementType type, const ProjectedAttentionArgs& args);

// cudaErrorInvalidValue: CanProjectAndAttend() says no.
cudaError_t LaunchProjectedAttention(ElementType type, const ProjectedAttentionArgs& args,
                                     const LaunchContext& context);

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_PROJECTED_ATTENTION_H_
