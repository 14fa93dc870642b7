// SPDX-License-Identifier: Apache-2.0
//
// The index: ids that crowd into one bucket, stale hints, ids that are plain numbers.
#include "shm/hint_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "shm/ring_fixture.h"

namespace ucmstore::test {
namespace {

using Purpose = Ring::Purpose;

constexpr std::uint32_t kMostNeighbours = HintIndex::kReach * kHintsPerBucket;

std::uint64_t OverflowOf(const RingArena& arena, const BlockId& block) {
  return HintIndex(arena.memory()).Home(HintIndex::Hash(block)).overflow.load();
}

std::size_t HintsIn(const RingArena& arena) {
  std::size_t count = 0;
  for (std::uint32_t i = 0; i < arena.memory().header->bucket_count; ++i) {
    for (const auto& hint : arena.memory().buckets[i].hints) count += hint.load() != 0 ? 1 : 0;
  }
  return count;
}

TEST(RingIndex, PlainNumbersSpreadOverTheBuckets) {
  constexpr std::uint32_t kBlocks = 4096;
  const RingArena arena({.shard_size = 64, .shards_per_block = 1, .slot_count = kBlocks});
  const HintIndex index(arena.memory());
  for (const int at : {0, 3, 8, 15}) {  // where in the id the number is
    std::map<const Bucket*, std::uint32_t> loads;
    std::uint32_t most = 0;
    for (std::uint64_t number = 0; number < kBlocks; ++number) {
      BlockId block{};
      std::memcpy(block.bytes.data() + at, &number, at == 15 ? 1 : 2);
      if (at == 15 && number > 255) break;
      most = std::max(most, ++loads[&index.Home(HintIndex::Hash(block))]);
    }
    EXPECT_LE(most, 14) << "at byte " << at << " of the id";
  }
}

TEST(RingIndex, EveryPlainNumberIsFoundInAFullRing) {
  constexpr std::uint32_t kBlocks = 2000;
  const RingArena arena({.shard_size = 8, .shards_per_block = 1, .slot_count = kBlocks});
  const auto ring = arena.Join(0);
  for (std::uint64_t number = 0; number < kBlocks; ++number) PutClean(*ring, PlainId(number));
  std::vector<BlockId> blocks;
  for (std::uint64_t number = 0; number < 2ULL * kBlocks; ++number) {
    blocks.push_back(PlainId(number));
  }
  std::vector<std::uint8_t> here(blocks.size(), 2);
  ring->Probe(blocks, true, here.data());
  EXPECT_EQ(std::count(here.begin(), here.begin() + kBlocks, 1), kBlocks);
  EXPECT_EQ(std::count(here.begin() + kBlocks, here.end(), 0), kBlocks);
}

TEST(RingIndex, NeighboursOverflowIntoTheBucketsBehind) {
  const RingArena arena({.shard_size = 64, .shards_per_block = 1, .slot_count = 80});
  const auto ring = arena.Join(0);
  const auto blocks = Neighbours(arena.memory(), kMostNeighbours + 4);
  for (std::uint32_t i = 0; i < kMostNeighbours; ++i) PutClean(*ring, blocks[i]);
  for (std::uint32_t i = 0; i < kMostNeighbours; ++i) {
    EXPECT_TRUE(IsHere(*ring, blocks[i])) << i;
    EXPECT_TRUE(ring->Find(blocks[i])) << i;
  }
  EXPECT_EQ(OverflowOf(arena, blocks[0]), kMostNeighbours - kHintsPerBucket);
  // No room within reach: refused, nothing left behind.
  for (std::uint32_t i = kMostNeighbours; i < blocks.size(); ++i) {
    EXPECT_FALSE(ring->ClaimFor(blocks[i], Purpose::kFill).pin);
    EXPECT_FALSE(IsHere(*ring, blocks[i]));
  }
  EXPECT_EQ(OverflowOf(arena, blocks[0]), kMostNeighbours - kHintsPerBucket);
  EXPECT_EQ(arena.WhatIsLeft(), "");
  EXPECT_EQ(ring->CountStates()[static_cast<std::size_t>(SlotState::kEmpty)], 80 - kMostNeighbours);
}

TEST(RingIndex, OverflowShrinksWithTheBlocksThatMadeIt) {
  const RingArena arena({.shard_size = 64, .shards_per_block = 1, .slot_count = 80});
  const auto ring = arena.Join(0);
  const auto blocks = Neighbours(arena.memory(), kMostNeighbours);
  for (const BlockId& block : blocks) (void)ring->ClaimFor(block, Purpose::kFill);
  for (std::uint32_t i = 0; i < kHintsPerBucket; ++i) ring->Discard(ring->Find(blocks[i]));
  EXPECT_EQ(OverflowOf(arena, blocks[0]), kMostNeighbours - kHintsPerBucket);
  for (std::uint32_t i = kHintsPerBucket; i < kMostNeighbours; ++i) {
    EXPECT_FALSE(IsHere(*ring, blocks[i]));
    ring->Discard(ring->Find(blocks[i]));
  }
  EXPECT_EQ(OverflowOf(arena, blocks[0]), 0);
  EXPECT_EQ(HintsIn(arena), 0);
}

// Whoever needed its place may take a hint before it is removed; or who was to remove it has died.
TEST(RingIndex, OverflowShrinksThoughOthersDropTheHints) {
  const RingArena arena({.shard_size = 64, .shards_per_block = 1, .slot_count = 8});
  const auto ring = arena.Join(0);
  const auto blocks = Neighbours(arena.memory(), 8);
  std::vector<Pin> pins;
  for (const BlockId& block : blocks) {
    pins.push_back(ring->ClaimFor(block, Purpose::kFill).pin);
  }
  ASSERT_EQ(OverflowOf(arena, blocks[0]), 1);
  for (std::uint32_t i = 0; i < arena.memory().header->bucket_count; ++i) {
    for (auto& hint : arena.memory().buckets[i].hints) {
      if (Hint(hint.load()).slot() == pins[7].slot()) hint.store(0);
    }
  }
  ring->Discard(std::move(pins[7]));
  EXPECT_EQ(OverflowOf(arena, blocks[0]), 0);
}

TEST(RingIndex, OverflowOfTheDeadIsSettledByWhoTakesTheirSlot) {
  const RingArena arena({.shard_size = 64, .shards_per_block = 1, .slot_count = 8});
  const auto ring = arena.Join(0);
  const auto dead = arena.Join(1);
  const auto blocks = Neighbours(arena.memory(), 8);
  std::vector<Pin> pins;
  for (std::size_t i = 0; i < 7; ++i) {
    pins.push_back(ring->ClaimFor(blocks[i], Purpose::kFill).pin);
  }
  Abandoned<Pin> pin(dead->ClaimFor(blocks[7], Purpose::kFill).pin);
  ASSERT_EQ(OverflowOf(arena, blocks[0]), 1);
  // It died just before it decided.
  auto& word = arena.memory().slots[7].word;
  word.store(arena.Word(7).WithState(SlotState::kProposed, 2).bits());
  ring->EraseTraces(1);
  EXPECT_TRUE(ring->ClaimFor(PlainId(1'000'003), Purpose::kFill).made);
  EXPECT_EQ(OverflowOf(arena, blocks[0]), 0);
}

TEST(RingIndex, AHintIsGoneWithItsBlock) {
  const RingArena arena({.shard_size = 64, .shards_per_block = 1, .slot_count = 3});
  const auto ring = arena.Join(0);
  for (std::uint64_t block = 0; block < 1000; ++block) {
    PutClean(*ring, PlainId(block));
    ASSERT_LE(HintsIn(arena), 3);
  }
}

// Lives end without their hints being removed, by deaths: those hints never cost a claim its place.
TEST(RingIndex, StaleHintsAreDroppedByWhoeverNeedsTheirPlace) {
  const RingArena arena({.shard_size = 64, .shards_per_block = 1, .slot_count = 6});
  ASSERT_EQ(arena.memory().header->bucket_count, 1);
  const auto ring = arena.Join(0);
  PutClean(*ring, PlainId(1));
  Bucket& bucket = arena.memory().buckets[0];
  for (auto& hint : bucket.hints) {  // of an earlier life, and of an empty slot
    if (hint.load() == 0) hint.store(Hint(5, HintIndex::Hash(PlainId(7)), 0).bits());
  }
  bucket.hints[6].store(Hint(0, HintIndex::Hash(PlainId(8)), 77).bits());
  bucket.hints[5].store(Hint(4'000'000, HintIndex::Hash(PlainId(8)), 77).bits());  // was damaged
  EXPECT_FALSE(ring->Find(PlainId(7)));
  EXPECT_FALSE(IsHere(*ring, PlainId(8)));
  for (std::uint64_t block = 2; block < 40; ++block) {
    PutClean(*ring, PlainId(block));
    ASSERT_TRUE(IsHere(*ring, PlainId(block)));
  }
  EXPECT_EQ(bucket.overflow.load(), 0);
}

TEST(RingIndex, AHintSaysWhatItWasMadeOf) {
  constexpr std::uint64_t kHash = 0xABCD'EF01'2345'6789;
  const Hint hint(0xFFFFFFFF, kHash, 0x12'3456);
  EXPECT_EQ(hint.slot(), 0xFFFFFFFF);
  EXPECT_TRUE(hint.Matches(kHash));
  EXPECT_FALSE(hint.Matches(kHash ^ (1ULL << 63)));
  EXPECT_FALSE(hint.Matches(kHash ^ (1ULL << 49)));
  EXPECT_TRUE(hint.IsOf(SlotWord(0x3456, SlotState::kClean, 0)));
  EXPECT_FALSE(hint.IsOf(SlotWord(0x3457, SlotState::kClean, 0)));
  EXPECT_FALSE(Hint(0).Matches(0)) << "no hint is about nothing";
}

}  // namespace
}  // namespace ucmstore::test
