// A weight as it lies in a checkpoint file.
#ifndef SEQ2SEQ_BACKEND_MODEL_TENSOR_VIEW_H_
#define SEQ2SEQ_BACKEND_MODEL_TENSOR_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/core/dtype.h"

namespace seq2seq {

// Row-major, little-endian, read-only; points into memory that its Checkpoint keeps.
// A default-constructed view stands for a tensor that the family does not have.
struct TensorView {
  const std::byte* data = nullptr;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  bool in_file = false;  // the memory is a file's mapping: pages given back come again as they were

  bool present() const { return data != nullptr; }
  int64_t elements() const {
    int64_t count = 1;
    for (int64_t extent : shape) count *= extent;
    return count;
  }
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_MODEL_TENSOR_VIEW_H_
