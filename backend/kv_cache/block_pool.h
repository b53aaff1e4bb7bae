// Accounting of KV-cache blocks: which are free, and how many owners each of the others has.
#ifndef SEQ2SEQ_BACKEND_KV_CACHE_BLOCK_POOL_H_
#define SEQ2SEQ_BACKEND_KV_CACHE_BLOCK_POOL_H_

#include <cstdint>
#include <span>
#include <vector>

#include "backend/core/ids.h"
#include "backend/core/status.h"

namespace seq2seq {

// Blocks one needs for `tokens` positions, `block_tokens` in each.
constexpr int32_t BlocksFor(int32_t tokens, int32_t block_tokens) {
  return (tokens + block_tokens - 1) / block_tokens;
}

// Hands out the blocks of one engine's pool; the memory itself is the engine's. Self- and
// cross-attention take from the same pool. A block may be shared (Retain), and returns to the pool
// when its last owner releases it. Host arithmetic only, one thread, no allocation after
// construction.
class BlockPool {
 public:
  explicit BlockPool(int32_t total_blocks);

  int32_t total() const { return total_; }
  int32_t free() const { return static_cast<int32_t>(free_.size()); }
  int32_t used() const { return total_ - free(); }

  // Fills `blocks` with blocks of one owner each, and returns true; or takes none and returns
  // false.
  [[nodiscard]] bool Allocate(std::span<BlockId> blocks);
  // One more owner for each block; they must be allocated.
  void Retain(std::span<const BlockId> blocks);
  // One owner less for each block.
  void Release(std::span<const BlockId> blocks);

  // kInternal with the first contradiction found: a free block with an owner, a block lost or twice
  // in the free list. Called when idle and by every test.
  [[nodiscard]] Status CheckIntegrity() const;

 private:
  int32_t total_;
  std::vector<BlockId> free_;         // a stack
  std::vector<int32_t> owners_;       // by block
  mutable std::vector<bool> listed_;  // CheckIntegrity()'s scratch space
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_KV_CACHE_BLOCK_POOL_H_
