// Copies between host and device memory without telling the caller what a device is.
#ifndef SEQ2SEQ_BACKEND_CORE_MEMORY_COPIER_H_
#define SEQ2SEQ_BACKEND_CORE_MEMORY_COPIER_H_

#include <cstddef>
#include <cstdint>

#include "backend/core/status.h"

namespace seq2seq {

// Lets the Triton room read inputs from and write outputs to GPU memory although it never sees
// CUDA. Implemented by backend/cuda through pinned staging buffers and a stream of its own; a build
// or machine without a GPU has none (a null pointer), and device tensors are then refused.
// Safe from any thread; both calls block the caller, and nobody else, until the bytes have arrived.
class MemoryCopier {
 public:
  virtual ~MemoryCopier() = default;

  // Copies `bytes` bytes at `source` on device `device_id` to host memory.
  [[nodiscard]] virtual Status ToHost(void* destination, const void* source, size_t bytes,
                                      int64_t device_id) = 0;
  // Copies `bytes` bytes of host memory to `destination` on device `device_id`.
  [[nodiscard]] virtual Status ToDevice(void* destination, const void* source, size_t bytes,
                                        int64_t device_id) = 0;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CORE_MEMORY_COPIER_H_
