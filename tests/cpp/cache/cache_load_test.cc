// SPDX-License-Identifier: Apache-2.0
//
// Loads through a Cache: hits, fills, waiters, failures below, deadlines, and rings that are too
// small.
#include "cache/cache_fixture.h"

namespace ucmstore::test {
namespace {

class CacheLoad : public CacheTest {};

TEST_F(CacheLoad, WhatWasDumpedIsInMemoryAndNotReadBelow) {
  const std::uint64_t nonce = NextNonce();
  ASSERT_TRUE(Dump(0, nonce).ok());
  EXPECT_EQ(Where(0), kInMemory);
  EXPECT_EQ(Problem(0, nonce), "");
  EXPECT_EQ(Figure("posix.load_shards"), 0);
  EXPECT_EQ(Figure("cache.load_hit_shards"), 4);
}

TEST_F(CacheLoad, AMissFillsTheRingOnce) {
  const std::uint64_t nonce = NextNonce();
  DumpedLongAgo(1, nonce);
  EXPECT_EQ(Where(0), kBelow);
  EXPECT_EQ(Problem(0, nonce), "");
  EXPECT_EQ(Where(0), kInMemory);
  EXPECT_EQ(Problem(0, nonce), "");
  EXPECT_EQ(Figure("posix.load_shards"), 4);
}

TEST_F(CacheLoad, N03_HitsAreCountedByTier) {
  DumpedLongAgo(10, NextNonce());
  for (std::uint64_t i = 0; i < 5; ++i) EXPECT_EQ(Problem(i), "");
  std::vector<BlockId> ids;
  for (std::uint64_t i = 0; i < 12; ++i) ids.push_back(Id(i));
  EXPECT_EQ(Presence(store(), ids), "111111111100");
  EXPECT_EQ(Figure("cache.lookup_hits_memory"), 5);
  EXPECT_EQ(Figure("cache.lookup_hits_below"), 5);
  EXPECT_EQ(Figure("cache.lookup_misses"), 2);
}

TEST_F(CacheLoad, ManyWhoWantOneBlockReadItOnce) {
  const std::uint64_t nonce = NextNonce();
  DumpedLongAgo(1, nonce);
  const std::uint64_t hold = fault().Arm("load hold");
  std::vector<LoadBatch> loads(10, LoadBatch(kGeometry));
  std::vector<TaskId> tasks;
  for (LoadBatch& load : loads) {
    load.AddBlock(Id(0));
    tasks.push_back(Submit(store(), load));
  }
  fault().AwaitHeld(hold, 4);
  EXPECT_TRUE(Reaches("cache.waiting_shards", 36));
  fault().Release(hold);
  for (std::size_t n = 0; n < loads.size(); ++n) {
    EXPECT_TRUE(store().Wait(tasks[n], kPatienceMs).ok());
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(loads[n].Problem(i, nonce), "");
  }
  EXPECT_EQ(Figure("posix.load_shards"), 4);
}

TEST_F(CacheLoad, AShardIsReadAloneAndItsNeighboursLater) {
  const std::uint64_t nonce = NextNonce();
  DumpedLongAgo(1, nonce);
  for (const std::uint32_t shard : {2U, 0U, 2U}) {
    LoadBatch load(kGeometry);
    load.Add(Id(0), shard);
    EXPECT_TRUE(Finish(store(), load).ok());
    EXPECT_EQ(load.Problem(0, nonce), "");
  }
  EXPECT_EQ(Figure("posix.load_shards"), 2);
  EXPECT_EQ(Where(0), kBelow);  // not whole yet
  EXPECT_EQ(Problem(0, nonce), "");
  EXPECT_EQ(Figure("posix.load_shards"), 4);
  EXPECT_EQ(Where(0), kInMemory);
}

TEST_F(CacheLoad, APrefetchFillsWithoutDestination) {
  const std::uint64_t nonce = NextNonce();
  DumpedLongAgo(1, nonce);
  LoadBatch prefetch(kGeometry);
  for (std::uint32_t i = 0; i < 4; ++i) prefetch.AddPrefetch(Id(0), i);
  EXPECT_TRUE(Finish(store(), prefetch).ok());
  EXPECT_EQ(Where(0), kInMemory);
  EXPECT_EQ(Problem(0, nonce), "");
  EXPECT_EQ(Figure("posix.load_shards"), 4);
}

TEST_F(CacheLoad, SkippedBytesAreLeftAlone) {
  const std::uint64_t nonce = NextNonce();
  DumpedLongAgo(1, nonce);
  for (int round = 0; round < 2; ++round) {  // filled, then hit
    LoadBatch load(kGeometry);
    load.Add(Id(0), 1, {{1000, true}, {96, false}, {3000, true}});
    EXPECT_TRUE(Finish(store(), load).ok());
    EXPECT_EQ(load.Problem(0, nonce), "");
  }
}

TEST_F(CacheLoad, AFailureBelowIsToldToAllWhoWaitAndThenForgotten) {
  const std::uint64_t nonce = NextNonce();
  DumpedLongAgo(1, nonce);
  const std::uint64_t hold = fault().Arm("load hold");
  const std::uint64_t fail = fault().Arm("load fail=io_error errno=5 when=after");
  std::vector<LoadBatch> loads(3, LoadBatch(kGeometry));
  std::vector<TaskId> tasks;
  for (LoadBatch& load : loads) tasks.push_back(Submit(store(), load.AddBlock(Id(0))));
  fault().AwaitHeld(hold, 4);
  EXPECT_TRUE(Reaches("cache.waiting_shards", 8));
  fault().Release(hold);
  for (const TaskId task : tasks) {
    const Status status = store().Wait(task, kPatienceMs);
    EXPECT_EQ(status.code, Code::kIoError) << status.message;
  }
  EXPECT_EQ(fault().Hits(fail), 4U) << "each of them tried again";
  fault().ReleaseAll();
  EXPECT_EQ(Problem(0, nonce), "");
}

TEST_F(CacheLoad, D02_ABlockThatIsGoneBelowIsNotPromisedAgain) {
  DumpedLongAgo(2, NextNonce());
  EXPECT_EQ(Where(0), kBelow);
  DeleteBelow(0);
  EXPECT_EQ(AbsenceProblem(store(), kGeometry, Id(0)), "");
  EXPECT_EQ(Where(0), kAbsent);
  const std::uint64_t again = NextNonce();
  ASSERT_TRUE(Dump(0, again).ok());
  EXPECT_EQ(Problem(0, again), "");
}

TEST_F(CacheLoad, D04_ADeadlineReturnsTheCallersMemoryAtOnceAndTheSlotTakesTheLateBytes) {
  const std::uint64_t nonce = NextNonce();
  DumpedLongAgo(1, nonce);
  const std::uint64_t hold = fault().Arm("load hold");
  LoadBatch load(kGeometry);
  TaskDesc desc = load.AddBlock(Id(0)).desc();
  desc.timeout_ms = 50;
  TaskId task = 0;
  ASSERT_TRUE(store().Load(desc, &task).ok());
  fault().AwaitHeld(hold, 4);  // it moves already, and yet:
  EXPECT_EQ(store().Wait(task, kPatienceMs).code, Code::kTimeout);
  fault().Release(hold);
  EXPECT_TRUE(Eventually([&] { return Where(0) == kInMemory; })) << "the late bytes are lost";
  for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(load.Untouched(i));
  EXPECT_EQ(Problem(0, nonce), "");
  EXPECT_EQ(Figure("posix.load_shards"), 4);
}

TEST_F(CacheLoad, ACancelledLoadEndsAtOnce) {
  DumpedLongAgo(1, NextNonce());
  const std::uint64_t hold = fault().Arm("load hold");
  LoadBatch load(kGeometry);
  const TaskId task = Submit(store(), load.AddBlock(Id(0)));
  fault().AwaitHeld(hold, 4);
  EXPECT_TRUE(store().Cancel(task).ok());
  EXPECT_EQ(store().Wait(task, kPatienceMs).code, Code::kCancelled);
  fault().Release(hold);
  EXPECT_EQ(Problem(0), "");
}

TEST_F(CacheLoad, D14_MoreBlocksInATaskThanSlotsAreAllLoaded) {
  config_.options["cache.capacity"] = CapacityOf(1);
  const std::uint64_t nonce = NextNonce();
  DumpedLongAgo(50, nonce);
  LoadBatch load(kGeometry);
  for (std::uint64_t i = 0; i < 50; ++i) load.AddBlock(Id(i));
  ASSERT_TRUE(Finish(store(), load).ok());
  for (std::size_t i = 0; i < load.size(); ++i) EXPECT_EQ(load.Problem(i, nonce), "");
  EXPECT_EQ(Figure("cache.ring_slots"), 1);
}

TEST_F(CacheLoad, D18_HotBlocksGiveWayToColdOnes) {
  config_.options["cache.capacity"] = CapacityOf(8);
  const std::uint64_t nonce = NextNonce();
  DumpedLongAgo(58, nonce);
  for (int round = 0; round < 4; ++round) {
    for (std::uint64_t i = 0; i < 6; ++i) EXPECT_EQ(Problem(i, nonce), "");
  }
  for (std::uint64_t i = 8; i < 58; ++i) EXPECT_EQ(Problem(i, nonce), "");
  for (std::uint64_t i = 0; i < 58; ++i) EXPECT_EQ(Problem(i, nonce), "");
}

TEST_F(CacheLoad, EvictedBlocksComeBackFromBelow) {
  config_.options["cache.capacity"] = CapacityOf(8);
  std::vector<std::uint64_t> nonces;
  for (std::uint64_t i = 0; i < 100; ++i) {
    nonces.push_back(NextNonce());
    ASSERT_TRUE(Dump(i, nonces.back()).ok());
  }
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t i = 0; i < 100; ++i) EXPECT_EQ(Problem(i, nonces[i]), "") << i;
  }
  EXPECT_GT(Figure("cache.ring_evictions"), 100);
}

TEST_F(CacheLoad, ALookupAsksBelowOnlyForWhatIsNotHere) {
  ASSERT_TRUE(Dump(0, NextNonce()).ok());
  const double before = Figure("posix.lookup_blocks");
  EXPECT_EQ(Where(0), kInMemory);
  EXPECT_EQ(Figure("posix.lookup_blocks"), before);
  EXPECT_EQ(Where(1), kAbsent);
  EXPECT_EQ(Figure("posix.lookup_blocks"), before + 1);
}

TEST_F(CacheLoad, ADeadStoreBelowLeavesWhatIsHere) {
  const std::uint64_t nonce = NextNonce();
  ASSERT_TRUE(Dump(0, nonce).ok());
  EXPECT_TRUE(Reaches("cache.write_back_blocks", 1));
  (void)fault().Arm("lookup refuse=io_error");
  (void)fault().Arm("load refuse=io_error");
  const std::vector<BlockId> ids = {Id(0), Id(1)};
  EXPECT_EQ(Presence(store(), ids), "10");
  EXPECT_EQ(Problem(0, nonce), "");
  std::uint8_t found = 77;
  LookupDesc desc;
  desc.blocks = &ids[1];
  desc.count = 1;
  EXPECT_EQ(store().Lookup(desc, &found).code, Code::kIoError);
  EXPECT_EQ(found, kAbsent);
}

TEST_F(CacheLoad, D14_ManyTasksThatWantTheSameColdBlocksAllEnd) {
  config_.options["cache.capacity"] = CapacityOf(700);
  const std::uint64_t nonce = NextNonce();
  DumpedLongAgo(600, nonce);
  std::vector<LoadBatch> loads(4, LoadBatch(kGeometry));
  std::vector<TaskId> tasks;
  for (LoadBatch& load : loads) {
    for (std::uint64_t i = 0; i < 600; ++i) load.AddBlock(Id(i));
    tasks.push_back(Submit(store(), load));
  }
  EXPECT_TRUE(store().Cancel(tasks[0]).ok());  // what it queued is passed on
  for (std::size_t n = 0; n < loads.size(); ++n) {
    const Status status = store().Wait(tasks[n], kPatienceMs);
    EXPECT_TRUE(n == 0 ? status.code != Code::kPending : status.ok()) << n << status.message;
  }
  EXPECT_EQ(loads[3].Problem(0, nonce), "");
  EXPECT_TRUE(Reaches("cache.turns_in_flight", 0));
}

TEST_F(CacheLoad, J09_ASmallTaskTableBelowIsNeverOverrun) {
  config_.max_tasks = 4;
  const std::uint64_t nonce = NextNonce();
  DumpedLongAgo(100, nonce);
  LoadBatch load(kGeometry);
  for (std::uint64_t i = 0; i < 100; ++i) load.AddBlock(Id(i));
  const Status status = Finish(store(), load);
  EXPECT_TRUE(status.ok()) << status.message;
  EXPECT_EQ(FilesBelow(), 100U);
}

}  // namespace
}  // namespace ucmstore::test
