// SPDX-License-Identifier: Apache-2.0
//
// A root that has become slow, or hangs: it rests, at nobody else's cost, and comes back by itself.
// Time is chosen by the tests.
#include "store/posix/breaker.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "posix/posix_fixture.h"
#include "support/eventually.h"

namespace ucmstore::test {
namespace {

constexpr milliseconds kSlow{1'000};
using Kind = Breaker::Kind;

// ---- alone -----------------------------------------------------------------------------------

TEST(PosixBreaker, RestsAfterAUseThatTookLongerAndNotAfterOneThatDidNot) {
  ManualClock clock;
  Breaker breaker(clock, kSlow);
  {
    const Breaker::Use use(breaker, Kind::kRead);
    clock.Advance(kSlow);
  }
  EXPECT_FALSE(breaker.Refuses());
  {
    const Breaker::Use use(breaker, Kind::kRead);
    clock.Advance(kSlow + milliseconds(1));
  }
  EXPECT_TRUE(breaker.Refuses());
  EXPECT_TRUE(breaker.TakeNews());
  EXPECT_FALSE(breaker.TakeNews());
  EXPECT_EQ(breaker.rests(), 1U);
  EXPECT_EQ(breaker.refusals(), 1U);
}

TEST(PosixBreaker, NoticesAUseThatHangsBehindOthersThatDoNot) {
  ManualClock clock;
  Breaker breaker(clock, kSlow);
  const auto first = std::make_unique<Breaker::Use>(breaker, Kind::kRead);
  auto second = std::make_unique<Breaker::Use>(breaker, Kind::kRead);
  auto third = std::make_unique<Breaker::Use>(breaker, Kind::kRead);
  clock.Advance(milliseconds(600));
  second.reset();  // from the middle of the list
  const Breaker::Use later(breaker, Kind::kRead);
  third.reset();
  breaker.Look();
  EXPECT_FALSE(breaker.resting());
  clock.Advance(milliseconds(600));
  breaker.Look();
  EXPECT_TRUE(breaker.resting());
}

TEST(PosixBreaker, WritingMayTakeFourTimesAsLong) {
  ManualClock clock;
  Breaker breaker(clock, kSlow);
  const Breaker::Use write(breaker, Kind::kWrite);
  clock.Advance(4 * kSlow);
  breaker.Look();
  EXPECT_FALSE(breaker.resting());
  clock.Advance(milliseconds(1));
  breaker.Look();
  EXPECT_TRUE(breaker.resting());
}

TEST(PosixBreaker, OnlyAFastProbeEndsARestAndWhatStillHangsFromBeforeDoesNotBeginAnother) {
  ManualClock clock;
  Breaker breaker(clock, kSlow);
  auto hangs = std::make_unique<Breaker::Use>(breaker, Kind::kRead);
  clock.Advance(2 * kSlow);
  breaker.Look();
  ASSERT_TRUE(breaker.resting());
  TimePoint begun = clock.Now();
  clock.Advance(kSlow + milliseconds(1));
  EXPECT_FALSE(breaker.Probed(begun));
  EXPECT_TRUE(breaker.resting());
  begun = clock.Now();
  clock.Advance(milliseconds(1));
  EXPECT_TRUE(breaker.Probed(begun));
  EXPECT_FALSE(breaker.resting());
  clock.Advance(2 * kSlow);
  breaker.Look();
  hangs.reset();
  EXPECT_FALSE(breaker.resting());
  EXPECT_EQ(breaker.rests(), 1U);
}

TEST(PosixBreaker, ZeroNeverRests) {
  ManualClock clock;
  Breaker breaker(clock, milliseconds(0));
  {
    const Breaker::Use use(breaker, Kind::kRead);
    clock.Advance(milliseconds(1'000'000));
    breaker.Look();
  }
  EXPECT_FALSE(breaker.resting());
}

// ---- in a store ------------------------------------------------------------------------------

class PosixSlowRoot : public PosixFaults {
 protected:
  PosixSlowRoot() : config_(Config()) {
    config_.clock = &clock_;
    config_.options["rest_after_ms"] = std::int64_t{kSlow.count()};
    config_.relief_after = milliseconds(10);
  }
  // Those that use the store give it the chance to notice what time it is.
  void LetTimePass(milliseconds by = milliseconds(3'000)) { clock_.Advance(by); }
  [[nodiscard]] bool BecomesPresent(PosixStore& store, const BlockId& id) {
    return Eventually([&] {
      LetTimePass();  // the probe may be under way still
      return IsPresent(store, id);
    });
  }

  ManualClock clock_;
  PosixConfig config_;
};

TEST_F(PosixSlowRoot, D09_OneSlowLookupIsTheLastUntilTheDiskIsFastAgain) {
  const auto store = PosixStore::Open(config_);
  ASSERT_TRUE(DumpBlock(*store, kSmall, MakeId(1, 0), 1).ok());
  std::atomic<int> asked{0};   // for the block
  std::atomic<int> probes{0};  // for any other
  fs_.Set([&](const Call& call) {
    if (call.op == Op::kStatAt) {
      ++(call.path == BlockName(MakeId(1, 0), 3).text() ? asked : probes);
      clock_.Advance(milliseconds(3'000));
    }
    return HookedFs::kGoOn;
  });
  EXPECT_TRUE(IsPresent(*store, MakeId(1, 0))) << "slow, but right";
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(IsPresent(*store, MakeId(1, 0)));
  EXPECT_EQ(asked, 1) << "nobody has asked the disk";
  EXPECT_EQ(store->Stat("resting_roots"), 1);
  EXPECT_GE(store->Stat("refused_by_rest"), 100);
  LetTimePass();
  EXPECT_FALSE(IsPresent(*store, MakeId(1, 0)));
  EXPECT_TRUE(Eventually([&] { return probes > 0; })) << "a worker tries the disk";
  EXPECT_TRUE(store->log().Has(LogLevel::kWarning, "the root rests"));
  EXPECT_FALSE(IsPresent(*store, MakeId(1, 0))) << "the probe was slow, too";
  fs_.Clear();
  EXPECT_TRUE(BecomesPresent(*store, MakeId(1, 0)));
  EXPECT_EQ(store->Stat("resting_roots"), 0);
  EXPECT_EQ(store->Stat("rests"), 1);
  EXPECT_TRUE(store->log().Has(LogLevel::kWarning, "used again"));
}

TEST_F(PosixSlowRoot, D_WhileItRestsLoadsAndDumpsFailInWordsAtOnce) {
  const auto store = PosixStore::Open(config_);
  ASSERT_TRUE(DumpBlock(*store, kSmall, MakeId(1, 0), 1).ok());
  fs_.Set([&](const Call& call) {
    if (call.op == Op::kRead) clock_.Advance(milliseconds(3'000));
    return HookedFs::kGoOn;
  });
  EXPECT_EQ(BlockProblem(*store, kSmall, MakeId(1, 0), 1), "");
  std::atomic<int> touched{0};
  fs_.Set([&](const Call& call) {
    bool ours = false;
    for (std::uint64_t i = 0; i < 2; ++i) {
      ours = ours || call.path.starts_with(BlockName(MakeId(1, i), 3).text());
    }
    if (ours) ++touched;
    if (call.op == Op::kStatAt && !ours) clock_.Advance(milliseconds(3'000));  // a probe: too slow
    return HookedFs::kGoOn;
  });
  LoadBatch load(kSmall);
  load.AddBlock(MakeId(1, 0));
  Status status = Finish(*store, load);
  EXPECT_EQ(status.code, Code::kIoError);
  EXPECT_NE(status.text().find("rest_after_ms=1000"), std::string_view::npos) << status.message;
  status = DumpBlock(*store, kSmall, MakeId(1, 1), 1);
  EXPECT_EQ(status.code, Code::kIoError);
  EXPECT_NE(status.text().find(dir_.string()), std::string_view::npos) << status.message;
  EXPECT_EQ(touched, 0) << "the disk was left alone";
  fs_.Clear();
  EXPECT_TRUE(BecomesPresent(*store, MakeId(1, 0)));
  EXPECT_EQ(BlockProblem(*store, kSmall, MakeId(1, 0), 1), "");
  EXPECT_TRUE(DumpBlock(*store, kSmall, MakeId(1, 1), 1).ok());
}

TEST_F(PosixSlowRoot, D_AFullDiskOrABadFileIsNoReasonToRest) {
  const auto store = PosixStore::Open(config_);
  ASSERT_TRUE(DumpBlock(*store, kSmall, MakeId(1, 0), 1).ok());
  fs_.Set([](const Call& call) { return call.op == Op::kWrite ? -ENOSPC : HookedFs::kGoOn; });
  for (int i = 1; i < 50; ++i) {
    EXPECT_EQ(DumpBlock(*store, kSmall, MakeId(1, 1), 1).code, Code::kNoSpace);
  }
  EXPECT_EQ(BlockProblem(*store, kSmall, MakeId(1, 0), 1), "");
  fs_.Set([](const Call& call) { return call.op == Op::kRead ? -EIO : HookedFs::kGoOn; });
  for (int i = 1; i < 50; ++i) EXPECT_NE(BlockProblem(*store, kSmall, MakeId(1, 0), 1), "");
  EXPECT_TRUE(IsPresent(*store, MakeId(1, 0)));
  EXPECT_EQ(store->Stat("rests"), 0);
}

// All workers hang in one root; the blocks of the other are loaded and dumped all the same.
TEST_F(PosixSlowRoot, D09_ARootThatHangsCostsItsOwnBlocksOnly) {
  config_.roots = {dir_.string() + "/0", dir_.string() + "/1"};
  (void)PosixStore::Open(config_);  // so that each has its id
  std::vector<BlockId> in[2];
  for (std::uint64_t i = 0; in[0].size() < 4 || in[1].size() < 40; ++i) {
    in[HomeOf(config_.roots, MakeId(1, i))].push_back(MakeId(1, i));
  }
  const auto store = PosixStore::Open(config_);
  DumpBatch dump(kSmall);
  for (const auto& ids : in) {
    for (const BlockId& id : ids) dump.AddBlock(id, 1);
  }
  ASSERT_TRUE(Finish(*store, dump).ok());
  Gate gate;
  fs_.Set([&](const Call& call) {
    if (call.op == Op::kOpen) {
      bool hangs = call.path.ends_with(".tmp");  // only the root that rests is tried
      for (const BlockId& id : in[1]) hangs = hangs || call.path == BlockName(id, 3).text();
      if (hangs) gate.Wait();
    }
    return HookedFs::kGoOn;
  });
  LoadBatch hanging(kSmall);
  for (const BlockId& id : in[1]) hanging.AddBlock(id);
  TaskId task = 0;
  ASSERT_TRUE(store->Load(hanging.desc(), &task).ok());
  gate.AwaitOne();
  LetTimePass();
  EXPECT_EQ(BlockProblem(*store, kSmall, in[0][0], 1), "");
  ASSERT_TRUE(DumpBlock(*store, kSmall, in[0][1], 1).ok());
  EXPECT_TRUE(IsPresent(*store, in[0][0]));
  EXPECT_FALSE(IsPresent(*store, in[1][0]));
  EXPECT_TRUE(Eventually([&] { return store->Stat("queued_jobs") == 0; }))
      << "who has not begun fails without the disk";
  bool done = true;
  ASSERT_TRUE(store->Check(task, &done).ok());
  EXPECT_FALSE(done) << "those that have begun are waited for";
  gate.Open();
  EXPECT_EQ(store->Wait(task, kPatienceMs).code, Code::kIoError);
  EXPECT_TRUE(BecomesPresent(*store, in[1][0]));
  EXPECT_EQ(BlockProblem(*store, kSmall, in[1][0], 1), "");
}

// The same for lookups that go by threads of their own.
TEST_F(PosixSlowRoot, D09_LookupsOnANetworkComeBackAtOnceWhileItRests) {
  config_.options["network"] = std::string("yes");
  config_.options["lookup_threads"] = std::int64_t{2};
  const auto store = PosixStore::Open(config_);
  ASSERT_TRUE(DumpBlock(*store, kSmall, MakeId(1, 0), 1).ok());
  Gate gate;
  std::atomic<int> hanging{0};
  fs_.Set([&](const Call& call) {
    if (call.op == Op::kStatAt) {
      ++hanging;
      gate.Wait();
    }
    return HookedFs::kGoOn;
  });
  const BlockId ids[] = {MakeId(1, 0), MakeId(1, 1), MakeId(1, 2)};
  std::uint8_t found[3] = {9, 9, 9};
  LookupDesc desc;
  desc.blocks = ids;
  desc.count = 3;
  desc.timeout_ms = 1;
  double timeouts = 0;
  do {  // until a thread has come so far
    EXPECT_EQ(store->Lookup(desc, found).code, Code::kTimeout);
    ++timeouts;
  } while (hanging == 0);
  LetTimePass();
  desc.timeout_ms = kPatienceMs;  // and yet it is back at once
  ASSERT_TRUE(store->Lookup(desc, found).ok());
  EXPECT_EQ(found[0], kAbsent);
  EXPECT_EQ(store->Stat("lookup_timeouts"), timeouts);
  gate.Open();
  EXPECT_TRUE(BecomesPresent(*store, MakeId(1, 0)));
}

}  // namespace
}  // namespace ucmstore::test
