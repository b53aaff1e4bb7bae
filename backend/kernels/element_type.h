#pragma once

namespace seq2seq::kernels {

// How a number is stored in device memory. Arithmetic is done in float whatever the storage.
enum class ElementType {
  kFloat32,
  kFloat16,
  kBfloat16,
};

}  // namespace seq2seq::kernels
