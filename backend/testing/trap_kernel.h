// The kernel of device_trap.h.
#ifndef SEQ2SEQ_BACKEND_TESTING_TRAP_KERNEL_H_
#define SEQ2SEQ_BACKEND_TESTING_TRAP_KERNEL_H_

#include <cuda_runtime_api.h>

namespace seq2seq {

// Queues it on `stream`; returns the launch's error.
cudaError_t LaunchTrap(cudaStream_t stream);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TESTING_TRAP_KERNEL_H_
