// All tensors of a checkpoint by name, and which of them have been asked for.
#ifndef SEQ2SEQ_BACKEND_MODEL_TENSOR_STORE_H_
#define SEQ2SEQ_BACKEND_MODEL_TENSOR_STORE_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "backend/core/status.h"
#include "backend/model/safetensors.h"
#include "backend/model/tensor_view.h"

namespace seq2seq {

// Views live as long as the store. Not thread-safe while tensors are taken.
class TensorStore {
 public:
  // Opens model.safetensors, or the shards that model.safetensors.index.json names. Index and
  // shards must agree on which tensor lies where.
  [[nodiscard]] static Result<TensorStore> Open(const std::filesystem::path& directory);

  bool Has(std::string_view name) const { return tensors_.contains(name); }

  // The tensor, marked as used. kNotFound if there is none, kInvalidArgument if its shape differs.
  Result<TensorView> Take(std::string_view name, const std::vector<int64_t>& shape);

  // Marks `name` as used, if it is there, without looking at it.
  void Ignore(std::string_view name);

  // An error that names a tensor which nobody took, if there is one.
  Status CheckAllUsed() const;

  // The file that holds the tensor, or where one was looked for.
  const std::string& FileOf(std::string_view name) const;

 private:
  struct Entry {
    TensorView view;
    size_t file = 0;
    bool used = false;
  };

  TensorStore() = default;
  Status AddFile(const std::filesystem::path& path);
  Status AddShards(const std::filesystem::path& index_path);

  std::string place_;  // of tensors that are nowhere: the single file or the index
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Entry, std::less<>> tensors_;
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_MODEL_TENSOR_STORE_H_
