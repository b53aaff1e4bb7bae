// What launchers know of the device that their plans were measured on.
#ifndef SEQ2SEQ_BACKEND_KERNELS_MEASURED_DEVICE_H_
#define SEQ2SEQ_BACKEND_KERNELS_MEASURED_DEVICE_H_

namespace seq2seq::kernels {

// Of an H200 and an H100 SXM. Not asked of the device at hand: into how many parts a sum is split
// would differ, and with it the last bits of results.
inline constexpr int kMultiprocessors = 132;

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_MEASURED_DEVICE_H_
