// SPDX-License-Identifier: Apache-2.0
//
// A root that was dead when the store was opened comes back by itself: tried by a worker when it is
// needed, not too often, and at nobody else's cost.
#include <gtest/gtest.h>

#include <atomic>

#include "posix/posix_fixture.h"
#include "support/eventually.h"

namespace ucmstore::test {
namespace {

class PosixDeadRoot : public PosixFaults {
 protected:
  PosixDeadRoot() : config_(Config()) {
    config_.roots = {dir_.string() + "/0", dir_.string() + "/1"};
    config_.clock = &clock_;
    (void)PosixStore::Open(config_);  // so that each has its id
  }
  // The n-th id whose home is this root.
  [[nodiscard]] BlockId IdIn(std::size_t root, int n = 0) const {
    for (std::uint64_t i = 0;; ++i) {
      if (HomeOf(config_.roots, MakeId(1, i)) == root && n-- == 0) return MakeId(1, i);
    }
  }
  // Opening root 1 does what `fault` says, and is counted.
  void Spoil(std::function<int()> fault) {
    fs_.Set([this, fault = std::move(fault)](const Call& call) {
      if (call.op != Op::kOpen || call.path != config_.roots[1]) return HookedFs::kGoOn;
      ++tries_;
      return fault();
    });
  }
  void LetTimePass() { clock_.Advance(RootSlot::kRetryAfter); }
  // Comes back when no try is queued any more.
  void Need(PosixStore& store) const {
    (void)IsPresent(store, MakeId(1, 0));
    (void)Eventually([&] { return store.Stat("queued_jobs") == 0; });
  }

  ManualClock clock_;
  PosixConfig config_;
  std::atomic<int> tries_{0};
};

TEST_F(PosixDeadRoot, D_ItCostsItsOwnBlocksOnlyAndComesBackByItselfWithAllOfThem) {
  {
    const auto store = PosixStore::Open(config_);
    ASSERT_TRUE(DumpBlock(*store, kSmall, IdIn(1), 1).ok());
    ASSERT_TRUE(DumpBlock(*store, kSmall, IdIn(0), 2).ok());
  }
  Spoil([] { return -EIO; });
  const auto store = PosixStore::Open(config_);
  EXPECT_TRUE(store->log().Has(LogLevel::kError, "tries it again"));
  EXPECT_FALSE(IsPresent(*store, IdIn(1)));
  EXPECT_EQ(BlockProblem(*store, kSmall, IdIn(0), 2), "");
  fs_.Clear();
  EXPECT_FALSE(IsPresent(*store, IdIn(1))) << "it was tried just now";
  LetTimePass();
  EXPECT_TRUE(Eventually([&] { return IsPresent(*store, IdIn(1)); }));
  EXPECT_TRUE(store->log().Has(LogLevel::kInfo, "this root is back"));
  EXPECT_EQ(BlockProblem(*store, kSmall, IdIn(1), 1), "");
  EXPECT_EQ(BlockProblem(*store, kSmall, IdIn(0), 2), "");
}

// Nobody knows yet that these blocks are the dead root's, so the others take them.
TEST_F(PosixDeadRoot, D_WhatIsDumpedMeanwhileIsThereBeforeAndAfterItComesBack) {
  Spoil([] { return -EIO; });
  const auto store = PosixStore::Open(config_);
  ASSERT_TRUE(DumpBlock(*store, kSmall, IdIn(1), 4).ok());
  ASSERT_TRUE(DumpShard(*store, kSmall, IdIn(1, 1), 0, 4).ok());  // begun there, ended here
  EXPECT_EQ(BlockProblem(*store, kSmall, IdIn(1), 4), "");
  fs_.Clear();
  LetTimePass();
  EXPECT_TRUE(Eventually([&] {
    (void)IsPresent(*store, IdIn(0));
    return store->log().Has(LogLevel::kInfo, "this root is back");
  }));
  EXPECT_EQ(BlockProblem(*store, kSmall, IdIn(1), 4), "");
  DumpBatch rest(kSmall);
  for (std::uint32_t shard = 1; shard < 4; ++shard) rest.Add(IdIn(1, 1), shard, 4);
  ASSERT_TRUE(Finish(*store, rest).ok());
  EXPECT_EQ(BlockProblem(*store, kSmall, IdIn(1, 1), 4), "");
  ASSERT_TRUE(DumpBlock(*store, kSmall, IdIn(1, 2), 5).ok());
  EXPECT_EQ(BlockProblem(*PosixStore::Open(config_), kSmall, IdIn(1, 2), 5), "") << "now at home";
}

TEST_F(PosixDeadRoot, D_WhileItIsDeadItIsTriedOnceInAWhile) {
  Spoil([] { return -EIO; });
  const auto store = PosixStore::Open(config_);
  for (int round = 0; round < 3; ++round) {
    const int tries = tries_;
    for (int n = 0; n < 100; ++n) Need(*store);
    EXPECT_LE(tries_, tries + 1) << "no time has passed; one may have been under way";
    EXPECT_TRUE(Eventually([&] {  // again and again, for the try before may not be over yet
      LetTimePass();
      Need(*store);
      return tries_ > tries;
    }));
  }
}

TEST_F(PosixDeadRoot, D09_OneThatHangsCostsAWorkerAndNobodysTime) {
  Spoil([] { return -EIO; });
  const auto store = PosixStore::Open(config_);
  Gate gate;
  Spoil([&gate] {
    gate.Wait();
    return -EIO;
  });
  LetTimePass();
  EXPECT_FALSE(IsPresent(*store, IdIn(1)));
  gate.AwaitOne();
  LetTimePass();
  EXPECT_FALSE(IsPresent(*store, IdIn(1)));
  ASSERT_TRUE(DumpBlock(*store, kSmall, IdIn(0), 3).ok());
  EXPECT_EQ(BlockProblem(*store, kSmall, IdIn(0), 3), "");
  EXPECT_FALSE(store->stage().Close(200)) << "it moves still";
  gate.Open();
  EXPECT_TRUE(store->stage().Close(kPatienceMs));
}

// The disk that comes back is another path to a folder in use, or not ours at all.
TEST_F(PosixDeadRoot, OneThatMustNotBeUsedStaysDeadAndSaysWhy) {
  Spoil([] { return -EIO; });
  const auto store = PosixStore::Open(config_);
  fs_.Clear();
  stdfs::remove_all(config_.roots[1]);
  stdfs::create_directory_symlink(config_.roots[0], config_.roots[1]);
  LetTimePass();
  EXPECT_TRUE(Eventually([&] {
    Need(*store);
    return store->log().Has(LogLevel::kError, "are the same folder");
  }));
  ASSERT_TRUE(DumpBlock(*store, kSmall, MakeId(1, 0), 3).ok());
  EXPECT_EQ(BlockProblem(*store, kSmall, MakeId(1, 0), 3), "");
}

}  // namespace
}  // namespace ucmstore::test
