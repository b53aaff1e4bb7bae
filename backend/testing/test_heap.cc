#include "backend/testing/test_heap.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace seq2seq {

TestHeap& GetTestHeap() {
  static constinit TestHeap heap;
  return heap;
}

namespace {

void* Allocate(size_t bytes) noexcept {
  TestHeap& heap = GetTestHeap();
  if (heap.exhausted) return nullptr;
  if (heap.counting) ++heap.allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}

void* AllocateOrThrow(size_t bytes) {
  if (void* memory = Allocate(bytes)) return memory;
  throw std::bad_alloc();
}

}  // namespace
}  // namespace seq2seq

// Not inlined: where GCC 12 sees one half of a pair alone, it
// warns of a mismatch.
[[gnu::noinline]] void* operator new(size_t bytes) { return seq2seq::AllocateOrThrow(bytes); }
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return seq2seq::Allocate(bytes);
}
[[gnu::noinline]] void* operator new[](size_t bytes) { return seq2seq::AllocateOrThrow(bytes); }
[[gnu::noinline]] void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return seq2seq::Allocate(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
