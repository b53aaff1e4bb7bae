// The number formats that kernels read and write.
#ifndef SEQ2SEQ_BACKEND_KERNELS_ELEMENT_TYPE_H_
#define SEQ2SEQ_BACKEND_KERNELS_ELEMENT_TYPE_H_

#include <cstddef>
#include <cstdint>

namespace seq2seq::kernels {

// How a number is stored in device memory. Arithmetic is done in float whatever the storage.
enum class ElementType : uint8_t { kFloat32, kFloat16, kBfloat16 };

constexpr size_t ElementBytes(ElementType type) { return type == ElementType::kFloat32 ? 4 : 2; }

}  // namespace seq2seq::kernels

#endif  // SEQ2SEQ_BACKEND_KERNELS_ELEMENT_TYPE_H_
