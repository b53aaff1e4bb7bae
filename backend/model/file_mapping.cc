#include "backend/model/file_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "backend/core/format.h"

namespace seq2seq {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

std::unexpected<Error> SystemError(const std::filesystem::path& path, std::string_view action,
                                   int error) {
  const ErrorCode code =
      error == ENOENT || error == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kInvalidArgument;
  return MakeError(code, Format("{}: cannot {}: {}", path.string(), action,
                                std::generic_category().message(error)));
}

}  // namespace

bool HasEntry(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::symlink_status(path, ignored));
}

Result<FileMapping> FileMapping::Open(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a pipe that nobody writes to must not hang the load.
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return SystemError(path, "open", errno);
  struct stat status = {};
  if (fstat(file.get(), &status) != 0) return SystemError(path, "stat", errno);
  if (!S_ISREG(status.st_mode)) {
    return InvalidArgument(Format("{}: not a regular file", path.string()));
  }
  const auto size = static_cast<size_t>(status.st_size);
  if (size == 0) return FileMapping({});
  void* address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) return SystemError(path, "map", errno);
  return FileMapping({static_cast<const std::byte*>(address), size});
}

FileMapping::FileMapping(FileMapping&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

FileMapping& FileMapping::operator=(FileMapping&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

FileMapping::~FileMapping() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace seq2seq
