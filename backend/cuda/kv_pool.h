// The memory behind an engine's KV-cache blocks.
#ifndef SEQ2SEQ_BACKEND_CUDA_KV_POOL_H_
#define SEQ2SEQ_BACKEND_CUDA_KV_POOL_H_

#include <cstdint>

#include "backend/cuda/device_buffer.h"
#include "backend/kernels/kv_layout.h"

namespace seq2seq {

// Blocks for self- and cross-attention alike. Who owns which is the scheduler's business.
struct KvPool {
  DeviceBuffer memory;
  kernels::KvLayout layout;
  int32_t total_blocks = 0;

  int64_t LayerOffset(size_t layer) const {
    return static_cast<int64_t>(layer) * layout.LayerStride();
  }
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CUDA_KV_POOL_H_
