// A file's bytes, mapped read-only.
#ifndef SEQ2SEQ_BACKEND_MODEL_FILE_MAPPING_H_
#define SEQ2SEQ_BACKEND_MODEL_FILE_MAPPING_H_

#include <cstddef>
#include <filesystem>
#include <span>

#include "backend/core/status.h"

namespace seq2seq {

// Whether the directory has an entry of that name: a link that leads nowhere is one, and then
// opening it is what says so. What cannot be looked at is treated as absent.
bool HasEntry(const std::filesystem::path& path);

// Owns the mapping; the descriptor is closed once mapped, so a model of many shards holds none
// open. The file must not shrink while it is mapped: replace weights by renaming a new file over
// the old one.
class FileMapping {
 public:
  // Maps a regular file. kNotFound if it does not exist; an empty file gives empty bytes.
  [[nodiscard]] static Result<FileMapping> Open(const std::filesystem::path& path);

  FileMapping(FileMapping&& other) noexcept;
  FileMapping& operator=(FileMapping&& other) noexcept;
  ~FileMapping();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit FileMapping(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::span<const std::byte> bytes_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_MODEL_FILE_MAPPING_H_
