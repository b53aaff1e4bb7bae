// Takes a device or a stream away from everybody else, for tests of what then happens.
#ifndef SEQ2SEQ_BACKEND_CUDA_DEVICE_HOLDER_H_
#define SEQ2SEQ_BACKEND_CUDA_DEVICE_HOLDER_H_

#include <cuda_runtime.h>

#include <cstdint>

namespace seq2seq {

// What the kernels wait for.
enum class HeldDevice : int32_t {
  kHeld,
  kReleased,  // the kernel ends
  kLost,      // the kernel traps: an error that the process never gets rid of
};

// Queues a kernel on the current device that occupies every multiprocessor, so that no other
// kernel of this process runs, until *word (host memory that the device can address) says
// otherwise, or for 20 s.
cudaError_t LaunchDeviceHolder(const volatile HeldDevice* word, cudaStream_t stream);

// The same with one block, which holds up the stream alone.
cudaError_t LaunchStreamHolder(const volatile HeldDevice* word, cudaStream_t stream);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CUDA_DEVICE_HOLDER_H_
