// Sizes in whole multiples.
#ifndef SEQ2SEQ_BACKEND_CUDA_ROUND_UP_H_
#define SEQ2SEQ_BACKEND_CUDA_ROUND_UP_H_

#include <cstdint>

namespace seq2seq {

// The least multiple of `multiple` (> 0) that is no less than `value` (>= 0).
constexpr int32_t RoundUp(int32_t value, int32_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CUDA_ROUND_UP_H_
