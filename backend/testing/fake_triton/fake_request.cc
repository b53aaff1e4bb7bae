#include "backend/testing/fake_triton/fake_request.h"

#include <cstring>

namespace seq2seq {

FakeInput MakeIds(const std::string& name, const std::vector<int32_t>& ids, size_t pieces) {
  FakeInput input;
  input.name = name;
  input.shape = {static_cast<int64_t>(ids.size())};
  input.announced_bytes = ids.size() * sizeof(int32_t);
  std::vector<std::byte> bytes(input.announced_bytes);
  if (!bytes.empty()) std::memcpy(bytes.data(), ids.data(), bytes.size());
  for (size_t i = 0; i < pieces; ++i) {
    const size_t begin = bytes.size() * i / pieces;
    const size_t end = bytes.size() * (i + 1) / pieces;
    FakeBuffer buffer;
    buffer.bytes.assign(bytes.begin() + static_cast<ptrdiff_t>(begin),
                        bytes.begin() + static_cast<ptrdiff_t>(end));
    input.buffers.push_back(std::move(buffer));
  }
  return input;
}

}  // namespace seq2seq
