#include "backend/cpu/anonymous_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace seq2seq::cpu {

AnonymousMemory::~AnonymousMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

Result<AnonymousMemory> AnonymousMemory::Map(size_t bytes, std::string_view purpose) {
  if (bytes == 0) return AnonymousMemory();
  // Memory that is reserved and never touched should not count against the system's commit limit.
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return InvalidArgument("can't map " + std::to_string(bytes) + " bytes of memory for " +
                           std::string(purpose) + ": " + std::strerror(errno));
  }
  // A hint: fewer page faults and address translations while weights and caches are streamed
  // through.
  madvise(data, bytes, MADV_HUGEPAGE);
  return AnonymousMemory(static_cast<std::byte*>(data), bytes);
}

}  // namespace seq2seq::cpu
