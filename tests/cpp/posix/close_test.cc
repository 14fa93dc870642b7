// SPDX-License-Identifier: Apache-2.0
//
// Closing a Posix store over a disk that is slow, or hangs, while half-written blocks are to be
// removed: bounded, true, and nothing stays behind for good.
#include <gtest/gtest.h>

#include <thread>

#include "posix/posix_fixture.h"
#include "support/eventually.h"

namespace ucmstore::test {
namespace {

class PosixClose : public PosixFaults {
 protected:
  static void DumpHalves(TestStore& store, std::uint64_t count) {
    for (std::uint64_t b = 0; b < count; ++b) {
      ASSERT_TRUE(DumpShard(store, kSmall, MakeId(1, b), 0, 1).ok());
    }
  }
};

TEST_F(PosixClose, S10_WhatASlowDiskDoesNotRemoveInTimeIsReapedByTheNextStore) {
  constexpr std::uint64_t kBlocks = 400;
  {
    const auto store = PosixStore::Open(Config());
    DumpHalves(*store, kBlocks);
    ASSERT_EQ(Leftovers(), kBlocks);
    fs_.Set([](const Call& call) {
      if (call.op == Op::kUnlink) {
        std::this_thread::sleep_for(milliseconds(10));  // style: a slow disk
      }
      return HookedFs::kGoOn;
    });
    EXPECT_TRUE(store->stage().Close(0));
    EXPECT_TRUE(store->log().Has(LogLevel::kWarning, "no time was left to remove"));
    fs_.Clear();
  }
  const std::size_t left = Leftovers();
  EXPECT_GT(left, 0U);
  const auto store = PosixStore::Open(Config());
  EXPECT_TRUE(Eventually([&] { return store->Stat("reaped_files") == static_cast<double>(left); }));
  EXPECT_EQ(Leftovers(), 0U);
  ASSERT_TRUE(DumpBlock(*store, kSmall, MakeId(1, 0), 2).ok());
  EXPECT_EQ(BlockProblem(*store, kSmall, MakeId(1, 0), 2), "");
}

TEST_F(PosixClose, D04_AHungDiskLeavesTheStoreAloneInBoundedTime) {
  const auto store = PosixStore::Open(Config());
  DumpHalves(*store, 20);
  Gate gate;
  fs_.Set([&gate](const Call& call) {
    if (call.op == Op::kUnlink) gate.Wait();
    return HookedFs::kGoOn;
  });
  EXPECT_FALSE(store->stage().Close(500));
  gate.Open();
  EXPECT_TRUE(store->stage().Close(kPatienceMs)) << "and once it goes on, it is seen to have ended";
  fs_.Clear();
  EXPECT_LE(Leftovers(), 20U - 1U) << "what hung was removed after all";
}

// The same disk, hanging only when the store takes its mark away: the last thing that it does.
TEST_F(PosixClose, D04_AHungRemovalOfTheMarkIsBoundedToo) {
  const auto store = PosixStore::Open(Config());
  ASSERT_TRUE(DumpBlock(*store, kSmall, MakeId(1, 0), 1).ok());
  Gate gate;
  fs_.Set([&gate](const Call& call) {
    if (call.op == Op::kUnlink && call.path.find(kWritersName) != std::string_view::npos) {
      gate.Wait();
    }
    return HookedFs::kGoOn;
  });
  EXPECT_FALSE(store->stage().Close(500));
  gate.Open();
  EXPECT_TRUE(store->stage().Close(kPatienceMs));
  fs_.Clear();
}

// A reaper that has thousands of files to go stops at the next one.
TEST_F(PosixClose, AReaperInTheMiddleOfASlowSweepStops) {
  PosixConfig config = Config();
  config.options["prefix_digits"] = std::int64_t{1};  // many files in a folder
  {
    const auto store = PosixStore::Open(config);
    DumpHalves(*store, 200);
    fs_.Set([](const Call& call) { return call.op == Op::kUnlink ? -EIO : HookedFs::kGoOn; });
    EXPECT_TRUE(store->Close(kPatienceMs));
  }
  ASSERT_EQ(Leftovers(), 200U);
  std::atomic<int> removals{0};
  fs_.Set([&removals](const Call& call) {
    if (call.op == Op::kUnlink) {
      ++removals;
      removals.notify_all();
      std::this_thread::sleep_for(milliseconds(10));  // style: a slow disk
    }
    return HookedFs::kGoOn;
  });
  const auto store = PosixStore::Open(config);
  removals.wait(0);
  EXPECT_TRUE(store->Close(kPatienceMs));
  fs_.Clear();
  EXPECT_GT(Leftovers(), 0U);
  const auto next = PosixStore::Open(config);
  EXPECT_TRUE(Eventually([&] { return Leftovers() == 0; }));
}

}  // namespace
}  // namespace ucmstore::test
