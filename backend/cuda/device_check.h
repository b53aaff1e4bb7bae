// Whether this build can use a device.
#ifndef SEQ2SEQ_BACKEND_CUDA_DEVICE_CHECK_H_
#define SEQ2SEQ_BACKEND_CUDA_DEVICE_CHECK_H_

#include <span>

#include "backend/core/status.h"

namespace seq2seq {

// kUnsupported, by ForeignDevice(), if the build has no kernels that the current device runs.
[[nodiscard]] Status CheckDeviceKernels();

// Names the compute capability of a device and those that the build has kernels for (times 100).
Error ForeignDevice(int major, int minor, std::span<const int> built);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CUDA_DEVICE_CHECK_H_
