// SPDX-License-Identifier: Apache-2.0
//
// What a process leaves behind that dies in the middle of something, one test for each something.
// (The explorer lets it die everywhere; here it says what has become of the slot.)
#include <gtest/gtest.h>

#include "shm/ring.h"
#include "shm/ring_fixture.h"

namespace ucmstore::test {
namespace {

using Purpose = Ring::Purpose;

constexpr std::uint32_t kVictim = 63;
constexpr std::uint32_t kSurvivor = 64;

class RingReaping : public testing::Test {
 protected:
  // As if the victim had just swapped the word.
  void SetWord(std::uint32_t slot, SlotWord word) {
    arena_.memory().slots[slot].word.store(word.bits());
  }
  void SetShard(std::uint32_t slot, std::uint32_t shard, std::uint8_t state) {
    arena_.memory().StatesOf(slot)[shard].store(state);
  }
  void SetPin(std::uint32_t slot) {
    arena_.memory().slots[slot].pins[kVictim / 64].fetch_or(1ULL << (kVictim % 64));
  }
  // Erased once and, since a reaper may die in the middle, once more.
  void Reap() {
    survivor_->EraseTraces(kVictim);
    EXPECT_EQ(arena_.WhatIsLeft(), "");
    const SlotWord before = arena_.Word(0);
    survivor_->EraseTraces(kVictim);
    EXPECT_EQ(arena_.Word(0), before);
  }
  [[nodiscard]] Ring::Claim VictimClaims(Purpose purpose) {
    return victim_->ClaimFor(PlainId(1), purpose);
  }

  static constexpr std::uint8_t kVictimOwns = kVictim + 1;
  static constexpr std::uint8_t kSurvivorOwns = kSurvivor + 1;
  RingArena arena_{{.shard_size = 64, .shards_per_block = 2, .slot_count = 1}};
  std::unique_ptr<Ring> victim_ = arena_.Join(kVictim);
  std::unique_ptr<Ring> survivor_ = arena_.Join(kSurvivor);
};

TEST_F(RingReaping, E01_WhileItHadClaimedASlot) {
  SetWord(0, SlotWord(1, SlotState::kClaimed, kVictimOwns));
  EXPECT_FALSE(survivor_->ClaimFor(PlainId(2), Purpose::kFill).pin);
  Reap();
  EXPECT_EQ(arena_.Word(0), SlotWord(1, SlotState::kEmpty, 0));
  EXPECT_TRUE(survivor_->ClaimFor(PlainId(2), Purpose::kFill).made);
}

TEST_F(RingReaping, E01_WhileItHadProposedASlot) {
  const Abandoned<Ring::Claim> claim(VictimClaims(Purpose::kFill));
  SetWord(0, SlotWord(1, SlotState::kProposed, kVictimOwns));
  EXPECT_FALSE(survivor_->ClaimFor(PlainId(2), Purpose::kFill).pin);
  Reap();
  EXPECT_EQ(arena_.Word(0), SlotWord(1, SlotState::kEmpty, 0));
  EXPECT_FALSE(survivor_->Find(PlainId(1)));
  EXPECT_TRUE(survivor_->ClaimFor(PlainId(1), Purpose::kFill).made);
}

TEST_F(RingReaping, E01_WhileItRead) {
  PutClean(*survivor_, PlainId(1));
  const Abandoned<Pin> pin(victim_->Find(PlainId(1)));
  EXPECT_FALSE(survivor_->ClaimFor(PlainId(2), Purpose::kFill).pin);
  Reap();
  EXPECT_TRUE(IsHere(*survivor_, PlainId(1)));
  EXPECT_TRUE(survivor_->ClaimFor(PlainId(2), Purpose::kFill).made);
}

TEST_F(RingReaping, E01_WhileItCopiedAShardIn) {
  const Abandoned<Ring::Claim> claim(VictimClaims(Purpose::kFill));
  const Pin pin = survivor_->Find(PlainId(1));
  ASSERT_TRUE(survivor_->BeginShard(pin, 0));
  SetShard(0, 1, kVictimOwns);
  EXPECT_FALSE(survivor_->LandShard(pin, 0, 64));
  survivor_->EraseTraces(kVictim);
  EXPECT_EQ(survivor_->ShardState(pin, 0), kShardLanded);
  EXPECT_EQ(survivor_->ShardState(pin, 1), kShardEmpty);
  ASSERT_TRUE(survivor_->BeginShard(pin, 1));
  EXPECT_TRUE(survivor_->LandShard(pin, 1, 64));
}

TEST_F(RingReaping, E01_AfterItsLastShardHadLandedInAFill) {
  const Abandoned<Ring::Claim> claim(VictimClaims(Purpose::kFill));
  for (const std::uint32_t shard : {0U, 1U}) SetShard(0, shard, kShardLanded);
  Reap();
  EXPECT_EQ(arena_.Word(0), SlotWord(1, SlotState::kClean, 0));
  EXPECT_TRUE(IsHere(*survivor_, PlainId(1)));
}

TEST_F(RingReaping, E01_AfterItsLastShardHadLandedInADump) {
  const Abandoned<Ring::Claim> claim(VictimClaims(Purpose::kAssemble));
  for (const std::uint32_t shard : {0U, 1U}) SetShard(0, shard, kShardLanded);
  Reap();
  EXPECT_EQ(arena_.Word(0), SlotWord(1, SlotState::kDirty, kSurvivorOwns));
  std::vector<std::uint32_t> duties;
  survivor_->AdoptDirty([&](std::uint32_t slot) { duties.push_back(slot); });
  EXPECT_EQ(duties, std::vector<std::uint32_t>{0});
}

TEST_F(RingReaping, E01_WhileItEvicted) {
  PutClean(*survivor_, PlainId(1));
  SetWord(0, arena_.Word(0).Draining(kVictimOwns));
  EXPECT_FALSE(survivor_->ClaimFor(PlainId(2), Purpose::kFill).pin);
  EXPECT_TRUE(IsHere(*survivor_, PlainId(1)));
  Reap();
  EXPECT_EQ(arena_.Word(0), SlotWord(1, SlotState::kClean, 0));
  EXPECT_TRUE(survivor_->ClaimFor(PlainId(2), Purpose::kFill).made);
}

TEST_F(RingReaping, E01_WhileItOwedAFlush) {
  PutDirty(*victim_, PlainId(1));
  Reap();
  EXPECT_EQ(arena_.Word(0), SlotWord(1, SlotState::kDirty, kSurvivorOwns));
  EXPECT_TRUE(survivor_->BeginFlush(0));
}

TEST_F(RingReaping, E01_WhileItFlushed) {
  PutDirty(*victim_, PlainId(1));
  ASSERT_TRUE(victim_->BeginFlush(0));
  Reap();
  EXPECT_EQ(arena_.Word(0), SlotWord(1, SlotState::kDirty, kSurvivorOwns));
  victim_->EndFlush(0, Ring::Flush::kArrived);  // a word from the grave
  EXPECT_EQ(survivor_->BeginFlush(0), PlainId(1));
}

TEST_F(RingReaping, E01_AndItsReaperDiesAsWell) {
  PutDirty(*victim_, PlainId(1));
  survivor_->EraseTraces(kVictim);
  const auto next = arena_.Join(2);
  next->EraseTraces(kSurvivor);
  next->EraseTraces(kVictim);
  EXPECT_EQ(arena_.Word(0), SlotWord(1, SlotState::kDirty, 3));
}

TEST_F(RingReaping, E01_ANewcomerErasesItsPredecessorInItsOwnPlace) {
  PutDirty(*victim_, PlainId(1));
  const Abandoned<Pin> pin(victim_->Find(PlainId(1)));
  (void)victim_->BeginWatch();
  const auto newcomer = arena_.Join(kVictim);
  newcomer->EraseTraces(kVictim);
  EXPECT_EQ(arena_.WhatIsLeft(), "");
  EXPECT_EQ(arena_.memory().shared->watchers[kVictim / 64].load(), 0);
  std::vector<std::uint32_t> duties;
  newcomer->AdoptDirty([&](std::uint32_t slot) { duties.push_back(slot); });
  EXPECT_EQ(duties, std::vector<std::uint32_t>{0});
}

// It had set its bit, and the slot went to somebody else before it looked again.
TEST_F(RingReaping, E01_WhileItPinnedASlotThatWasBeingTakenAway) {
  const Ring::Claim claim = survivor_->ClaimFor(PlainId(2), Purpose::kFill);
  ASSERT_TRUE(survivor_->BeginShard(claim.pin, 0));
  SetPin(0);
  survivor_->EraseTraces(kVictim);
  EXPECT_TRUE(survivor_->IsMine(survivor_->ShardState(claim.pin, 0))) << "not the dead one's";
  EXPECT_EQ(arena_.memory().slots[0].pins[kVictim / 64].load(), 0);
  EXPECT_FALSE(survivor_->LandShard(claim.pin, 0, 64));
}

TEST_F(RingReaping, NothingOfTheLivingIsTouched) {
  const Ring::Claim claim = survivor_->ClaimFor(PlainId(1), Purpose::kAssemble);
  ASSERT_TRUE(survivor_->BeginShard(claim.pin, 0));
  const SlotWord before = arena_.Word(0);
  for (std::uint32_t place = 0; place < kMaxProcesses; ++place) {
    if (place != kSurvivor) survivor_->EraseTraces(place);
  }
  EXPECT_EQ(arena_.Word(0), before);
  EXPECT_TRUE(arena_.IsPinned(0));
  EXPECT_TRUE(survivor_->IsMine(survivor_->ShardState(claim.pin, 0)));
}

}  // namespace
}  // namespace ucmstore::test
