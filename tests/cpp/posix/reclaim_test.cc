// SPDX-License-Identifier: Apache-2.0
//
// Reclaim as it should be: use stays below the capacity, the coldest blocks go wherever they lie,
// what is used stays, and all stores of a root have one limit.
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "posix/reclaim_fixture.h"
#include "store/posix/accord.h"
#include "store/posix/collector.h"
#include "support/random.h"

namespace ucmstore::test {
namespace {

TEST_F(PosixReclaim, F01_UseStaysBelowTheCapacityUnderASustainedDump) {
  constexpr std::uint64_t kCapacity = 4U << 20;
  auto store = PosixStore::Open(Limited(kCapacity));
  ASSERT_TRUE(AwaitCycles(*store, 1));
  for (std::uint64_t i = 0; i < 5 * kCapacity / kBlockBytes; ++i) {
    ASSERT_TRUE(DumpBlock(*store, kSmall, MakeId(1, i), 1).ok());
    clock_.Advance(milliseconds(1));
    ASSERT_TRUE(Eventually([&] { return DiskBytes(Root()) <= kCapacity; })) << i;
  }
  EXPECT_GE(DiskBytes(Root()), kCapacity / 100 * 85)
      << "it must not remove more than there is need";
  EXPECT_GT(store->Stat("reclaimed_blocks"), 300);
  EXPECT_TRUE(Eventually([&] {
    return store->Stat("reclaimed_bytes") == store->Stat("reclaimed_blocks") * kBlockBytes;
  }));
  EXPECT_EQ(store->Stat("capacity_bytes"), static_cast<double>(kCapacity));
  EXPECT_LE(store->Stat("used_bytes"), static_cast<double>(kCapacity));
}

TEST_F(PosixReclaim, F07_ALoweredLimitIsMetWithoutADump) {
  constexpr std::uint64_t kBlocks = 100;
  Fill(Unlimited(), kBlocks);
  const std::uint64_t before = DiskBytes(Root());
  auto store = PosixStore::Open(Limited(before / 2));
  ASSERT_TRUE(AwaitCycles(*store, 1));
  const std::uint64_t after = DiskBytes(Root());
  EXPECT_LE(after, before / 2 / 100 * 95 + kBlockBytes);
  EXPECT_GE(after, before / 2 / 100 * 75) << "a folder of 4 KiB goes with each block, uncounted";
  // Exactly the oldest went.
  const std::set<std::uint64_t> left = Left(kBlocks);
  EXPECT_EQ(*left.begin() + left.size(), kBlocks);
  for (const std::uint64_t i : left) EXPECT_EQ(BlockProblem(*store, kSmall, MakeId(1, i), 1), "");
  for (std::uint64_t i = 0; i < *left.begin(); ++i) {
    EXPECT_EQ(AbsenceProblem(*store, kSmall, MakeId(1, i)), "");
  }
}

TEST_F(PosixReclaim, G07_ARestartOverAFullFolderCountsWhatIsThere) {
  constexpr std::uint64_t kBlocks = 60;
  Fill(Unlimited(), kBlocks);
  const std::uint64_t capacity = DiskBytes(Root()) / 90 * 100;
  auto store = PosixStore::Open(Limited(capacity));
  ASSERT_TRUE(AwaitCycles(*store, 1));
  for (std::uint64_t i = kBlocks; i < kBlocks * 4 / 3; ++i) {
    ASSERT_TRUE(DumpBlock(*store, kSmall, MakeId(1, i), 1).ok());
    clock_.Advance(milliseconds(1));
    ASSERT_TRUE(Eventually([&] { return DiskBytes(Root()) <= capacity; }));
  }
  EXPECT_FALSE(stdfs::exists(BlockPath(PosixConfig().label, 0)));
  for (std::uint64_t i = kBlocks; i < kBlocks * 4 / 3; ++i) {
    EXPECT_EQ(BlockProblem(*store, kSmall, MakeId(1, i), 1), "");
  }
}

// Namespaces of other geometries and prefixes, too.
TEST_F(PosixReclaim, TheColdestGoWhateverTheNamespace) {
  constexpr std::uint64_t kBlocks = 40;
  PosixConfig other = Unlimited();
  other.label = "other-0123456789abcdef";
  other.options["prefix_digits"] = std::int64_t{1};
  Fill(Unlimited(), kBlocks);
  Fill(other, kBlocks, 1);
  const auto path = [&](std::uint64_t i) { return BlockPath(other.label, i, 1); };
  for (std::uint64_t i = 0; i < kBlocks; ++i) {  // half a minute older than the first's
    MakeOld(path(i), static_cast<std::int64_t>(60 * (1 + kBlocks - i) + 30));
  }
  auto store = PosixStore::Open(Limited(DiskBytes(Root()) / 2));
  ASSERT_TRUE(AwaitCycles(*store, 1));
  std::set<std::uint64_t> left;
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    if (stdfs::exists(path(i))) left.insert(i);
  }
  const std::set<std::uint64_t> own = Left(kBlocks);
  ASSERT_FALSE(left.empty());
  ASSERT_FALSE(own.empty());
  EXPECT_EQ(*own.begin() + own.size(), kBlocks);
  EXPECT_EQ(*left.begin() + left.size(), kBlocks);
  EXPECT_LE(*own.begin(), *left.begin()) << "the same block of the other is older";
  EXPECT_LE(*left.begin(), *own.begin() + 1);
}

TEST_F(PosixReclaim, OfBlocksOfOneTimeNotAllGo) {
  constexpr std::uint64_t kBlocks = 50;
  Fill(Unlimited(), kBlocks);
  for (std::uint64_t i = 0; i < kBlocks; ++i) MakeOld(BlockPath(PosixConfig().label, i), 1000);
  const std::uint64_t before = DiskBytes(Root());
  auto store = PosixStore::Open(Limited(before / 2));
  ASSERT_TRUE(AwaitCycles(*store, 1));
  EXPECT_LE(DiskBytes(Root()), before / 2 / 100 * 95 + kBlockBytes);
  EXPECT_GE(Left(kBlocks).size(), kBlocks / 3);
}

TEST_F(PosixReclaim, F04_WhatIsLookedUpOrLoadedStays) {
  constexpr std::uint64_t kBlocks = 60;
  for (const char* network : {"no", "yes"}) {
    SCOPED_TRACE(network);
    Fill(Unlimited(), kBlocks);
    PosixConfig config = Limited(DiskBytes(Root()) * 2);
    config.options["network"] = std::string(network);
    auto store = PosixStore::Open(config);
    ASSERT_TRUE(AwaitCycles(*store, 1));
    std::vector<BlockId> hot;
    for (std::uint64_t i = 0; i < 10; ++i) hot.push_back(MakeId(1, i));
    EXPECT_EQ(Presence(*store, hot), "1111111111");
    for (std::uint64_t i = 10; i < 15; ++i) {
      EXPECT_EQ(BlockProblem(*store, kSmall, MakeId(1, i), 1), "");
    }
    std::vector<BlockId> cold;
    for (std::uint64_t i = 15; i < 20; ++i) cold.push_back(MakeId(1, i));
    EXPECT_EQ(Presence(*store, cold, kNoTouch), "11111");
    ASSERT_TRUE(Eventually([&] { return store->Stat("touched_blocks") == 15; }));
    // They are young now: not again.
    EXPECT_EQ(Presence(*store, hot), "1111111111");
    store.reset();
    store = PosixStore::Open(Limited(DiskBytes(Root()) / 2));
    ASSERT_TRUE(AwaitCycles(*store, 1));
    const std::set<std::uint64_t> left = Left(kBlocks);
    for (std::uint64_t i = 0; i < 15; ++i) EXPECT_TRUE(left.contains(i)) << i;
    for (std::uint64_t i = 15; i < 20; ++i) EXPECT_FALSE(left.contains(i)) << i;
    store.reset();
    stdfs::remove_all(Folder());
  }
}

TEST_F(PosixReclaim, F04_ABlockIsTouchedOnceAnIntervalOnly) {
  Fill(Unlimited(), 1);
  std::atomic<int> touches{0};
  fs_.Set([&touches](const Call& call) {
    if (call.op == Op::kSetTimes && call.path.find('/') != std::string_view::npos) ++touches;
    return HookedFs::kGoOn;
  });
  auto store = PosixStore::Open(Limited(1U << 30));
  ASSERT_TRUE(IsPresent(*store, MakeId(1, 0)));
  ASSERT_TRUE(Eventually([&] { return store->Stat("touched_blocks") == 1; }));
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(IsPresent(*store, MakeId(1, 0)));
  ASSERT_TRUE(DumpBlock(*store, kSmall, MakeId(1, 0), 1).ok());
  store.reset();
  EXPECT_EQ(touches, 1);
  // At each use, and never without a capacity.
  PosixConfig config = Limited(1U << 30);
  config.options["touch_interval_ms"] = std::int64_t{0};
  store = PosixStore::Open(config);
  for (int i = 1; i <= 3; ++i) {
    ASSERT_TRUE(IsPresent(*store, MakeId(1, 0)));
    ASSERT_TRUE(Eventually([&] { return store->Stat("touched_blocks") == i; }));
  }
  store.reset();
  config.options["capacity"] = std::int64_t{0};
  store = PosixStore::Open(config);
  ASSERT_TRUE(IsPresent(*store, MakeId(1, 0)));
  store.reset();
  EXPECT_EQ(touches, 4);
}

TEST_F(PosixReclaim, F06_StoresOfARootHaveOneLimit) {
  PosixConfig other = Limited(1U << 30);
  other.label = "other-0123456789abcdef";
  const auto refused = [](const PosixConfig& config) {
    Status status;
    (void)PosixStore::Try(config, &status);
    return std::string(status.text());
  };
  auto first = PosixStore::Open(Limited(1U << 30));
  auto second = PosixStore::Open(other);  // the same
  const std::string words = refused(Limited(1U << 29));
  EXPECT_NE(words.find("1073741824"), std::string::npos) << words;
  EXPECT_NE(words.find("536870912"), std::string::npos) << words;
  EXPECT_NE(words.find(Root().string()), std::string::npos) << words;
  PosixConfig marks = Limited(1U << 30);
  marks.options["low_mark"] = std::int64_t{80};
  EXPECT_NE(refused(marks).find("low_mark=80"), std::string::npos);
  PosixConfig automatic = Limited(1U << 30);
  automatic.options["capacity"] = std::string("auto");
  EXPECT_NE(refused(automatic).find("capacity=auto"), std::string::npos);
  (void)PosixStore::Open(Unlimited());  // has no opinion
  first.reset();
  EXPECT_NE(refused(Limited(1U << 29)), "") << "the second still lives";
  second.reset();
  first = PosixStore::Open(Limited(1U << 29));
  EXPECT_NE(refused(Limited(1U << 30)), "");
}

TEST_F(PosixReclaim, F06_TheLimitOfAKilledProcessBindsNobody) {
  Children children;
  const pid_t pid = children.Start([&]() -> std::string {
    PosixConfig config = Limited(1U << 30);
    config.fs = &FileSystem::Real();
    auto store = PosixStore::Open(config);
    ::raise(SIGSTOP);
    return "was to be killed";
  });
  Children::AwaitStop(pid);
  Status status;
  (void)PosixStore::Try(Limited(1U << 29), &status);
  EXPECT_EQ(status.code, Code::kInvalidArgument) << "a stopped process lives";
  ::kill(pid, SIGKILL);
  EXPECT_EQ(children.Finish(), std::vector<int>{128 + SIGKILL});
  EXPECT_NE(PosixStore::Open(Limited(1U << 29)), nullptr);
}

// Whatever half a text a death has left: the next one writes anew.
TEST_F(PosixReclaim, F06_HalfATextIsWrittenAnew) {
  (void)PosixStore::Open(Limited(1U << 30));
  const stdfs::path file = Root() / kCapacityName;
  const std::string whole = PrintLimits({.capacity_bytes = 1U << 30});
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << whole.substr(0, size);
    EXPECT_FALSE(size < whole.size() && ParseLimits(whole.substr(0, size))) << size;
    Status status;
    auto store = PosixStore::Try(Limited(1U << 29), &status);
    EXPECT_TRUE(status.ok()) << status.message;
    (void)PosixStore::Try(Limited(1U << 30), &status);
    EXPECT_EQ(status.code, Code::kInvalidArgument);
  }
}

TEST_F(PosixReclaim, F06_ManyThatOpenAtOnceAgree) {
  Children children;
  for (int child = 0; child < 16; ++child) {
    children.Start([&, child]() -> std::string {
      PosixConfig config = Limited(std::uint64_t{1} << (30 + child % 2));
      config.fs = &FileSystem::Real();
      Status status;
      auto store = PosixStore::Try(config, &status);
      if (!status.ok() && status.code != Code::kInvalidArgument) return status.message;
      ::raise(SIGSTOP);  // lives until all have opened
      return status.ok() ? "" : "refused";
    });
  }
  // The parent never opened anything, so all 16 are at it alone.
  std::vector<int> codes = children.FinishStopped();
  const auto agreed = std::ranges::count(codes, 0);
  EXPECT_EQ(agreed, 8) << "those of one kind, all of them";
}

TEST_F(PosixReclaim, TheMarksAreChecked) {
  PosixConfig config = Limited(1U << 30);
  config.options["high_mark"] = std::int64_t{80};
  Status status;
  (void)PosixStore::Try(config, &status);
  EXPECT_EQ(status.code, Code::kInvalidArgument);
  EXPECT_NE(status.text().find("low_mark 95 must be less than high_mark 80"),
            std::string_view::npos)
      << status.message;
}

TEST_F(PosixReclaim, F13_ARootThatWasEmptyIsCollectedLater) {
  auto store = PosixStore::Open(Limited(1U << 20));
  ASSERT_TRUE(AwaitCycles(*store, 1));
  Fill(Unlimited(), 60);  // by another, and far over the limit
  ASSERT_GT(DiskBytes(Root()), 1U << 20);
  clock_.Advance(Collector::kAtLeastEvery);
  ASSERT_TRUE(DumpBlock(*store, kSmall, MakeId(2, 0), 1).ok());
  EXPECT_TRUE(Eventually([&] { return DiskBytes(Root()) <= 1U << 20; }));
  EXPECT_TRUE(IsPresent(*store, MakeId(2, 0)));
  // Folders that have become empty are gone as well, but perhaps the one in which it was enough.
  ASSERT_TRUE(AwaitCycles(*store, 2));
  std::size_t folders = 0;
  for (const auto& entry : stdfs::directory_iterator(Folder())) folders += entry.is_directory();
  EXPECT_LE(folders, Left(60).size() + 3);
}

}  // namespace
}  // namespace ucmstore::test
