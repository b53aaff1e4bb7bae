#include "backend/kv_cache/block_pool.h"

#include <cassert>
#include <string>

namespace seq2seq {

BlockPool::BlockPool(int32_t total_blocks) : total_(total_blocks), owners_(total_blocks) {
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
  std::vector<bool> listed(total_);
  for (BlockId block : free_) {
    const std::string name = "KV block " + std::to_string(block);
    if (block < 0 || block >= total_) return Internal(name + " is free, but does not exist");
    if (listed[block]) return Internal(name + " is twice in the free list");
    listed[block] = true;
  }
  for (BlockId block = 0; block < total_; ++block) {
    const std::string name = "KV block " + std::to_string(block);
    if (owners_[block] < 0 || (listed[block] && owners_[block] != 0)) {
      return Internal(name + " is free, but has " + std::to_string(owners_[block]) + " owners");
    }
    if (!listed[block] && owners_[block] == 0) {
      return Internal(name + " has no owner and is not in the free list");
    }
  }
  return OkStatus();
}

}  // namespace seq2seq
