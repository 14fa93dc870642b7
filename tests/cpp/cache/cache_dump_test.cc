// SPDX-License-Identifier: Apache-2.0
//
// Dumps through a Cache: confirmed at once or when they are below, written back whatever goes wrong
// on the way, and rings that are full of what cannot be written back.
#include "cache/cache_fixture.h"

namespace ucmstore::test {
namespace {

class CacheDump : public CacheTest {};

TEST_F(CacheDump, BackConfirmsBeforeTheStoreBelowHasIt) {
  const std::uint64_t hold = fault().Arm("dump hold");
  const std::uint64_t nonce = NextNonce();
  ASSERT_TRUE(Dump(0, nonce).ok());
  EXPECT_EQ(Where(0), kInMemory);
  EXPECT_EQ(Problem(0, nonce), "");
  fault().AwaitHeld(hold, 4);
  EXPECT_EQ(FilesBelow(), 0U);
  fault().Release(hold);
  EXPECT_TRUE(Reaches("cache.write_back_blocks", 1));
  EXPECT_EQ(FilesBelow(), 1U);
}

TEST_F(CacheDump, ThroughConfirmsWhenTheStoreBelowHasIt) {
  config_.options["cache.write"] = "through";
  const std::uint64_t hold = fault().Arm("dump hold");
  DumpBatch dump(kGeometry);
  const TaskId task = Submit(store(), dump.AddBlock(Id(0), NextNonce()));
  fault().AwaitHeld(hold, 4);
  EXPECT_FALSE(IsDone(store(), task));
  fault().Release(hold);
  EXPECT_TRUE(store().Wait(task, kPatienceMs).ok());
  EXPECT_EQ(FilesBelow(), 1U);
}

TEST_F(CacheDump, AFailedWriteBackIsTriedAgain) {
  (void)fault().Arm("dump fail=no_space errno=28 count=8");
  const std::uint64_t nonce = NextNonce();
  ASSERT_TRUE(Dump(0, nonce).ok());
  EXPECT_TRUE(Reaches("cache.write_back_blocks", 1));
  EXPECT_EQ(Figure("cache.write_back_failures"), 2);
  EXPECT_EQ(Figure("cache.write_back_lost_blocks"), 0);
  EXPECT_EQ(FilesBelow(), 1U);
}

TEST_F(CacheDump, OneThatIsGivenUpIsSaidAndNotPromisedOnceItIsGone) {
  config_.options["cache.write_back_give_up_ms"] = "0";
  config_.options["cache.capacity"] = CapacityOf(2);
  (void)fault().Arm("dump fail=no_space errno=28");
  const std::uint64_t nonce = NextNonce();
  ASSERT_TRUE(Dump(0, nonce).ok());
  EXPECT_TRUE(Reaches("cache.write_back_lost_blocks", 1));
  EXPECT_EQ(Problem(0, nonce), "");  // while there is room
  fault().ReleaseAll();
  for (std::uint64_t i = 1; i < 9; ++i) ASSERT_TRUE(Dump(i, NextNonce()).ok());
  EXPECT_TRUE(Eventually([&] {
    (void)Dump(9, NextNonce());
    return Where(0) == kAbsent;
  }));
  EXPECT_EQ(AbsenceProblem(store(), kGeometry, Id(0)), "");
}

TEST_F(CacheDump, ThroughReportsWhatWasGivenUp) {
  config_.options["cache.write"] = "through";
  config_.options["cache.write_back_give_up_ms"] = "0";
  (void)fault().Arm("dump fail=no_space errno=28");
  const Status status = Dump(0, NextNonce());
  EXPECT_EQ(status.code, Code::kNoSpace) << status.message;
}

TEST_F(CacheDump, ARingFullOfDirtyBlocksSendsWholeBlocksPast) {
  config_.options["cache.capacity"] = CapacityOf(2);
  config_.options["cache.write_back_tasks"] = "1";
  const std::uint64_t hold = fault().Arm("dump hold count=4");  // the first block's
  std::vector<std::uint64_t> nonces;
  for (std::uint64_t i = 0; i < 2; ++i) {
    nonces.push_back(NextNonce());
    ASSERT_TRUE(Dump(i, nonces.back()).ok());
  }
  fault().AwaitHeld(hold, 4);
  nonces.push_back(NextNonce());
  ASSERT_TRUE(Dump(2, nonces.back()).ok());
  EXPECT_EQ(Figure("cache.dump_past_shards"), 4);
  EXPECT_EQ(Where(2), kBelow);
  fault().Release(hold);
  for (std::uint64_t i = 0; i < 3; ++i) EXPECT_EQ(Problem(i, nonces[i]), "");
}

TEST_F(CacheDump, APartOfABlockWaitsForASlotNoLongerThanItsDeadline) {
  config_.options["cache.capacity"] = CapacityOf(1);
  const std::uint64_t hold = fault().Arm("dump hold");
  ASSERT_TRUE(Dump(0, NextNonce()).ok());
  fault().AwaitHeld(hold, 4);
  DumpBatch part(kGeometry);
  TaskDesc desc = part.Add(Id(1), 0, NextNonce()).desc();
  desc.timeout_ms = 50;
  TaskId task = 0;
  ASSERT_TRUE(store().Dump(desc, &task).ok());
  EXPECT_EQ(store().Wait(task, kPatienceMs).code, Code::kTimeout);
  // With more time it gets the slot when it is free.
  DumpBatch later(kGeometry);
  const TaskId waits = Submit(store(), later.Add(Id(1), 0, NextNonce()));
  EXPECT_TRUE(Reaches("cache.waiting_shards", 1));
  fault().Release(hold);
  EXPECT_TRUE(store().Wait(waits, kPatienceMs).ok());
}

TEST_F(CacheDump, ABlockThatIsGoneBelowIsWrittenThereAgain) {
  const std::uint64_t nonce = NextNonce();
  ASSERT_TRUE(Dump(0, nonce).ok());
  EXPECT_TRUE(Reaches("cache.write_back_blocks", 1));
  DeleteBelow(0);
  ASSERT_TRUE(Dump(0, NextNonce()).ok());
  EXPECT_TRUE(Reaches("cache.write_back_blocks", 2));
  EXPECT_EQ(FilesBelow(), 1U);
  EXPECT_EQ(Problem(0, nonce), "");
}

TEST_F(CacheDump, CloseWritesBackWhatIsDirty) {
  std::vector<std::uint64_t> nonces;
  for (std::uint64_t i = 0; i < 30; ++i) {
    nonces.push_back(NextNonce());
    ASSERT_TRUE(Dump(i, nonces.back()).ok());
  }
  Close();
  EXPECT_EQ(FilesBelow(), 30U);
}

TEST_F(CacheDump, WhatCloseCouldNotWriteBackTheNextOneDoes) {
  std::vector<std::uint64_t> nonces;
  (void)fault().Arm("dump fail=io_error");
  for (std::uint64_t i = 0; i < 5; ++i) {
    nonces.push_back(NextNonce());
    ASSERT_TRUE(Dump(i, nonces.back()).ok());
  }
  EXPECT_TRUE(store().Close(2'000));
  store_.reset();
  EXPECT_EQ(FilesBelow(), 0U);
  EXPECT_TRUE(Reaches("cache.write_back_blocks", 5));
  EXPECT_EQ(FilesBelow(), 5U);
  for (std::uint64_t i = 0; i < 5; ++i) EXPECT_EQ(Problem(i, nonces[i]), "");
}

TEST_F(CacheDump, ADumpMeetsALoadOfABlockThatIsGoneBelow) {
  DumpedLongAgo(1, NextNonce());
  const std::uint64_t hold = fault().Arm("load hold");
  LoadBatch load(kGeometry);
  const TaskId task = Submit(store(), load.AddBlock(Id(0)));
  fault().AwaitHeld(hold, 4);
  DeleteBelow(0);
  DumpBatch dump(kGeometry);
  const std::uint64_t nonce = NextNonce();
  const TaskId dumping = Submit(store(), dump.AddBlock(Id(0), nonce));
  EXPECT_TRUE(Reaches("cache.waiting_shards", 1));
  fault().Release(hold);
  EXPECT_EQ(store().Wait(task, kPatienceMs).code, Code::kNotFound);
  EXPECT_TRUE(store().Wait(dumping, kPatienceMs).ok());
  EXPECT_EQ(Problem(0, nonce), "");
}

TEST_F(CacheDump, ThroughNeverConfirmsASecondDumpBeforeTheFirstIsBelow) {
  config_.options["cache.write"] = "through";
  const std::uint64_t hold = fault().Arm("dump hold");
  DumpBatch first(kGeometry);
  DumpBatch second(kGeometry);
  const TaskId one = Submit(store(), first.AddBlock(Id(0), NextNonce()));
  fault().AwaitHeld(hold, 4);
  const TaskId two = Submit(store(), second.AddBlock(Id(0), NextNonce()));
  EXPECT_EQ(store().Wait(two, 50).code, Code::kPending);
  fault().Release(hold);
  EXPECT_TRUE(store().Wait(one, kPatienceMs).ok());
  EXPECT_TRUE(store().Wait(two, kPatienceMs).ok());
  EXPECT_EQ(FilesBelow(), 1U);
}

TEST_F(CacheDump, UnlinkSparesARingWithWhatIsNowhereElse) {
  config_.options["cache.unlink"] = "true";
  const std::uint64_t nonce = NextNonce();
  (void)fault().Arm("dump fail=io_error");
  ASSERT_TRUE(Dump(0, nonce).ok());
  EXPECT_TRUE(store().Close(200));
  store_.reset();
  EXPECT_EQ(FilesBelow(), 0U);
  EXPECT_EQ(Problem(0, nonce), "");
  EXPECT_TRUE(Reaches("cache.write_back_blocks", 1));
}

TEST_F(CacheDump, TheFirstBytesOfAStoredBlockStay) {
  const std::uint64_t first = NextNonce();
  DumpedLongAgo(1, first);
  ASSERT_TRUE(Dump(0, NextNonce()).ok());
  EXPECT_EQ(Problem(0, first), "");
}

}  // namespace
}  // namespace ucmstore::test
