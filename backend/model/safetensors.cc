#include "backend/model/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "backend/core/format.h"
#include "backend/model/json_object.h"

namespace seq2seq {
namespace {

static_assert(std::endian::native == std::endian::little,
              "views show the file's bytes as they are");

constexpr size_t kPrefixBytes = 8;
constexpr uint64_t kMaxHeaderBytes = uint64_t{16} << 20;
constexpr size_t kMaxRank = 8;
constexpr std::string_view kMetadataKey = "__metadata__";

struct TensorEntry {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  uint64_t begin = 0;
  uint64_t end = 0;
};

std::optional<uint64_t> AsUnsigned(const nlohmann::json& value) {
  // A parsed non-negative integer is always unsigned in this library.
  if (!value.is_number_unsigned()) return std::nullopt;
  return value.get<uint64_t>();
}

// One member of the header: {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}.
class EntryReader {
 public:
  EntryReader(std::string_view file, std::string_view name, const nlohmann::json& json)
      : file_(file), name_(name), json_(json) {}

  Result<TensorEntry> Read() const {
    if (!json_.is_object()) return Bad("entry", json_, "an object is needed");
    for (const auto& [key, value] : json_.items()) {
      if (key != "dtype" && key != "shape" && key != "data_offsets") {
        return Bad(key, value, "dtype, shape and data_offsets are the keys allowed");
      }
    }
    TensorEntry entry;
    entry.name = name_;
    SEQ2SEQ_ASSIGN_OR_RETURN(entry.dtype, ReadDType());
    uint64_t bytes = DTypeBytes(entry.dtype);
    SEQ2SEQ_RETURN_IF_ERROR(ReadShape(&entry, &bytes));
    SEQ2SEQ_RETURN_IF_ERROR(ReadOffsets(&entry, bytes));
    return entry;
  }

 private:
  std::unexpected<Error> Bad(std::string_view key, const nlohmann::json& value,
                             std::string_view allowed) const {
    return InvalidArgument(
        Format("{}: tensor '{}': {} is {}; {}", file_, name_, key, ShortJson(value), allowed));
  }

  const nlohmann::json& Member(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() ? absent_ : *found;
  }

  Result<DType> ReadDType() const {
    const nlohmann::json& value = Member("dtype");
    if (value == "F32") return DType::kFloat32;
    if (value == "F16") return DType::kFloat16;
    if (value == "BF16") return DType::kBFloat16;
    return Bad("dtype", value, "F32, F16 or BF16 is supported");
  }

  // Multiplies *bytes by the extents.
  Status ReadShape(TensorEntry* entry, uint64_t* bytes) const {
    const nlohmann::json& value = Member("shape");
    if (!value.is_array() || value.size() > kMaxRank) {
      return Bad("shape", value, Format("a list of at most {} extents is allowed", kMaxRank));
    }
    for (const nlohmann::json& item : value) {
      const std::optional<uint64_t> extent = AsUnsigned(item);
      constexpr uint64_t kLargest = std::numeric_limits<int64_t>::max();
      if (!extent || *extent > kLargest || (*extent != 0 && *bytes > kLargest / *extent)) {
        return Bad("shape", value,
                   "non-negative extents, less than 2^63 bytes together, are allowed");
      }
      *bytes *= *extent;
      entry->shape.push_back(static_cast<int64_t>(*extent));
    }
    return OkStatus();
  }

  Status ReadOffsets(TensorEntry* entry, uint64_t bytes) const {
    const nlohmann::json& value = Member("data_offsets");
    std::optional<uint64_t> begin;
    std::optional<uint64_t> end;
    if (value.is_array() && value.size() == 2) {
      begin = AsUnsigned(value[0]);
      end = AsUnsigned(value[1]);
    }
    if (!begin || !end || *end < *begin || *end - *begin != bytes) {
      return Bad("data_offsets", value,
                 Format("[begin, begin + {}] is needed for its shape and dtype", bytes));
    }
    entry->begin = *begin;
    entry->end = *end;
    return OkStatus();
  }

  std::string_view file_;
  std::string_view name_;
  const nlohmann::json& json_;
  const nlohmann::json absent_;  // shown as null
};

Result<std::string_view> HeaderText(std::span<const std::byte> bytes, std::string_view file) {
  if (bytes.size() < kPrefixBytes) {
    return InvalidArgument(Format("{}: is {} bytes long; a safetensors file has at least {}", file,
                                  bytes.size(), kPrefixBytes));
  }
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kPrefixBytes);
  const uint64_t limit = std::min<uint64_t>(kMaxHeaderBytes, bytes.size() - kPrefixBytes);
  if (length > limit) {
    return InvalidArgument(
        Format("{}: header length is {}; at most {} is allowed (the file has {} bytes: truncated, "
               "or not a "
               "safetensors file)",
               file, length, limit, bytes.size()));
  }
  return std::string_view(reinterpret_cast<const char*>(bytes.data()) + kPrefixBytes, length);
}

// The format demands it of writers, and it leaves no byte unaccounted for.
Status CheckCoverage(std::vector<TensorEntry>* entries, uint64_t data_bytes,
                     std::string_view file) {
  std::ranges::sort(*entries, {},
                    [](const TensorEntry& entry) { return std::pair(entry.begin, entry.end); });
  uint64_t expected = 0;
  for (const TensorEntry& entry : *entries) {
    if (entry.begin != expected) {
      return InvalidArgument(Format(
          "{}: tensor '{}': data_offsets begin at {}; {} is needed, where the tensor before ends",
          file, entry.name, entry.begin, expected));
    }
    if (entry.end > data_bytes) {
      return InvalidArgument(Format(
          "{}: tensor '{}': data_offsets end at {}; the file holds {} bytes of data (truncated?)",
          file, entry.name, entry.end, data_bytes));
    }
    expected = entry.end;
  }
  if (expected != data_bytes) {
    return InvalidArgument(Format("{}: holds {} bytes of data; its tensors account for {}", file,
                                  data_bytes, expected));
  }
  return OkStatus();
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::Open(const std::filesystem::path& path) {
  SEQ2SEQ_ASSIGN_OR_RETURN(FileMapping mapping, FileMapping::Open(path));
  SafetensorsFile file(std::move(mapping), path.string());
  const std::span<const std::byte> bytes = file.mapping_.bytes();
  SEQ2SEQ_ASSIGN_OR_RETURN(const std::string_view text, HeaderText(bytes, file.name_));
  SEQ2SEQ_ASSIGN_OR_RETURN(const JsonObject header, JsonObject::Parse(text, file.name_));

  std::vector<TensorEntry> entries;
  for (const auto& [name, value] : header.json().items()) {
    if (name == kMetadataKey) continue;
    SEQ2SEQ_ASSIGN_OR_RETURN(TensorEntry entry, EntryReader(file.name_, name, value).Read());
    entries.push_back(std::move(entry));
  }
  const std::span<const std::byte> data = bytes.subspan(kPrefixBytes + text.size());
  SEQ2SEQ_RETURN_IF_ERROR(CheckCoverage(&entries, data.size(), file.name_));
  for (TensorEntry& entry : entries) {
    file.tensors_.emplace(std::move(entry.name), TensorView{.data = data.data() + entry.begin,
                                                            .dtype = entry.dtype,
                                                            .shape = std::move(entry.shape),
                                                            .in_file = true});
  }
  file.AlignTensors();
  return file;
}

void SafetensorsFile::AlignTensors() {
  // Common writers pad the header to 8 bytes, but the format does not ask for it.
  for (auto& [name, view] : tensors_) {
    if (std::bit_cast<uintptr_t>(view.data) % DTypeBytes(view.dtype) == 0) continue;
    const size_t bytes = static_cast<size_t>(view.elements()) * DTypeBytes(view.dtype);
    auto copy = std::make_unique_for_overwrite<std::byte[]>(bytes);
    std::memcpy(copy.get(), view.data, bytes);
    view.data = copy.get();
    view.in_file = false;
    aligned_copies_.push_back(std::move(copy));
  }
}

}  // namespace seq2seq
