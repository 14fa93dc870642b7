// SPDX-License-Identifier: Apache-2.0
//
// The ring by itself: bringing blocks, finding them, and which slot is given up.
#include "shm/ring.h"

#include <gtest/gtest.h>

#include "shm/ring_fixture.h"

namespace ucmstore::test {
namespace {

using Purpose = Ring::Purpose;

TEST(Ring, ABlockIsSeenWhenItsLastShardHasLanded) {
  const RingArena arena({.shard_size = 100, .shards_per_block = 3, .slot_count = 4});
  const auto mine = arena.Join(0);
  const auto other = arena.Join(127);
  const Ring::Claim claim = mine->ClaimFor(PlainId(1), Purpose::kFill);
  ASSERT_TRUE(claim.made);
  EXPECT_EQ(mine->WordOf(claim.pin).state(), SlotState::kFilling);
  EXPECT_EQ(mine->BlockOf(claim.pin), PlainId(1));
  for (std::uint32_t shard = 0; shard < 3; ++shard) {
    EXPECT_FALSE(IsHere(*other, PlainId(1)));
    const Pin seen = other->Find(PlainId(1));
    ASSERT_TRUE(seen);
    ASSERT_TRUE(mine->BeginShard(claim.pin, shard));
    EXPECT_TRUE(mine->IsMine(mine->ShardState(claim.pin, shard)));
    EXPECT_FALSE(other->IsMine(other->ShardState(seen, shard)));
    EXPECT_FALSE(other->BeginShard(seen, shard));
    EXPECT_EQ(mine->LandShard(claim.pin, shard, 90 + shard), shard == 2);
    EXPECT_FALSE(other->BeginShard(seen, shard));
    EXPECT_EQ(other->LengthOf(seen, shard), 90 + shard);
  }
  EXPECT_TRUE(IsHere(*other, PlainId(1)));
  EXPECT_FALSE(IsHere(*other, PlainId(2)));
  EXPECT_EQ(mine->WordOf(claim.pin).state(), SlotState::kClean);
  EXPECT_EQ(mine->CountStates()[static_cast<std::size_t>(SlotState::kClean)], 1);
}

TEST(Ring, AnAssembledBlockIsDirtyAndOfWhoeverLandedTheLastShard) {
  const RingArena arena({.shard_size = 64, .shards_per_block = 2, .slot_count = 2});
  const auto one = arena.Join(3);
  const auto other = arena.Join(70);
  const Ring::Claim first = one->ClaimFor(PlainId(1), Purpose::kAssemble);
  const Ring::Claim second = other->ClaimFor(PlainId(1), Purpose::kAssemble);
  ASSERT_TRUE(first.made);
  ASSERT_TRUE(second.pin);
  EXPECT_FALSE(second.made);
  EXPECT_EQ(second.pin.slot(), first.pin.slot());
  ASSERT_TRUE(one->BeginShard(first.pin, 0));
  ASSERT_TRUE(other->BeginShard(second.pin, 1));
  EXPECT_FALSE(one->LandShard(first.pin, 0, 64));
  EXPECT_TRUE(other->LandShard(second.pin, 1, 64));
  EXPECT_EQ(one->WordOf(first.pin), SlotWord(1, SlotState::kDirty, 71));
}

TEST(Ring, AnAbandonedShardIsBegunAgain) {
  const RingArena arena({.shard_size = 64, .shards_per_block = 1, .slot_count = 1});
  const auto ring = arena.Join(0);
  const Ring::Claim claim = ring->ClaimFor(PlainId(1), Purpose::kFill);
  ASSERT_TRUE(ring->BeginShard(claim.pin, 0));
  ring->AbandonShard(claim.pin, 0);
  EXPECT_EQ(ring->ShardState(claim.pin, 0), kShardEmpty);
  EXPECT_FALSE(IsHere(*ring, PlainId(1)));
  EXPECT_TRUE(ring->BeginShard(claim.pin, 0));
  EXPECT_TRUE(ring->LandShard(claim.pin, 0, 64));
}

// ---- which slot is given up ---------------------------------------------------------------------

TEST(RingHand, TakesTheNextSlotThatHasNoChanceLeft) {
  const RingArena arena({.shard_size = 64, .shards_per_block = 1, .slot_count = 3});
  const auto ring = arena.Join(0);
  for (std::uint64_t block : {0U, 1U, 2U}) PutClean(*ring, PlainId(block));
  EXPECT_EQ(arena.Word(0).chance(), 0) << "a new block has no chance";
  ring->Touch(ring->Find(PlainId(1)));
  EXPECT_EQ(arena.Word(1).chance(), 1);
  PutClean(*ring, PlainId(3));
  EXPECT_FALSE(IsHere(*ring, PlainId(0)));
  PutClean(*ring, PlainId(4));
  EXPECT_TRUE(IsHere(*ring, PlainId(1))) << "it had a chance";
  EXPECT_FALSE(IsHere(*ring, PlainId(2)));
  EXPECT_EQ(arena.Word(1).chance(), 0);
  PutClean(*ring, PlainId(5));
  EXPECT_FALSE(IsHere(*ring, PlainId(3)));
  PutClean(*ring, PlainId(6));
  EXPECT_FALSE(IsHere(*ring, PlainId(1)));
  EXPECT_EQ(arena.memory().shared->evictions.load(), 4);
}

TEST(RingHand, ATouchGivesAChanceUpToThree) {
  const RingArena arena({.shard_size = 64, .shards_per_block = 1, .slot_count = 2});
  const auto ring = arena.Join(0);
  PutClean(*ring, PlainId(1));
  PutClean(*ring, PlainId(2));
  for (const std::uint32_t chance : {1U, 2U, 3U, 3U}) {
    std::uint8_t here = 0;
    ring->Probe(std::vector{PlainId(1)}, true, &here);
    EXPECT_EQ(here, 1);
    EXPECT_EQ(arena.Word(0).chance(), chance);
  }
  EXPECT_TRUE(IsHere(*ring, PlainId(1)));
  EXPECT_EQ(arena.Word(0).chance(), 3) << "a probe without touch gives none";
  for (std::uint64_t block : {3U, 4U, 5U}) PutClean(*ring, PlainId(block));
  EXPECT_TRUE(IsHere(*ring, PlainId(1)));
  PutClean(*ring, PlainId(6));
  EXPECT_FALSE(IsHere(*ring, PlainId(1)));
}

TEST(RingHand, C06_APinnedBlockIsNeverGivenUp) {
  const RingArena arena({.shard_size = 64, .shards_per_block = 1, .slot_count = 4});
  const auto ring = arena.Join(0);
  const auto reader = arena.Join(64);
  for (std::uint64_t block = 0; block < 4; ++block) PutClean(*ring, PlainId(block));
  std::vector<Pin> pins;
  for (const std::uint64_t block : {0U, 1U, 3U}) pins.push_back(reader->Find(PlainId(block)));
  for (std::uint64_t block = 10; block < 20; ++block) {
    const Ring::Claim claim = ring->ClaimFor(PlainId(block), Purpose::kFill);
    ASSERT_TRUE(claim.made);
    EXPECT_EQ(claim.pin.slot(), 2);
  }
  pins.push_back(reader->Find(PlainId(19)));
  ASSERT_TRUE(pins.back());
  const Ring::Claim none = ring->ClaimFor(PlainId(30), Purpose::kFill);
  EXPECT_FALSE(none.pin);
  EXPECT_FALSE(none.made);
  pins.erase(pins.begin());
  EXPECT_EQ(ring->ClaimFor(PlainId(30), Purpose::kFill).pin.slot(), 0);
}

TEST(RingHand, ADirtyBlockIsNeverGivenUp) {
  const RingArena arena({.shard_size = 64, .shards_per_block = 1, .slot_count = 2});
  const auto ring = arena.Join(0);
  PutDirty(*ring, PlainId(1));
  PutDirty(*ring, PlainId(2));
  ASSERT_TRUE(ring->BeginFlush(1));
  EXPECT_FALSE(ring->ClaimFor(PlainId(3), Purpose::kFill).pin);
  ring->EndFlush(1, Ring::Flush::kArrived);
  EXPECT_EQ(ring->ClaimFor(PlainId(3), Purpose::kFill).pin.slot(), 1);
  EXPECT_TRUE(IsHere(*ring, PlainId(1)));
}

TEST(RingHand, S10_AnIncompleteDumpIsGivenUpWhenNothingElseIsLeft) {
  const RingArena arena({.shard_size = 64, .shards_per_block = 2, .slot_count = 2});
  const auto ring = arena.Join(0);
  (void)ring->ClaimFor(PlainId(1), Purpose::kAssemble);
  PutClean(*ring, PlainId(2));
  for (int i = 0; i < 3; ++i) ring->Touch(ring->Find(PlainId(2)));
  const Ring::Claim first = ring->ClaimFor(PlainId(3), Purpose::kFill);
  EXPECT_EQ(first.pin.slot(), 1) << "the hottest whole block goes first";
  const Ring::Claim second = ring->ClaimFor(PlainId(4), Purpose::kFill);
  EXPECT_EQ(second.pin.slot(), 0);
  EXPECT_FALSE(ring->Find(PlainId(1)));
}

TEST(RingHand, S10_AnIncompleteDumpThatIsTooOldIsGivenUpInItsTurn) {
  const RingArena arena({.shard_size = 64, .shards_per_block = 2, .slot_count = 2});
  const auto ring = arena.Join(0, milliseconds(0));
  (void)ring->ClaimFor(PlainId(1), Purpose::kAssemble);
  PutClean(*ring, PlainId(2));
  EXPECT_EQ(ring->ClaimFor(PlainId(3), Purpose::kFill).pin.slot(), 0);
}

TEST(RingHand, AFruitlessSweepIsBoundedAndNotRepeatedAtOnce) {
  constexpr std::uint32_t kSlots = 5000;
  const RingArena arena({.shard_size = 64, .shards_per_block = 1, .slot_count = kSlots});
  const auto ring = arena.Join(0);
  std::vector<Pin> pins;
  for (std::uint64_t block = 0; block < kSlots; ++block) {
    pins.push_back(ring->ClaimFor(PlainId(block), Purpose::kFill).pin);
    ASSERT_TRUE(pins.back());
  }
  const auto& hand = arena.memory().shared->hand;
  EXPECT_EQ(hand.load(), kSlots);
  const auto before = std::chrono::steady_clock::now();
  EXPECT_FALSE(ring->ClaimFor(PlainId(kSlots), Purpose::kFill).pin);
  const std::uint64_t swept = hand.load();
  EXPECT_LE(swept, kSlots + 5ULL * kSlots);
  EXPECT_FALSE(ring->ClaimFor(PlainId(kSlots), Purpose::kFill).pin);
  // Not if this thread was held up for so long that it may try again.
  if (std::chrono::steady_clock::now() - before < milliseconds(10)) {
    EXPECT_EQ(hand.load(), swept);
  }
  ASSERT_TRUE(ring->BeginShard(pins.front(), 0));
  (void)ring->LandShard(pins.front(), 0, 64);
  pins.front().Release();
  EXPECT_TRUE(ring->ClaimFor(PlainId(kSlots), Purpose::kFill).made) << "something has landed";
}

// ---- pins ---------------------------------------------------------------------------------------

TEST(RingPins, APinIsHeldUntilItsLastCopyGoes) {
  const RingArena arena({.shard_size = 64, .shards_per_block = 1, .slot_count = 1});
  const auto ring = arena.Join(65);
  PutClean(*ring, PlainId(1));
  Pin first = ring->Find(PlainId(1));
  Pin second = first.Another();
  Pin third = ring->Find(PlainId(1));
  Pin moved = std::move(third);
  EXPECT_FALSE(third);  // NOLINT(bugprone-use-after-move): that is what is asked
  first.Release();
  first.Release();
  second = std::move(moved);
  EXPECT_TRUE(arena.IsPinned(0));
  EXPECT_FALSE(ring->ClaimFor(PlainId(2), Purpose::kFill).pin);
  second.Release();
  EXPECT_FALSE(arena.IsPinned(0));
  EXPECT_FALSE(Pin().Another());
}

TEST(RingPins, E07_ManyProcessesPinOneSlot) {
  const RingArena arena({.shard_size = 64, .shards_per_block = 1, .slot_count = 1});
  std::vector<std::unique_ptr<Ring>> rings;
  for (std::uint32_t place = 0; place < kMaxProcesses; ++place) rings.push_back(arena.Join(place));
  PutClean(*rings[0], PlainId(1));
  std::vector<Pin> pins;
  for (const auto& ring : rings) pins.push_back(ring->Find(PlainId(1)));
  const auto& bits = arena.memory().slots[0].pins;
  EXPECT_EQ(bits[0].load() & bits[1].load(), ~0ULL);
  while (!pins.empty()) {
    EXPECT_FALSE(rings[5]->ClaimFor(PlainId(2), Purpose::kFill).pin);
    pins.pop_back();
  }
  EXPECT_TRUE(rings[5]->ClaimFor(PlainId(2), Purpose::kFill).made);
  EXPECT_EQ(arena.Word(0), SlotWord(2, SlotState::kFilling, 0));
}

// ---- discarding ---------------------------------------------------------------------------------

TEST(RingDiscard, EmptiesAnIncompleteBlockThatNobodyElseHasPinned) {
  const RingArena arena({.shard_size = 64, .shards_per_block = 2, .slot_count = 1});
  const auto ring = arena.Join(0);
  const auto other = arena.Join(1);
  Ring::Claim claim = ring->ClaimFor(PlainId(1), Purpose::kFill);
  EXPECT_TRUE(ring->IsBare(claim.pin));
  ASSERT_TRUE(ring->BeginShard(claim.pin, 0));
  EXPECT_FALSE(ring->IsBare(claim.pin));
  (void)ring->LandShard(claim.pin, 0, 64);
  EXPECT_FALSE(ring->IsBare(claim.pin));
  Pin watcher = other->Find(PlainId(1));
  ring->Discard(std::move(claim.pin));
  EXPECT_EQ(arena.Word(0).state(), SlotState::kFilling) << "the other one has pinned it";
  other->Discard(std::move(watcher));
  EXPECT_EQ(arena.Word(0), SlotWord(2, SlotState::kEmpty, 0));
  EXPECT_FALSE(ring->Find(PlainId(1)));
  PutClean(*ring, PlainId(1));
  ring->Discard(ring->Find(PlainId(1)));
  EXPECT_TRUE(IsHere(*ring, PlainId(1))) << "a whole block stays";
  EXPECT_EQ(arena.WhatIsLeft(), "");
}

// ---- extremes -----------------------------------------------------------------------------------

TEST(RingExtremes, OneSlotOrManyShards) {
  for (const std::uint32_t shards : {1U, 7U, 8U, 9U, 128U}) {
    for (const std::uint32_t slots : {1U, 2U, 6U, 7U, 13U}) {
      const RingArena arena({.shard_size = 72, .shards_per_block = shards, .slot_count = slots});
      const auto ring = arena.Join(9);
      for (std::uint64_t block = 0; block < 3ULL * slots; ++block) {
        PutClean(*ring, PlainId(block));
        ASSERT_TRUE(IsHere(*ring, PlainId(block))) << shards << " shards, " << slots << " slots";
      }
      EXPECT_EQ(ring->CountStates()[static_cast<std::size_t>(SlotState::kClean)], slots);
      EXPECT_EQ(arena.memory().shared->evictions.load(), 2 * slots);
      EXPECT_EQ(arena.WhatIsLeft(), "");
    }
  }
}

TEST(RingExtremes, ShardsDoNotOverlap) {
  const RingArena arena({.shard_size = 65, .shards_per_block = 3, .slot_count = 2});
  const auto ring = arena.Join(0);
  std::vector<Ring::Claim> claims;
  for (std::uint64_t block : {0U, 1U}) {
    claims.push_back(ring->ClaimFor(PlainId(block), Purpose::kFill));
    for (std::uint32_t shard = 0; shard < 3; ++shard) {
      std::memset(ring->DataOf(claims.back().pin, shard), static_cast<int>(block * 3 + shard), 65);
    }
  }
  for (std::uint64_t block : {0U, 1U}) {
    for (std::uint32_t shard = 0; shard < 3; ++shard) {
      const std::byte* data = ring->DataOf(claims[block].pin, shard);
      EXPECT_EQ(std::count(data, data + 65, static_cast<std::byte>(block * 3 + shard)), 65);
    }
  }
}

}  // namespace
}  // namespace ucmstore::test
