// SPDX-License-Identifier: Apache-2.0
//
// Writing back, leaving, and sleeping until something has happened.
#include <gtest/gtest.h>

#include <thread>

#include "shm/ring.h"
#include "shm/ring_fixture.h"

namespace ucmstore::test {
namespace {

using Purpose = Ring::Purpose;
using Flush = Ring::Flush;

constexpr RingGeometry kTwoSlots{.shard_size = 64, .shards_per_block = 1, .slot_count = 2};

std::vector<std::uint32_t> Adopt(Ring& ring) {
  std::vector<std::uint32_t> slots;
  ring.AdoptDirty([&](std::uint32_t slot) { slots.push_back(slot); });
  return slots;
}

TEST(RingFlush, IsOfTheOwnerAndEndsAsItEnds) {
  const RingArena arena(kTwoSlots);
  const auto mine = arena.Join(0);
  const auto other = arena.Join(1);
  const std::uint32_t slot = PutDirty(*mine, PlainId(1));
  EXPECT_FALSE(other->BeginFlush(slot));
  EXPECT_EQ(mine->BeginFlush(slot), PlainId(1));
  EXPECT_FALSE(mine->BeginFlush(slot)) << "it is on its way";
  EXPECT_TRUE(IsHere(*other, PlainId(1)));
  other->EndFlush(slot, Flush::kArrived);
  EXPECT_EQ(arena.Word(slot), SlotWord(1, SlotState::kFlushing, 1));
  mine->EndFlush(slot, Flush::kFailed);
  EXPECT_EQ(arena.Word(slot), SlotWord(1, SlotState::kDirty, 1));
  EXPECT_TRUE(mine->BeginFlush(slot));
  mine->EndFlush(slot, Flush::kArrived);
  EXPECT_EQ(arena.Word(slot), SlotWord(1, SlotState::kClean, 0));
  mine->EndFlush(slot, Flush::kFailed);
  EXPECT_EQ(arena.Word(slot), SlotWord(1, SlotState::kClean, 0)) << "it had ended";
}

TEST(RingFlush, WhatIsForsakenMayBeGivenUp) {
  const RingArena arena(kTwoSlots);
  const auto ring = arena.Join(0);
  const std::uint32_t slot = PutDirty(*ring, PlainId(1));
  ASSERT_TRUE(ring->BeginFlush(slot));
  ring->EndFlush(slot, Flush::kForsaken);
  EXPECT_EQ(arena.Word(slot), SlotWord(1, SlotState::kClean, 0));
}

TEST(RingFlush, ACleanBlockIsMadeDirtyAgain) {
  const RingArena arena(kTwoSlots);
  const auto ring = arena.Join(0);
  const auto other = arena.Join(1);
  PutClean(*ring, PlainId(1));
  const Pin pin = other->Find(PlainId(1));
  EXPECT_TRUE(other->Rewrite(pin));
  EXPECT_EQ(arena.Word(pin.slot()), SlotWord(1, SlotState::kDirty, 2));
  EXPECT_FALSE(other->Rewrite(pin)) << "it is dirty already";
  const Ring::Claim claim = ring->ClaimFor(PlainId(2), Purpose::kFill);
  EXPECT_FALSE(ring->Rewrite(claim.pin)) << "it is not whole";
}

TEST(RingFlush, S09_ARewriteIsNotRefusedBecauseAnEvictorStoppedMidway) {
  const RingArena arena(kTwoSlots);
  const auto ring = arena.Join(0);
  const std::uint32_t slot = PutClean(*ring, PlainId(1));
  const Pin pin = ring->Find(PlainId(1));
  auto& word = arena.memory().slots[slot].word;
  word.store(SlotWord(word.load()).Draining(9).bits());
  EXPECT_TRUE(ring->Rewrite(pin));
  EXPECT_EQ(arena.Word(slot), SlotWord(1, SlotState::kDirty, 1));
}

// ---- leaving ------------------------------------------------------------------------------------

TEST(RingLeave, DirtyBlocksAreLeftToWhoeverComesNext) {
  const RingArena arena(kTwoSlots);
  const auto leaver = arena.Join(0);
  const auto next = arena.Join(64);
  PutDirty(*leaver, PlainId(1));
  PutDirty(*leaver, PlainId(2));
  ASSERT_TRUE(leaver->BeginFlush(1));
  EXPECT_TRUE(Adopt(*next).empty());
  leaver->EraseTraces(0);
  EXPECT_EQ(arena.Word(0), SlotWord(1, SlotState::kDirty, 0));
  EXPECT_EQ(arena.Word(1), SlotWord(1, SlotState::kDirty, 0));
  EXPECT_FALSE(next->ClaimFor(PlainId(3), Purpose::kFill).pin);
  EXPECT_EQ(Adopt(*next), (std::vector<std::uint32_t>{0, 1}));
  EXPECT_EQ(Adopt(*next), (std::vector<std::uint32_t>{0, 1})) << "it says all of its duties";
  EXPECT_EQ(arena.Word(0).owner(), 65);
  EXPECT_TRUE(Adopt(*leaver).empty());
}

// ---- sleeping -----------------------------------------------------------------------------------

bool IsWatched(const RingArena& arena) {
  const auto& watchers = arena.memory().shared->watchers;
  return (watchers[0].load() | watchers[1].load()) != 0;
}

constexpr std::chrono::seconds kLong{60};

TEST(RingWatch, ALandingWakesWhoeverSleeps) {
  const RingArena arena(kTwoSlots);
  const auto ring = arena.Join(0);
  const auto waiter = arena.Join(127);
  const Ring::Claim claim = ring->ClaimFor(PlainId(1), Purpose::kFill);
  ASSERT_TRUE(ring->BeginShard(claim.pin, 0));
  std::thread thread([&] {
    const auto until = std::chrono::steady_clock::now() + kLong;
    for (;;) {
      const std::uint32_t number = waiter->BeginWatch();
      const bool here = IsHere(*waiter, PlainId(1));
      if (!here) waiter->Sleep(number, until);
      waiter->EndWatch();
      if (here) break;
      ASSERT_LT(std::chrono::steady_clock::now(), until);
    }
  });
  while (!IsWatched(arena)) std::this_thread::yield();
  (void)ring->LandShard(claim.pin, 0, 64);
  thread.join();
  EXPECT_FALSE(IsWatched(arena));
}

// Each change, made after BeginWatch and before Sleep: the sleep is none.
TEST(RingWatch, NothingThatHappensAfterTheWatchBeganIsSleptThrough) {
  const RingArena arena({.shard_size = 64, .shards_per_block = 2, .slot_count = 2});
  const auto ring = arena.Join(0);
  const auto waiter = arena.Join(1);
  const auto wakes = [&](std::string_view what, auto&& change) {
    const auto until = std::chrono::steady_clock::now() + kLong;
    const std::uint32_t number = waiter->BeginWatch();
    change();
    waiter->Sleep(number, until);
    waiter->EndWatch();
    EXPECT_LT(std::chrono::steady_clock::now(), until) << what;
  };
  Ring::Claim claim = ring->ClaimFor(PlainId(1), Purpose::kAssemble);
  for (const std::uint32_t shard : {0U, 1U}) ASSERT_TRUE(ring->BeginShard(claim.pin, shard));
  wakes("a shard lands", [&] { (void)ring->LandShard(claim.pin, 0, 64); });
  wakes("a shard will not come", [&] { ring->AbandonShard(claim.pin, 1); });
  wakes("a place is erased", [&] { ring->EraseTraces(100); });
  wakes("a block is whole", [&] { BringAll(*ring, claim.pin); });
  ASSERT_TRUE(ring->BeginFlush(claim.pin.slot()));
  wakes("a flush ends", [&] { ring->EndFlush(claim.pin.slot(), Flush::kArrived); });
  Ring::Claim other = ring->ClaimFor(PlainId(2), Purpose::kFill);
  wakes("a block is discarded", [&] { ring->Discard(std::move(other.pin)); });
}

TEST(RingWatch, OneWatcherMoreOrLessMakesNoDifferenceToTheOthers) {
  const RingArena arena(kTwoSlots);
  const auto ring = arena.Join(7);
  (void)ring->BeginWatch();
  (void)ring->BeginWatch();
  ring->EndWatch();
  EXPECT_TRUE(IsWatched(arena)) << "another thread of the process still watches";
  ring->EndWatch();
  EXPECT_FALSE(IsWatched(arena));
}

TEST(RingWatch, ASleepEndsInTime) {
  const RingArena arena(kTwoSlots);
  const auto ring = arena.Join(7);
  const std::uint32_t number = ring->BeginWatch();
  ring->Sleep(number, std::chrono::steady_clock::now() - milliseconds(1));
  ring->Sleep(number, std::chrono::steady_clock::now() + milliseconds(2));
  ring->EndWatch();
}

}  // namespace
}  // namespace ucmstore::test
