// The non-linearities of feed-forward layers.
#ifndef SEQ2SEQ_BACKEND_KERNELS_ACTIVATION_KIND_H_
#define SEQ2SEQ_BACKEND_KERNELS_ACTIVATION_KIND_H_

#include <cstdint>

namespace seq2seq::kernels {

// kGelu is the exact one (erf), kGeluTanh its tanh form.
enum class ActivationKind : uint8_t { kRelu, kGelu, kGeluTanh, kSilu };

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_ACTIVATION_KIND_H_
