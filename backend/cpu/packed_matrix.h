// Weights in the order in which the matrix kernels read them.
#ifndef SEQ2SEQ_BACKEND_CPU_PACKED_MATRIX_H_
#define SEQ2SEQ_BACKEND_CPU_PACKED_MATRIX_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "backend/core/dtype.h"
#include "backend/core/status.h"
#include "backend/cpu/kernels/kernel_table.h"
#include "backend/model/tensor_view.h"

namespace seq2seq::cpu {

// One or more weights [out, in] of a common `in`, stacked along `out` and cut into panels of
// kPanelColumns outputs: [panel, in, kPanelColumns], the last panel filled with zeros. Inside a
// panel's row, float32 and float16 lie in order; bfloat16 is interleaved, output c in the low half
// and c + 16 in the high half of 32-bit word c, so that one load widens to two vectors.
class PackedMatrix {
 public:
  PackedMatrix() = default;

  // Bytes that `outputs` x `depth` values of `dtype` take, a multiple of 64.
  static size_t PackedBytes(int64_t outputs, int64_t depth, DType dtype);

  // Packs `parts` (the same depth in all), cast to `dtype`, into `memory` of PackedBytes() bytes,
  // which must outlive the matrix. kInvalidArgument if a finite value does not fit `dtype`; `name`
  // is for it.
  [[nodiscard]] static Result<PackedMatrix> Pack(std::span<const TensorView> parts, DType dtype,
                                                 std::string_view name, std::byte* memory);

  int32_t outputs() const { return outputs_; }
  int32_t depth() const { return depth_; }
  int32_t panels() const { return (outputs_ + kPanelColumns - 1) / kPanelColumns; }
  const std::byte* data() const { return data_; }
  DType dtype() const { return dtype_; }

  // The weights of one output, widened: out[0 .. depth()).
  void CopyRow(int32_t output, float* out) const;

 private:
  int32_t outputs_ = 0;
  int32_t depth_ = 0;
  DType dtype_ = DType::kFloat32;
  const std::byte* data_ = nullptr;
};

// The values of a vector or small table, widened.
std::vector<float> ToFloats(const TensorView& tensor);

}  // namespace seq2seq::cpu

#endif  // SEQ2SEQ_BACKEND_CPU_PACKED_MATRIX_H_
