// The number formats that weights are stored in.
#ifndef SEQ2SEQ_BACKEND_CORE_DTYPE_H_
#define SEQ2SEQ_BACKEND_CORE_DTYPE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace seq2seq {

enum class DType : uint8_t { kFloat32, kFloat16, kBFloat16 };

constexpr size_t DTypeBytes(DType dtype) { return dtype == DType::kFloat32 ? 4 : 2; }

// "float32", "float16", "bfloat16": the spelling of config.json and config.pbtxt.
constexpr std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat16:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
  }
  return "unknown";
}

constexpr std::optional<DType> ParseDType(std::string_view name) {
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    if (name == DTypeName(dtype)) return dtype;
  }
  return std::nullopt;
}

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CORE_DTYPE_H_
