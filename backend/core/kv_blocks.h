// Arithmetic of KV-cache blocks, the same for those who reserve and those who fill them.
#ifndef SEQ2SEQ_BACKEND_CORE_KV_BLOCKS_H_
#define SEQ2SEQ_BACKEND_CORE_KV_BLOCKS_H_

#include <cstdint>

namespace seq2seq {

// Blocks that hold `tokens` (>= 0) positions at block_tokens (> 0) a block, the last perhaps not
// full. 64 bits, so that no sum of two limits of a request overflows.
constexpr int64_t KvBlocksFor(int64_t tokens, int32_t block_tokens) {
  return (tokens + block_tokens - 1) / block_tokens;
}

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CORE_KV_BLOCKS_H_
