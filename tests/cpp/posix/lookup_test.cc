// SPDX-License-Identifier: Apache-2.0
//
// Lookups on slow and hanging file systems: many probes at once where somebody is behind the disk,
// no further than the first gap, and back in time, whatever the disk does. Figures: bench/.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "posix/posix_fixture.h"
#include "support/eventually.h"

namespace ucmstore::test {
namespace {

constexpr std::uint64_t kStored = 96;

class PosixLookup : public PosixFaults {
 protected:
  PosixConfig Remote() {
    PosixConfig config = Config();
    config.options["network"] = std::string("yes");
    config.options["lookup_threads"] = std::int64_t{8};
    return config;
  }
  // The first `kStored` of these are there.
  static std::vector<BlockId> Ids(std::uint64_t count) {
    std::vector<BlockId> ids;
    for (std::uint64_t i = 0; i < count; ++i) ids.push_back(MakeId(1, i));
    return ids;
  }
  static void DumpAll(PosixStore& store) {
    DumpBatch dump(kSmall);
    for (const BlockId& id : Ids(kStored)) dump.AddBlock(id, 1);
    ASSERT_TRUE(Finish(store, dump).ok());
  }
  // What happens when block `i` is asked for.
  void OnProbe(std::function<void(std::uint64_t i)> act) {
    fs_.Set([act = std::move(act)](const Call& call) {
      if (call.op != Op::kStatAt) return HookedFs::kGoOn;
      for (std::uint64_t i = 0; i < 1024; ++i) {
        if (call.path == BlockName(MakeId(1, i), 3).text()) act(i);
      }
      return HookedFs::kGoOn;
    });
  }
  // The answers' memory is the call's alone, so that a late write into it is seen by ASan.
  static Status Look(PosixStore& store, const std::vector<BlockId>& ids, std::uint32_t flags,
                     std::uint32_t timeout_ms, std::string* answers) {
    const auto asked = std::make_unique<std::vector<BlockId>>(ids);
    const auto found = std::make_unique<std::vector<std::uint8_t>>(ids.size(), 9);
    LookupDesc desc;
    desc.flags = flags;
    desc.blocks = asked->data();
    desc.count = static_cast<std::uint32_t>(asked->size());
    desc.timeout_ms = timeout_ms;
    Status status = store.Lookup(desc, found->data());
    answers->clear();
    for (const std::uint8_t each : *found) answers->push_back(each == kAbsent ? '0' : '1');
    return status;
  }
  static std::string Ones(std::size_t ones, std::size_t zeros) {
    return std::string(ones, '1') + std::string(zeros, '0');
  }
};

TEST_F(PosixLookup, K_ManyProbesAreUnderWayAtOnce) {
  const auto store = PosixStore::Open(Remote());
  DumpAll(*store);
  std::atomic<int> inside{0};
  Gate all_here;
  OnProbe([&](std::uint64_t i) {
    if (i >= 8) return;
    if (inside.fetch_add(1) + 1 == 8) all_here.Open();
    all_here.Wait();  // for ever, if they came one after the other
  });
  std::string answers;
  ASSERT_TRUE(Look(*store, Ids(200), 0, kPatienceMs, &answers).ok());
  EXPECT_EQ(answers, Ones(kStored, 200 - kStored));
  ASSERT_TRUE(Look(*store, Ids(200), kStopAtMiss, 0, &answers).ok());
  EXPECT_EQ(answers, Ones(kStored, 200 - kStored));
  EXPECT_EQ(store->Stat("lookup_timeouts"), 0);
}

TEST_F(PosixLookup, K_APrefixIsAskedNoFurtherThanWhatIsUnderWayAtItsFirstGap) {
  const auto store = PosixStore::Open(Remote());
  DumpAll(*store);
  std::atomic<std::uint64_t> furthest{0};
  Gate gate;
  OnProbe([&](std::uint64_t i) {
    std::uint64_t seen = furthest.load();
    while (i > seen && !furthest.compare_exchange_weak(seen, i)) {
    }
    if (i > kStored) gate.Wait();  // and nobody waits for these
  });
  std::string answers;
  ASSERT_TRUE(Look(*store, Ids(1000), kStopAtMiss, kPatienceMs, &answers).ok());
  EXPECT_EQ(answers, Ones(kStored, 1000 - kStored));
  EXPECT_EQ(store->Stat("lookup_timeouts"), 0);
  gate.Open();
  ASSERT_TRUE(store->Close(kPatienceMs));
  EXPECT_LE(furthest, kStored + 7) << "one on each of the other threads";
}

TEST_F(PosixLookup, D_AHungProbeCostsTheDeadlineAndWhatIsKnownIsTold) {
  const auto store = PosixStore::Open(Remote());
  DumpAll(*store);
  Gate gate;
  OnProbe([&](std::uint64_t i) {
    if (i == 40) gate.Wait();
  });
  std::string answers;
  Status status = Look(*store, Ids(kStored), kStopAtMiss, 1000, &answers);
  EXPECT_TRUE(status.ok()) << status.message;
  EXPECT_EQ(answers, Ones(40, kStored - 40));
  EXPECT_EQ(store->Stat("lookup_timeouts"), 1);
  status = Look(*store, Ids(kStored), 0, 1000, &answers);
  EXPECT_TRUE(status.ok()) << status.message;
  std::string expected = Ones(kStored, 0);
  expected[40] = '0';
  EXPECT_EQ(answers, expected);
  gate.Open();
}

TEST_F(PosixLookup, D_WhereNothingIsKnownItTimesOutInWordsAndTheRestGoesOn) {
  PosixConfig config = Remote();
  config.options["lookup_timeout_ms"] = std::int64_t{100};
  auto store = PosixStore::Open(config);
  DumpAll(*store);
  Gate gate;
  OnProbe([&](std::uint64_t i) {
    if (i == 0) gate.Wait();
  });
  std::string answers;
  for (const std::uint32_t timeout : {50U, 0U}) {
    const Status status = Look(*store, Ids(kStored), kStopAtMiss, timeout, &answers);
    EXPECT_EQ(status.code, Code::kTimeout) << status.message;
    EXPECT_NE(status.text().find(Folder().string()), std::string_view::npos) << status.message;
    EXPECT_EQ(answers, Ones(0, kStored));
  }
  // Loads and dumps have other threads.
  EXPECT_EQ(BlockProblem(*store, kSmall, MakeId(1, 5), 1), "");
  EXPECT_TRUE(DumpBlock(*store, kSmall, MakeId(1, 300), 1).ok());
  EXPECT_FALSE(store->stage().Close(100)) << "two probes hang";
  gate.Open();
  EXPECT_TRUE(store->stage().Close(kPatienceMs));
}

// Every thread hangs: each further lookup costs its deadline, and leaves nothing behind.
TEST_F(PosixLookup, D_ManyLookupsOnAHungDiskPileNothingUp) {
  auto store = PosixStore::Open(Remote());
  DumpAll(*store);
  Gate gate;
  std::atomic<int> hung{0};
  OnProbe([&](std::uint64_t) {
    ++hung;
    gate.Wait();
  });
  std::string answers;
  for (int i = 0; i < 30; ++i) {
    EXPECT_EQ(Look(*store, Ids(kStored), 0, 10, &answers).code, Code::kTimeout);
  }
  EXPECT_LE(hung, 8);
  gate.Open();
  ASSERT_TRUE(Look(*store, Ids(kStored), 0, kPatienceMs, &answers).ok());
  EXPECT_EQ(answers, Ones(kStored, 0));
  EXPECT_LE(hung, 8 + static_cast<int>(kStored)) << "nobody went on for the lookups that had left";
}

TEST_F(PosixLookup, K_ErrorsOfSomeAreMissesAndOfAllAreOne) {
  const auto store = PosixStore::Open(Remote());
  DumpAll(*store);
  const std::string bad(BlockName(MakeId(1, 7), 3).text());
  fs_.Set([bad](const Call& call) {
    return call.op == Op::kStatAt && call.path == bad ? -EIO : HookedFs::kGoOn;
  });
  std::string answers;
  ASSERT_TRUE(Look(*store, Ids(kStored), kStopAtMiss, 0, &answers).ok());
  EXPECT_EQ(answers, Ones(7, kStored - 7));
  EXPECT_TRUE(store->log().Has(LogLevel::kWarning, "could not be looked up"));
  fs_.Set([](const Call& call) { return call.op == Op::kStatAt ? -EIO : HookedFs::kGoOn; });
  EXPECT_EQ(Look(*store, Ids(kStored), 0, 0, &answers).code, Code::kIoError);
  EXPECT_EQ(answers, Ones(0, kStored));
}

// On this machine's own file systems the caller asks itself, and looks at the clock in between.
TEST_F(PosixLookup, D_ADeadlineEndsALocalLookupBetweenProbes) {
  PosixConfig config = Config();
  config.options["network"] = std::string("no");
  const auto store = PosixStore::Open(config);
  DumpAll(*store);
  OnProbe([](std::uint64_t i) {
    if (i == 0) std::this_thread::sleep_for(milliseconds(30));  // style: past the deadline
  });
  std::string answers;
  const Status status = Look(*store, Ids(kStored), 0, 5, &answers);
  EXPECT_TRUE(status.ok()) << status.message;
  EXPECT_EQ(answers.substr(0, 32), Ones(32, 0)) << "these were asked";
  EXPECT_EQ(answers.back(), '0') << "this one was not, and is absent";
  EXPECT_EQ(store->Stat("lookup_timeouts"), 1);
  ASSERT_TRUE(Look(*store, Ids(kStored), 0, kPatienceMs, &answers).ok());
  EXPECT_EQ(answers, Ones(kStored, 0));
}

// `auto` asks the file system's type; one that cannot be told may be anything.
TEST_F(PosixLookup, K_AutoTakesThreadsOnlyWhereTheFileSystemIsNotThisMachines) {
  {
    const auto store = PosixStore::Open(Config());
    DumpAll(*store);
  }
  for (const bool remote : {false, true}) {
    if (remote) {
      fs_.Set([](const Call& call) { return call.op == Op::kFacts ? -EIO : HookedFs::kGoOn; });
    }
    const auto store = PosixStore::Open(Config());
    std::atomic<bool> elsewhere{false};
    OnProbe([&, caller = std::this_thread::get_id()](std::uint64_t) {
      if (std::this_thread::get_id() != caller) elsewhere = true;
    });
    std::string answers;
    ASSERT_TRUE(Look(*store, Ids(3), 0, 0, &answers).ok());
    EXPECT_EQ(answers, "111");
    EXPECT_EQ(elsewhere, remote);
    fs_.Clear();
  }
}

}  // namespace
}  // namespace ucmstore::test
