#include "backend/kv_cache/block_pool.h"

#include <map>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace seq2seq {
namespace {

TEST(BlocksForTest, RoundsUp) {
  EXPECT_EQ(BlocksFor(0, 16), 0);
  EXPECT_EQ(BlocksFor(1, 16), 1);
  EXPECT_EQ(BlocksFor(16, 16), 1);
  EXPECT_EQ(BlocksFor(17, 16), 2);
}

TEST(BlockPoolTest, GivesEachBlockToOneOwner) {
  BlockPool pool(3);
  std::vector<BlockId> all(3);
  ASSERT_TRUE(pool.Allocate(all));
  EXPECT_EQ(std::set<BlockId>(all.begin(), all.end()), (std::set<BlockId>{0, 1, 2}));
  EXPECT_EQ(pool.used(), 3);
  pool.Release(all);
  EXPECT_EQ(pool.free(), 3);
  EXPECT_TRUE(pool.CheckIntegrity());
}

TEST(BlockPoolTest, TakesAllOrNothing) {
  BlockPool pool(4);
  std::vector<BlockId> three(3);
  ASSERT_TRUE(pool.Allocate(three));
  std::vector<BlockId> two = {-7, -7};
  EXPECT_FALSE(pool.Allocate(two));
  EXPECT_EQ(two, (std::vector<BlockId>{-7, -7}));
  EXPECT_EQ(pool.free(), 1);
  EXPECT_TRUE(pool.Allocate({}));
  EXPECT_TRUE(pool.CheckIntegrity());
}

TEST(BlockPoolTest, SharedBlocksReturnWithTheirLastOwner) {
  BlockPool pool(2);
  std::vector<BlockId> one(1);
  ASSERT_TRUE(pool.Allocate(one));
  pool.Retain(one);
  pool.Release(one);
  EXPECT_EQ(pool.used(), 1);
  pool.Release(one);
  EXPECT_EQ(pool.used(), 0);
  EXPECT_TRUE(pool.CheckIntegrity());
}

TEST(BlockPoolTest, AgreesWithANaiveModelOverRandomOperations) {
  constexpr int32_t kBlocks = 37;
  std::mt19937 random(20240607);
  BlockPool pool(kBlocks);
  std::vector<std::vector<BlockId>> holdings;  // each entry is one owner of each of its blocks
  for (int step = 0; step < 20'000; ++step) {
    const uint32_t choice = random() % 3;
    if (choice == 0) {
      std::vector<BlockId> blocks(random() % 9);
      std::map<BlockId, int> owned;
      for (const auto& holding : holdings) {
        for (BlockId block : holding) ++owned[block];
      }
      const bool fits = blocks.size() <= kBlocks - owned.size();
      ASSERT_EQ(pool.Allocate(blocks), fits);
      if (!fits) continue;
      for (BlockId block : blocks) {
        ASSERT_EQ(owned[block]++, 0) << "block " << block << " had an owner";
        ASSERT_GE(block, 0);
        ASSERT_LT(block, kBlocks);
      }
      holdings.push_back(blocks);
    } else if (!holdings.empty()) {
      const size_t index = random() % holdings.size();
      if (choice == 1) {
        pool.Retain(holdings[index]);
        holdings.push_back(holdings[index]);
      } else {
        pool.Release(holdings[index]);
        holdings.erase(holdings.begin() + static_cast<std::ptrdiff_t>(index));
      }
    }
    std::map<BlockId, int> owned;
    for (const auto& holding : holdings) {
      for (BlockId block : holding) ++owned[block];
    }
    ASSERT_EQ(pool.used(), static_cast<int32_t>(owned.size()));
    ASSERT_TRUE(pool.CheckIntegrity());
  }
}

}  // namespace
}  // namespace seq2seq
