// The memory behind the KV blocks: self- and cross-attention of all sequences of an engine.
#ifndef SEQ2SEQ_BACKEND_CPU_KV_POOL_H_
#define SEQ2SEQ_BACKEND_CPU_KV_POOL_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "backend/core/ids.h"
#include "backend/core/status.h"
#include "backend/cpu/anonymous_memory.h"
#include "backend/cpu/kernels/kernel_table.h"
#include "backend/model/model_spec.h"

namespace seq2seq::cpu {

// A block holds kPanelColumns positions of all decoder layers: [layer, head, keys then values],
// fp32. A head's keys are [head_dim, kPanelColumns], a panel as matrix kernels read them, so that
// scores of a block are a product without sums across a vector; its values are [kPanelColumns,
// value_stride]. Written and read by the engine's threads, each part by one at a time.
class KvPool {
 public:
  // As many blocks as fit into `bytes`. kInvalidArgument names kv_cache_bytes where not even one
  // fits.
  [[nodiscard]] static Result<KvPool> Create(const ModelSpec& spec, int64_t bytes);

  int32_t total_blocks() const { return total_blocks_; }
  const float* data() const { return memory_.floats(); }
  size_t block_stride() const { return block_floats_; }
  size_t value_stride() const { return value_stride_; }
  size_t key_offset(int32_t layer, int32_t head) const {
    return (static_cast<size_t>(layer) * heads_ + head) * head_floats_;
  }
  size_t value_offset(int32_t layer, int32_t head) const {
    return key_offset(layer, head) + static_cast<size_t>(head_dim_) * kPanelColumns;
  }

  // Stores one head's key and value [head_dim] at `position` of the sequence with these blocks.
  void Write(const BlockId* blocks, int32_t position, int32_t layer, int32_t head, const float* key,
             const float* value) {
    float* block = memory_.floats() + blocks[position / kPanelColumns] * block_floats_;
    const int32_t column = position % kPanelColumns;
    float* keys = block + key_offset(layer, head) + column;
    float* values = block + value_offset(layer, head) + column * value_stride_;
    for (int32_t d = 0; d < head_dim_; ++d) {
      keys[d * kPanelColumns] = key[d];
      values[d] = value[d];
    }
  }

 private:
  explicit KvPool(AnonymousMemory memory) : memory_(std::move(memory)) {}

  AnonymousMemory memory_;
  int32_t heads_ = 0;
  int32_t head_dim_ = 0;
  int32_t total_blocks_ = 0;
  size_t value_stride_ = 0;
  size_t head_floats_ = 0;
  size_t block_floats_ = 0;
};

}  // namespace seq2seq::cpu

#endif  // SEQ2SEQ_BACKEND_CPU_KV_POOL_H_
