#include "backend/cpu/packed_matrix.h"

#include <cmath>
#include <cstring>
#include <string>

#include "backend/cpu/float_formats.h"

namespace seq2seq::cpu {
namespace {

template <DType kDType>
float ReadValue(const std::byte* data, size_t index) {
  if constexpr (kDType == DType::kFloat32) {
    float value;
    std::memcpy(&value, data + index * sizeof(value), sizeof(value));
    return value;
  } else {
    uint16_t bits;
    std::memcpy(&bits, data + index * sizeof(bits), sizeof(bits));
    return kDType == DType::kFloat16 ? FromFloat16(bits) : FromBFloat16(bits);
  }
}

void ReadValues(const std::byte* data, DType dtype, size_t first, size_t count, float* out) {
  for (size_t i = 0; i < count; ++i) {
    switch (dtype) {
      case DType::kFloat32:
        out[i] = ReadValue<DType::kFloat32>(data, first + i);
        break;
      case DType::kFloat16:
        out[i] = ReadValue<DType::kFloat16>(data, first + i);
        break;
      case DType::kBFloat16:
        out[i] = ReadValue<DType::kBFloat16>(data, first + i);
        break;
    }
  }
}

// Where, in a panel's row of halves, output column `column` lies.
int32_t HalfIndex(DType dtype, int32_t column) {
  if (dtype == DType::kFloat16) return column;
  return column < 16 ? 2 * column : 2 * (column - 16) + 1;
}

// Puts one output's weights into its column of a panel. Returns false if a finite value overflows.
bool PackColumn(const std::vector<float>& values, DType dtype, int32_t column, std::byte* panel) {
  const size_t depth = values.size();
  if (dtype == DType::kFloat32) {
    float* out = reinterpret_cast<float*>(panel) + column;
    for (size_t k = 0; k < depth; ++k) out[k * kPanelColumns] = values[k];
    return true;
  }
  uint16_t* out = reinterpret_cast<uint16_t*>(panel) + HalfIndex(dtype, column);
  const uint16_t infinity = dtype == DType::kFloat16 ? 0x7c00 : 0x7f80;
  bool fits = true;
  for (size_t k = 0; k < depth; ++k) {
    const uint16_t bits = dtype == DType::kFloat16 ? ToFloat16(values[k]) : ToBFloat16(values[k]);
    if ((bits & 0x7fff) == infinity && std::isfinite(values[k])) fits = false;
    out[k * kPanelColumns] = bits;
  }
  return fits;
}

}  // namespace

size_t PackedMatrix::PackedBytes(int64_t outputs, int64_t depth, DType dtype) {
  const int64_t panels = (outputs + kPanelColumns - 1) / kPanelColumns;
  return static_cast<size_t>(panels) * depth * kPanelColumns * DTypeBytes(dtype);
}

Result<PackedMatrix> PackedMatrix::Pack(std::span<const TensorView> parts, DType dtype,
                                        std::string_view name, std::byte* memory) {
  PackedMatrix matrix;
  matrix.depth_ = static_cast<int32_t>(parts.front().shape[1]);
  matrix.dtype_ = dtype;
  matrix.data_ = memory;
  const size_t panel_bytes = static_cast<size_t>(matrix.depth_) * kPanelColumns * DTypeBytes(dtype);
  std::vector<float> values(matrix.depth_);
  for (const TensorView& part : parts) {
    for (int64_t row = 0; row < part.shape[0]; ++row, ++matrix.outputs_) {
      ReadValues(part.data, part.dtype, row * values.size(), values.size(), values.data());
      const int32_t column = matrix.outputs_ % kPanelColumns;
      std::byte* panel = memory + matrix.outputs_ / kPanelColumns * panel_bytes;
      if (!PackColumn(values, dtype, column, panel)) {
        return InvalidArgument(
            "a value of " + std::string(name) + ", row " + std::to_string(row) + ", stored as " +
            std::string(DTypeName(part.dtype)) +
            ", is too large for option 'weights_dtype' = " + std::string(DTypeName(dtype)));
      }
    }
  }
  return matrix;
}

void PackedMatrix::CopyRow(int32_t output, float* out) const {
  const size_t panel_bytes = static_cast<size_t>(depth_) * kPanelColumns * DTypeBytes(dtype_);
  const std::byte* panel = data_ + output / kPanelColumns * panel_bytes;
  const int32_t column = output % kPanelColumns;
  if (dtype_ == DType::kFloat32) {
    const float* in = reinterpret_cast<const float*>(panel) + column;
    for (int32_t k = 0; k < depth_; ++k) out[k] = in[k * kPanelColumns];
    return;
  }
  const uint16_t* in = reinterpret_cast<const uint16_t*>(panel) + HalfIndex(dtype_, column);
  for (int32_t k = 0; k < depth_; ++k) {
    const uint16_t bits = in[k * kPanelColumns];
    out[k] = dtype_ == DType::kFloat16 ? FromFloat16(bits) : FromBFloat16(bits);
  }
}

std::vector<float> ToFloats(const TensorView& tensor) {
  std::vector<float> values(tensor.elements());
  ReadValues(tensor.data, tensor.dtype, 0, values.size(), values.data());
  return values;
}

}  // namespace seq2seq::cpu
