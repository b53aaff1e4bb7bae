// Reader of the safetensors format: 8 bytes of little-endian header length, a JSON header, then
// data. Format: the "Format" section of the safetensors project's README.
#ifndef SEQ2SEQ_BACKEND_MODEL_SAFETENSORS_H_
#define SEQ2SEQ_BACKEND_MODEL_SAFETENSORS_H_

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/core/status.h"
#include "backend/model/file_mapping.h"
#include "backend/model/tensor_view.h"

namespace seq2seq {

// One open file. Its views stay valid, and aligned to their element size, while the object lives.
// Immutable; safe from any thread.
class SafetensorsFile {
 public:
  // Maps and checks the whole header: lengths, JSON, dtypes (F32, F16, BF16), shapes, and that the
  // tensors cover the data exactly, without overlap, holes or surplus bytes. Data is not read.
  [[nodiscard]] static Result<SafetensorsFile> Open(const std::filesystem::path& path);

  const std::string& name() const { return name_; }  // the path, for messages
  const std::map<std::string, TensorView>& tensors() const { return tensors_; }

 private:
  SafetensorsFile(FileMapping mapping, std::string name)
      : mapping_(std::move(mapping)), name_(std::move(name)) {}
  void AlignTensors();

  FileMapping mapping_;
  std::string name_;
  std::map<std::string, TensorView> tensors_;
  std::vector<std::unique_ptr<std::byte[]>> aligned_copies_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_MODEL_SAFETENSORS_H_
