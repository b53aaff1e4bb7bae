#include "backend/kv_cache/block_pool.h"

#include <algorithm>
#include <cassert>
#include <string>

namespace seq2seq {

BlockPool::BlockPool(int32_t total_blocks)
    : total_(total_blocks), owners_(total_blocks), listed_(total_blocks) {
  free_.reserve(total_blocks);
  // Low numbers on top: a pool that is mostly free keeps using the same memory.
  for (BlockId block = total_blocks - 1; block >= 0; --block) free_.push_back(block);
}

bool BlockPool::Allocate(std::span<BlockId> blocks) {
  if (blocks.size() > free_.size()) return false;
  for (BlockId& block : blocks) {
    block = free_.back();
    free_.pop_back();
    owners_[block] = 1;
  }
  return true;
}

void BlockPool::Retain(std::span<const BlockId> blocks) {
  for (BlockId block : blocks) {
    assert(owners_[block] > 0);
    ++owners_[block];
  }
}

void BlockPool::Release(std::span<const BlockId> blocks) {
  for (BlockId block : blocks) {
    assert(owners_[block] > 0);
    if (--owners_[block] == 0) free_.push_back(block);
  }
}

Status BlockPool::CheckIntegrity() const {
  const auto contradiction = [](BlockId block, const std::string& what) {
    return Internal("KV block " + std::to_string(block) + " " + what);
  };
  std::fill(listed_.begin(), listed_.end(), false);
  for (BlockId block : free_) {
    if (block < 0 || block >= total_) return contradiction(block, "is free, but does not exist");
    if (listed_[block]) return contradiction(block, "is twice in the free list");
    listed_[block] = true;
  }
  for (BlockId block = 0; block < total_; ++block) {
    const bool owned = owners_[block] != 0;
    if (owners_[block] < 0 || (listed_[block] && owned)) {
      return contradiction(block, "is free, but has " + std::to_string(owners_[block]) + " owners");
    }
    if (!listed_[block] && !owned) return contradiction(block, "is lost: no owner, not free");
  }
  return OkStatus();
}

}  // namespace seq2seq
