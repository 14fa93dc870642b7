// SPDX-License-Identifier: Apache-2.0
//
// Reclaim on disks that hang, are full or vanish, beside a collector that was stopped, and what it
// gives back when it ends.
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "posix/reclaim_fixture.h"
#include "store/posix/collector.h"

namespace ucmstore::test {
namespace {

constexpr std::uint64_t kBlocks = 60;

TEST_F(PosixReclaim, D10_ADeadDiskCostsOneWorkerAndIsToldOf) {
  const TempDir healthy;
  Fill(Unlimited(), kBlocks);
  PosixConfig other = Unlimited();
  other.roots = {healthy.string()};
  {
    (void)PosixStore::Open(other);
  }
  Gate gate;
  std::atomic<bool> hang{true};
  const std::string dead = Root().string();
  fs_.Set([&](const Call& call) {
    if (call.op == Op::kOpen && call.path == dead && std::this_thread::get_id() != main_ &&
        hang.load()) {
      gate.Wait();
    }
    return HookedFs::kGoOn;
  });
  PosixConfig config = Limited(DiskBytes(Root()) / 2);
  config.roots = {Root().string(), healthy.string()};
  config.workers = 3;
  auto store = PosixStore::Open(config);
  gate.AwaitOne();
  ASSERT_TRUE(AwaitCycles(*store, 1)) << "of the healthy root";
  for (std::uint64_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(DumpBlock(*store, kSmall, MakeId(2, i), 1).ok());
    ASSERT_EQ(BlockProblem(*store, kSmall, MakeId(2, i), 1), "");
  }
  EXPECT_EQ(store->Stat("reclaim_stalls"), 0);
  clock_.Advance(Collector::kStall);
  EXPECT_EQ(store->Stat("reclaim_stalls"), 1);
  EXPECT_EQ(store->Stat("reclaim_stalls"), 1) << "said once";
  EXPECT_TRUE(store->log().Has(LogLevel::kWarning, "reclaim waits for the disk"));
  hang.store(false);
  gate.Open();
  EXPECT_TRUE(Eventually([&] { return Left(kBlocks).size() < kBlocks; })) << "and it goes on";
}

// Who holds the lock does nothing for a minute: a stopped process.
TEST_F(PosixReclaim, S09_AStoppedCollectorIsPassedOver) {
  Fill(Unlimited(), kBlocks);
  const std::uint64_t capacity = DiskBytes(Root()) / 2;
  const File lock(FileSystem::Real(),
                  FileSystem::Real().OpenAt(AT_FDCWD, (Root() / kCollectorName).c_str(),
                                            O_RDWR | O_CREAT, 0600));
  ASSERT_EQ(FileSystem::Real().TryLock(lock.get(), LockKind::kExclusive), 0);
  std::atomic<int> tries{0};
  fs_.Set([&tries](const Call& call) {
    if (call.op == Op::kOpen && call.path == kCollectorName) ++tries;
    return HookedFs::kGoOn;
  });
  auto store = PosixStore::Open(Limited(capacity));
  std::uint64_t next = 0;
  const auto dump_until = [&](auto&& condition) {
    return Eventually([&] {
      EXPECT_TRUE(DumpBlock(*store, kSmall, MakeId(2, next++ % 10), 1).ok());
      stdfs::remove(Root() / PosixConfig().label / BlockName(MakeId(2, next % 10), 3).c_str());
      return condition();
    });
  };
  ASSERT_TRUE(Eventually([&] { return tries == 1; }));
  clock_.Advance(milliseconds(50'000));
  ASSERT_TRUE(dump_until([&] {  // a little more than the back-off after the first try has ended
    clock_.Advance(milliseconds(10));
    return tries >= 2;
  }));
  EXPECT_EQ(Left(kBlocks).size(), kBlocks) << "it may only be slow";
  EXPECT_EQ(store->Stat("reclaim_cycles"), 0);
  EXPECT_TRUE(dump_until([&] {  // it has not moved since whenever this store first looked
    clock_.Advance(milliseconds(1'000));
    return store->Stat("reclaim_cycles") >= 1;
  }));
  EXPECT_LT(Left(kBlocks).size(), kBlocks);
  EXPECT_TRUE(store->log().Has(LogLevel::kWarning, "has not moved"));
}

TEST_F(PosixReclaim, AStoreClosesInTheMiddleOfACycle) {
  Fill(Unlimited(), kBlocks);
  Gate gate;
  std::atomic<int> lists{0};
  fs_.Set([&](const Call& call) {
    if (call.op == Op::kList && ++lists == 10) gate.Wait();
    return HookedFs::kGoOn;
  });
  auto store = PosixStore::Open(Limited(DiskBytes(Root()) / 2));
  gate.AwaitOne();
  EXPECT_FALSE(store->stage().Close(0)) << "a hung disk is left alone";
  gate.Open();
  EXPECT_TRUE(store->stage().Close(kPatienceMs));
  EXPECT_LE(lists, 11) << "within one folder";
  store.reset();
  fs_.Clear();
  store = PosixStore::Open(Limited(DiskBytes(Root()) / 2));
  EXPECT_TRUE(AwaitCycles(*store, 1)) << "the lock went with it";
}

// The disk is full although the capacity is far away: a twentieth of the blocks makes room.
TEST_F(PosixReclaim, F02_AFullDiskReclaims) {
  const stdfs::path mount = Root() / "small";
  stdfs::create_directory(mount);
  if (::mount("none", mount.c_str(), "tmpfs", 0, "size=64m") != 0) {
    GTEST_SKIP() << "mounting a small tmpfs is not allowed here";
  }
  PosixConfig config = Limited(1U << 30);
  config.roots = {mount.string()};
  {
    auto store = PosixStore::Open(config);
    std::uint64_t next = 0;
    while (next < 100) ASSERT_TRUE(DumpBlock(*store, kSmall, MakeId(1, next++), 1).ok());
    {
      std::ofstream filler(mount / "foreign", std::ios::binary);
      const std::string chunk(4096, 'x');
      while (filler.write(chunk.data(), static_cast<std::streamsize>(chunk.size())).flush()) {
      }
    }
    const Status full = DumpBlock(*store, kSmall, MakeId(1, next), 1);
    EXPECT_EQ(full.code, Code::kNoSpace) << full.message;
    ASSERT_TRUE(Eventually([&] { return store->Stat("reclaimed_blocks") == 5; }));
    EXPECT_TRUE(DumpBlock(*store, kSmall, MakeId(1, next), 1).ok()) << "and it heals";
    EXPECT_EQ(BlockProblem(*store, kSmall, MakeId(1, next), 1), "");
    // Not at every dump that fails: what is stored must live long enough to be of use.
    int failed = 0;
    for (int i = 0; i < 100; ++i) {
      failed += DumpBlock(*store, kSmall, MakeId(1, ++next), 1).ok() ? 0 : 1;
    }
    EXPECT_GT(failed, 90);
    EXPECT_EQ(store->Stat("reclaimed_blocks"), 5);
    std::uint64_t left = 0;  // of one time, perhaps, so any five may have gone
    for (std::uint64_t i = 0; i < 100; ++i) {
      if (!IsPresent(*store, MakeId(1, i))) continue;
      ++left;
      EXPECT_EQ(BlockProblem(*store, kSmall, MakeId(1, i), 1), "");
    }
    EXPECT_EQ(left, 95U);
    EXPECT_EQ(FilesBelow(mount, ".activated").size(), 0U);
    clock_.Advance(Collector::kBackOff);
    (void)DumpBlock(*store, kSmall, MakeId(1, ++next), 1);
    EXPECT_TRUE(Eventually([&] { return store->Stat("reclaimed_blocks") > 5; }));
  }
  EXPECT_EQ(::umount(mount.c_str()), 0);
}

TEST_F(PosixReclaim, ARootThatVanishesAndComesBackIsCollectedAgain) {
  auto store = PosixStore::Open(Limited(1U << 20));
  ASSERT_TRUE(AwaitCycles(*store, 1));
  stdfs::remove_all(Root());
  std::uint64_t next = 0;
  ASSERT_TRUE(Eventually([&] {
    clock_.Advance(milliseconds(1'500));
    return DumpBlock(*store, kSmall, MakeId(1, next++), 1).ok();
  }));
  for (int i = 0; i < 60; ++i) {
    clock_.Advance(milliseconds(1'500));
    ASSERT_TRUE(DumpBlock(*store, kSmall, MakeId(1, next++), 1).ok());
  }
  EXPECT_TRUE(Eventually([&] {
    clock_.Advance(milliseconds(1'500));
    (void)DumpBlock(*store, kSmall, MakeId(1, next++), 1);
    return DiskBytes(Root()) <= 1U << 20;
  }));
  // Its limit holds for newcomers, too.
  Status status;
  (void)PosixStore::Try(Limited(2U << 20), &status);
  EXPECT_EQ(status.code, Code::kInvalidArgument) << status.message;
}

TEST_F(PosixReclaim, F08_AllThatACycleTakesItGivesBack) {
  auto store = PosixStore::Open(Limited(1U << 20));
  ASSERT_TRUE(AwaitCycles(*store, 1));
  std::size_t descriptors = 0;
  for (std::uint64_t i = 0; i < 500; ++i) {
    ASSERT_TRUE(DumpBlock(*store, kSmall, MakeId(1, i), 1).ok());
    clock_.Advance(Collector::kAtLeastEvery);
    if (i == 50) {
      ASSERT_TRUE(Eventually([&] { return store->Stat("queued_jobs") == 0; }));
      descriptors = OpenDescriptors();
    }
  }
  EXPECT_TRUE(Eventually([&] { return OpenDescriptors() <= descriptors; }));
}

}  // namespace
}  // namespace ucmstore::test
