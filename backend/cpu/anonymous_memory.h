// Memory straight from the system: zero, and costing nothing until it is touched.
#ifndef SEQ2SEQ_BACKEND_CPU_ANONYMOUS_MEMORY_H_
#define SEQ2SEQ_BACKEND_CPU_ANONYMOUS_MEMORY_H_

#include <cstddef>
#include <string_view>
#include <utility>

#include "backend/core/status.h"

namespace seq2seq::cpu {

// Owns one private mapping, in huge pages where the system has them. Movable.
class AnonymousMemory {
 public:
  AnonymousMemory() = default;
  AnonymousMemory(AnonymousMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  AnonymousMemory& operator=(AnonymousMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~AnonymousMemory();

  // Maps at least `bytes` bytes (0 is allowed). kInvalidArgument says what `purpose` needed.
  [[nodiscard]] static Result<AnonymousMemory> Map(size_t bytes, std::string_view purpose);

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  float* floats() const { return reinterpret_cast<float*>(data_); }

 private:
  AnonymousMemory(std::byte* data, size_t bytes) : data_(data), bytes_(bytes) {}

  std::byte* data_ = nullptr;  // aligned to a page at least
  size_t bytes_ = 0;
};

}  // namespace seq2seq::cpu

#endif  // SEQ2SEQ_BACKEND_CPU_ANONYMOUS_MEMORY_H_
