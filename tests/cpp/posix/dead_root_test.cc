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
  }
  [[nodiscard]] static BlockId IdIn(std::uint32_t root) {
    std::uint64_t i = 0;
    while (ChooseRoot(MakeId(1, i), 2) != root) ++i;
    return MakeId(1, i);
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
  static void Need(PosixStore& store) {
    (void)IsPresent(store, IdIn(1));
    (void)Eventually([&] { return store.Stat("queued_jobs") == 0; });
  }

  ManualClock clock_;
  PosixConfig config_;
  std::atomic<int> tries_{0};
};

TEST_F(PosixDeadRoot, D_ItComesBackByItselfWithAllItsBlocks) {
  ASSERT_TRUE(DumpBlock(*PosixStore::Open(config_), kSmall, IdIn(1), 1).ok());
  Spoil([] { return -EIO; });
  const auto store = PosixStore::Open(config_);
  EXPECT_TRUE(store->log().Has(LogLevel::kError, "tries it again"));
  EXPECT_FALSE(IsPresent(*store, IdIn(1)));
  EXPECT_EQ(DumpBlock(*store, kSmall, IdIn(1), 2).code, Code::kIoError);
  fs_.Clear();
  EXPECT_FALSE(IsPresent(*store, IdIn(1))) << "it was tried just now";
  LetTimePass();
  EXPECT_TRUE(Eventually([&] { return IsPresent(*store, IdIn(1)); }));
  EXPECT_TRUE(store->log().Has(LogLevel::kInfo, "this root is back"));
  EXPECT_EQ(BlockProblem(*store, kSmall, IdIn(1), 1), "");
  ASSERT_TRUE(DumpBlock(*store, kSmall, IdIn(0), 3).ok());
  EXPECT_EQ(BlockProblem(*store, kSmall, IdIn(0), 3), "");
}

TEST_F(PosixDeadRoot, D_ALoadOrADumpFindsItAliveToo) {
  Spoil([] { return -EIO; });
  const auto store = PosixStore::Open(config_);
  fs_.Clear();
  LetTimePass();
  EXPECT_TRUE(Eventually([&] { return DumpBlock(*store, kSmall, IdIn(1), 4).ok(); }));
  EXPECT_EQ(BlockProblem(*store, kSmall, IdIn(1), 4), "");
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
  EXPECT_EQ(DumpBlock(*store, kSmall, IdIn(1), 2).code, Code::kIoError);
  EXPECT_FALSE(store->stage().Close(200)) << "it moves still";
  gate.Open();
  EXPECT_TRUE(store->stage().Close(kPatienceMs));
}

// The disk that comes back is another path to a folder in use, or not ours at all.
TEST_F(PosixDeadRoot, OneThatMustNotBeUsedStaysDeadAndSaysWhy) {
  Spoil([] { return -EIO; });
  const auto store = PosixStore::Open(config_);
  fs_.Clear();
  stdfs::create_directory_symlink(config_.roots[0], config_.roots[1]);
  LetTimePass();
  EXPECT_TRUE(Eventually(
      [&] { return DumpBlock(*store, kSmall, IdIn(1), 2).code == Code::kInvalidArgument; }));
  EXPECT_FALSE(IsPresent(*store, IdIn(1)));
  ASSERT_TRUE(DumpBlock(*store, kSmall, IdIn(0), 3).ok());
}

}  // namespace
}  // namespace ucmstore::test
