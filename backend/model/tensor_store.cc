#include "backend/model/tensor_store.h"

#include <set>
#include <utility>

#include "backend/core/format.h"
#include "backend/model/file_mapping.h"
#include "backend/model/json_object.h"

namespace seq2seq {
namespace {

constexpr size_t kMaxIndexBytes = size_t{16} << 20;
constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t extent : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(extent);
  }
  return text + "]";
}

bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

// weight_map: tensor name -> file name within the directory.
Result<std::map<std::string, std::string>> ReadWeightMap(const JsonObject& index) {
  const auto found = index.json().find("weight_map");
  if (found == index.json().end() || !found->is_object() || found->empty()) {
    return index.BadValue("weight_map", "an object of tensor and file names is needed");
  }
  std::map<std::string, std::string> weight_map;
  for (const auto& [tensor, file] : found->items()) {
    if (!file.is_string() || !IsPlainFileName(file.get_ref<const std::string&>())) {
      return InvalidArgument(
          Format("{}: weight_map: tensor '{}' lies in {}; the name of a file in the same "
                 "directory is needed",
                 index.source(), tensor, ShortJson(file)));
    }
    weight_map.emplace(tensor, file.get<std::string>());
  }
  return weight_map;
}

}  // namespace

Result<TensorStore> TensorStore::Open(const std::filesystem::path& directory) {
  TensorStore store;
  const std::filesystem::path single = directory / kSingleFile;
  const std::filesystem::path index = directory / kIndexFile;
  if (HasEntry(single)) {
    store.place_ = single.string();
    SEQ2SEQ_RETURN_IF_ERROR(store.AddFile(single));
  } else if (HasEntry(index)) {
    store.place_ = index.string();
    SEQ2SEQ_RETURN_IF_ERROR(store.AddShards(index));
  } else {
    return NotFound(Format("{}: has no weights; {} or {} is needed", directory.string(),
                           kSingleFile, kIndexFile));
  }
  return store;
}

Status TensorStore::AddFile(const std::filesystem::path& path) {
  SEQ2SEQ_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
  for (const auto& [name, view] : file.tensors()) {
    const auto [place, added] = tensors_.emplace(name, Entry{view, files_.size(), false});
    if (!added) {
      return InvalidArgument(Format("{}: tensor '{}' lies in {} too; one place is allowed",
                                    path.string(), name, files_[place->second.file].name()));
    }
  }
  files_.push_back(std::move(file));
  return OkStatus();
}

Status TensorStore::AddShards(const std::filesystem::path& index_path) {
  SEQ2SEQ_ASSIGN_OR_RETURN(const JsonObject index,
                           JsonObject::ReadFile(index_path, kMaxIndexBytes));
  SEQ2SEQ_ASSIGN_OR_RETURN(const auto weight_map, ReadWeightMap(index));
  std::set<std::string> shards;
  for (const auto& [tensor, file] : weight_map) shards.insert(file);
  const std::filesystem::path directory = index_path.parent_path();
  for (const std::string& shard : shards) SEQ2SEQ_RETURN_IF_ERROR(AddFile(directory / shard));

  for (const auto& [tensor, file] : weight_map) {
    const std::string expected = (directory / file).string();
    if (!Has(tensor)) {
      return NotFound(Format("{}: tensor '{}' is missing; {} says that it lies here", expected,
                             tensor, index_path.string()));
    }
    if (FileOf(tensor) != expected) {
      return InvalidArgument(
          Format("{}: weight_map: tensor '{}' is said to lie in {}, but lies "
                 "in {}",
                 index_path.string(), tensor, expected, FileOf(tensor)));
    }
  }
  for (const auto& [tensor, entry] : tensors_) {
    if (!weight_map.contains(tensor)) {
      return InvalidArgument(Format("{}: tensor '{}' is not in the weight_map of {}",
                                    FileOf(tensor), tensor, index_path.string()));
    }
  }
  return OkStatus();
}

Result<TensorView> TensorStore::Take(std::string_view name, const std::vector<int64_t>& shape) {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    return NotFound(
        Format("{}: tensor '{}' with shape {} is missing", place_, name, ShapeText(shape)));
  }
  Entry& entry = found->second;
  if (entry.view.shape != shape) {
    return InvalidArgument(Format("{}: tensor '{}' has shape {}; config.json asks for {}",
                                  FileOf(name), name, ShapeText(entry.view.shape),
                                  ShapeText(shape)));
  }
  entry.used = true;
  return entry.view;
}

void TensorStore::Ignore(std::string_view name) {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) found->second.used = true;
}

Status TensorStore::CheckAllUsed() const {
  for (const auto& [name, entry] : tensors_) {
    if (entry.used) continue;
    return InvalidArgument(
        Format("{}: tensor '{}' has no place in the model that config.json describes", FileOf(name),
               name));
  }
  return OkStatus();
}

const std::string& TensorStore::FileOf(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? place_ : files_[found->second.file].name();
}

}  // namespace seq2seq
