// SPDX-License-Identifier: Apache-2.0
//
// Tasks of many blocks through a Cache: few workers share them, nobody holds up anybody else, the
// store below is asked about many blocks at once, and what is nowhere costs no block its slot.
#include <atomic>
#include <string>

#include "cache/cache_fixture.h"

namespace ucmstore::test {
namespace {

constexpr std::uint64_t kMany = 60;

class CacheJobs : public CacheTest {
 protected:
  // One task with all shards of these blocks.
  void Dump(std::uint64_t first, std::uint64_t count, std::uint64_t nonce) {
    DumpBatch dump(kGeometry);
    for (std::uint64_t i = first; i < first + count; ++i) dump.AddBlock(Id(i), nonce);
    ASSERT_TRUE(Finish(store(), dump).ok());
  }
  // A ring of 64 slots with kMany blocks that are below, too.
  void Warm(std::uint64_t nonce) {
    Dump(0, kMany, nonce);
    ASSERT_TRUE(Reaches("cache.write_back_blocks", static_cast<double>(kMany)));
  }
};

TEST_F(CacheJobs, TheStoreBelowIsAskedAboutManyBlocksAtOnce) {
  Warm(NextNonce());
  EXPECT_EQ(Figure("posix.lookup_blocks"), kMany);
  EXPECT_LE(Figure("posix.lookup_calls"), kMany / 3);
  Dump(0, kMany, NextNonce());  // whether they still are below
  EXPECT_EQ(Figure("posix.lookup_blocks"), 2 * kMany);
  EXPECT_LE(Figure("posix.lookup_calls"), kMany * 2 / 3);
}

TEST_F(CacheJobs, F08_LoadsOfWhatIsNowhereEvictNothing) {
  const std::uint64_t nonce = NextNonce();
  Warm(nonce);
  Dump(100, 4, nonce);  // the last slots
  ASSERT_TRUE(Reaches("cache.write_back_blocks", kMany + 4.0));
  const double evictions = Figure("cache.ring_evictions");
  LoadBatch load(kGeometry);
  for (std::uint64_t i = 1'000; i < 2'000; ++i) load.AddBlock(Id(i));
  EXPECT_EQ(Finish(store(), load).code, Code::kNotFound);
  for (std::size_t i = 0; i < load.size(); ++i) {
    ASSERT_EQ(load.result(i).code, Code::kNotFound);
    ASSERT_TRUE(load.Untouched(i));
  }
  for (std::uint64_t i = 2'000; i < 2'010; ++i) {
    EXPECT_EQ(AbsenceProblem(store(), kGeometry, Id(i)), "");
  }
  EXPECT_EQ(Figure("cache.ring_evictions"), evictions);
  for (std::uint64_t i = 0; i < kMany; ++i) EXPECT_EQ(Where(i), kInMemory) << i;
}

TEST_F(CacheJobs, D09_AStoreBelowThatIsSlowToAnswerHoldsUpNoHits) {
  const std::uint64_t nonce = NextNonce();
  DumpedLongAgo(kMany, nonce);
  for (std::uint64_t i = 0; i < kMany; i += 2) ASSERT_EQ(Problem(i, nonce), "");
  const double before = Figure("cache.load_shards");
  const std::uint64_t hold = fault().Arm("lookup hold");
  LoadBatch load(kGeometry);
  for (std::uint64_t i = 0; i < kMany; ++i) load.AddBlock(Id(i));
  const TaskId task = Submit(store(), load);
  fault().AwaitHeld(hold, 1);
  EXPECT_TRUE(Reaches("cache.load_shards", before + kMany * 2.0));
  fault().Release(hold);
  EXPECT_TRUE(store().Wait(task, kPatienceMs).ok());
  for (std::size_t i = 0; i < load.size(); ++i) ASSERT_EQ(load.Problem(i, nonce), "");
}

TEST_F(CacheJobs, ALoadPassesADumpOfManyBlocks) {
  config_.workers = 1;
  const std::uint64_t nonce = NextNonce();
  Dump(100, 1, nonce);
  ASSERT_TRUE(Reaches("cache.write_back_blocks", 1));
  const std::uint64_t hold = fault().Arm("lookup hold count=1");
  std::atomic<int> ended{0};
  struct End {
    std::atomic<int>* ended;
    int when = 0;
  };
  const auto note = [](void* ctx, TaskId /*task*/) {
    auto* const end = static_cast<End*>(ctx);
    end->when = ++*end->ended;
  };
  End dumped{&ended};
  End loaded{&ended};
  DumpBatch dump(kGeometry);
  for (std::uint64_t i = 0; i < kMany; ++i) dump.AddBlock(Id(i), nonce);
  TaskDesc desc = dump.desc();
  desc.on_done = note;
  desc.on_done_ctx = &dumped;
  TaskId dumping = 0;
  ASSERT_TRUE(store().Dump(desc, &dumping).ok());
  fault().AwaitHeld(hold, 1);  // and with it the only worker
  LoadBatch load(kGeometry);
  load.AddBlock(Id(100));
  desc = load.desc();
  desc.on_done = note;
  desc.on_done_ctx = &loaded;
  TaskId loading = 0;
  ASSERT_TRUE(store().Load(desc, &loading).ok());
  fault().Release(hold);
  EXPECT_TRUE(store().Wait(loading, kPatienceMs).ok());
  EXPECT_TRUE(store().Wait(dumping, kPatienceMs).ok());
  EXPECT_LT(loaded.when, dumped.when);
}

TEST_F(CacheJobs, OneBadBlockDoesNotSpoilItsNeighbours) {
  const std::uint64_t nonce = NextNonce();
  DumpedLongAgo(kMany, nonce);
  for (std::uint64_t i = 0; i < kMany; i += 3) DeleteBelow(i);
  LoadBatch load(kGeometry);
  for (std::uint64_t i = 0; i < kMany; ++i) load.AddBlock(Id(i));
  EXPECT_EQ(Finish(store(), load).code, Code::kNotFound);
  for (std::size_t i = 0; i < load.size(); ++i) {
    if (i / 4 % 3 == 0) {
      ASSERT_EQ(load.result(i).code, Code::kNotFound) << i;
    } else {
      ASSERT_EQ(load.Problem(i, nonce), "") << i;
    }
  }
}

TEST_F(CacheJobs, ADumpIsNotHeldUpByALoadOfTheAbsentBlock) {
  const std::uint64_t hold = fault().Arm("load hold");
  LoadBatch load(kGeometry);
  const TaskId task = Submit(store(), load.AddBlock(Id(0)));
  fault().AwaitHeld(hold, 4);
  const std::uint64_t nonce = NextNonce();
  Dump(0, 1, nonce);
  fault().Release(hold);
  (void)store().Wait(task, kPatienceMs);  // absent, or just dumped
  EXPECT_EQ(Problem(0, nonce), "");
}

}  // namespace
}  // namespace ucmstore::test
