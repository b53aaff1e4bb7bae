// A device that fails, for tests of what becomes of its requests.
#ifndef SEQ2SEQ_BACKEND_TESTING_DEVICE_TRAP_H_
#define SEQ2SEQ_BACKEND_TESTING_DEVICE_TRAP_H_

#include "backend/core/status.h"

namespace seq2seq {

// Queues a kernel that traps, on a stream of its own on the calling thread's current CUDA device,
// and doesn't wait for it. From then on every CUDA call of this process on that device fails.
// kUnsupported in a build without CUDA.
[[nodiscard]] Status TrapDevice();

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TESTING_DEVICE_TRAP_H_
