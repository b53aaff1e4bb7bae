#include "backend/cpu/kv_pool.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "backend/core/format.h"

namespace seq2seq::cpu {

Result<KvPool> KvPool::Create(const ModelSpec& spec, int64_t bytes) {
  const size_t value_stride = (spec.head_dim + kLaneFloats - 1) / kLaneFloats * kLaneFloats;
  const size_t head_floats = kPanelColumns * (spec.head_dim + value_stride);
  const size_t block_floats = head_floats * spec.decoder.heads * spec.decoder.layers;
  const auto block_bytes = static_cast<int64_t>(block_floats * sizeof(float));
  if (bytes < block_bytes) {
    return InvalidArgument(
        Format("option 'kv_cache_bytes' is {}; one block of {} positions of this model takes {} "
               "bytes, and at least one is needed",
               bytes, kPanelColumns, block_bytes));
  }
  const int64_t blocks =
      std::min<int64_t>(bytes / block_bytes, std::numeric_limits<int32_t>::max());
  SEQ2SEQ_ASSIGN_OR_RETURN(
      AnonymousMemory memory,
      AnonymousMemory::Map(blocks * block_bytes, "the KV cache (option 'kv_cache_bytes')"));
  KvPool pool(std::move(memory));
  pool.heads_ = spec.decoder.heads;
  pool.head_dim_ = spec.head_dim;
  pool.total_blocks_ = static_cast<int32_t>(blocks);
  pool.value_stride_ = value_stride;
  pool.head_floats_ = head_floats;
  pool.block_floats_ = block_floats;
  return pool;
}

}  // namespace seq2seq::cpu
