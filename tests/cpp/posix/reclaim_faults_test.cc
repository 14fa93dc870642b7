// SPDX-License-Identifier: Apache-2.0
//
// Reclaim among others and under faults: several collectors, removal from outside, files that
// cannot be removed, death at every step, and whatever else may lie in a root.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "posix/reclaim_fixture.h"
#include "store/posix/collector.h"
#include "support/random.h"

namespace ucmstore::test {
namespace {

constexpr std::uint64_t kBlocks = 60;

[[nodiscard]] bool IsBlock(std::string_view name) { return name.size() == 32; }

// Runs until it is told to stop.
class Background {
 public:
  explicit Background(std::function<void()> round) {
    thread_ = std::thread([this, round = std::move(round)] {
      while (!stop_.load()) round();
    });
  }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  ~Background() {
    stop_.store(true);
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

TEST_F(PosixReclaim, F14_WhatCannotBeRemovedStaysCountedAndGoesInTheNextCycle) {
  Fill(Unlimited(), kBlocks);
  const std::uint64_t before = DiskBytes(Root());
  fs_.Set([](const Call& call) {
    return call.op == Op::kUnlink && IsBlock(call.path) ? -EPERM : HookedFs::kGoOn;
  });
  auto store = PosixStore::Open(Limited(before / 2));
  ASSERT_TRUE(AwaitCycles(*store, 1));
  EXPECT_EQ(Left(kBlocks).size(), kBlocks);
  EXPECT_GT(store->Stat("reclaim_failures"), 0);
  EXPECT_EQ(store->Stat("reclaimed_blocks"), 0);
  EXPECT_GE(store->Stat("used_bytes"), static_cast<double>(before));
  EXPECT_TRUE(store->log().Has(LogLevel::kWarning, "cannot be removed"));
  EXPECT_TRUE(store->log().Has(LogLevel::kWarning, "Operation not permitted"));
  fs_.Clear();
  clock_.Advance(Collector::kAtLeastEvery);
  ASSERT_TRUE(DumpBlock(*store, kSmall, MakeId(2, 0), 1).ok());
  ASSERT_TRUE(AwaitCycles(*store, 2));
  EXPECT_LE(DiskBytes(Root()), before / 2);
}

// The oldest cannot be removed: younger ones go in their place, in the same cycle.
TEST_F(PosixReclaim, F14_OthersGoInThePlaceOfWhatIsStuck) {
  Fill(Unlimited(), kBlocks);
  std::set<std::string> stuck;
  for (std::uint64_t i = 0; i < kBlocks / 2; ++i) {
    stuck.insert(BlockPath(PosixConfig().label, i).filename());
  }
  fs_.Set([&stuck](const Call& call) {
    const bool fails = call.op == Op::kUnlink && stuck.contains(std::string(call.path));
    return fails ? -EACCES : HookedFs::kGoOn;
  });
  const std::uint64_t before = DiskBytes(Root());
  auto store = PosixStore::Open(Limited(before * 3 / 4));
  ASSERT_TRUE(AwaitCycles(*store, 1));
  EXPECT_LE(DiskBytes(Root()), before * 3 / 4);
  for (std::uint64_t i = 0; i < kBlocks / 2; ++i) {
    EXPECT_EQ(BlockProblem(*store, kSmall, MakeId(1, i), 1), "");
  }
}

TEST_F(PosixReclaim, C02_TwoCollectorsAndSomebodyWhoRemoves) {
  constexpr std::uint64_t kCapacity = 1U << 20;
  Random random;
  auto first = PosixStore::Open(Limited(kCapacity));
  auto second = PosixStore::Open(Limited(kCapacity));
  {
    const Background remover([this] {
      for (const std::string& file : FilesBelow(Folder())) {
        if (IsBlock(stdfs::path(file).filename().string())) ::unlink((Folder() / file).c_str());
      }
      clock_.Advance(milliseconds(500));
    });
    for (std::uint64_t i = 0; i < 300; ++i) {
      PosixStore& store = random.OneIn(2) ? *first : *second;
      ASSERT_TRUE(DumpBlock(store, kSmall, MakeId(1, i), 1).ok());
    }
  }
  for (const auto* store : {&first, &second}) {
    EXPECT_EQ((*store)->Stat("reclaim_failures"), 0) << "what is gone is done";
  }
}

TEST_F(PosixReclaim, C01_LoadsDuringReclaimGiveTheRightBytesOrNone) {
  constexpr std::uint64_t kCapacity = 1U << 20;
  auto store = PosixStore::Open(Limited(kCapacity));
  std::atomic<std::uint64_t> newest{0};
  std::atomic<int> found{0};
  std::atomic<int> absent{0};
  Random random;
  {
    Random own = random.Fork();
    const Background reader([&, own]() mutable {
      const std::uint64_t last = newest.load();
      const std::uint64_t i = own.Between(last > 40 ? last - 40 : 0, last);
      LoadBatch load(kSmall);
      load.AddBlock(MakeId(1, i));
      const Status status = Finish(*store, load);
      if (status.code == Code::kNotFound) {
        ++absent;
        return;
      }
      ++found;
      for (std::size_t shard = 0; shard < load.size(); ++shard) {
        ASSERT_EQ(load.Problem(shard, i), "");
      }
    });
    for (std::uint64_t i = 0; i < 400; ++i) {
      ASSERT_TRUE(DumpBlock(*store, kSmall, MakeId(1, i), i).ok());
      newest.store(i);
      clock_.Advance(milliseconds(200));
    }
  }
  EXPECT_GT(found, 0);
  EXPECT_GT(absent, 0);
  EXPECT_GT(store->Stat("reclaimed_blocks"), 0);
}

TEST_F(PosixReclaim, WhatIsNotOursStays) {
  const stdfs::path outside = Root() / "outside";  // no namespace: a folder that is foreign
  stdfs::create_directories(outside / "deep" / "er");
  std::ofstream(outside / "deep" / "er" / "file") << std::string(300'000, 'x');
  Fill(Unlimited(), kBlocks);
  const stdfs::path folder = BlockPath(PosixConfig().label, 0).parent_path();
  const std::string prefix = folder.filename();
  const std::string id = prefix + std::string(29, '0');
  std::vector<stdfs::path> kept;
  for (const char* name : {"foreign", ".hidden"}) {
    kept.push_back(folder / name);
    std::ofstream(kept.back()) << "mine";
    MakeOld(kept.back(), 1'000'000);
  }
  kept.push_back(folder / id);  // a link of a block's name, to a file elsewhere
  stdfs::create_symlink(outside / "deep" / "er" / "file", kept.back());
  kept.push_back(folder / (prefix + std::string(29, '1')));  // a folder of a block's name
  stdfs::create_directory(kept.back());
  MakeOld(kept.back(), 1'000'000);
  const char* unused = stdfs::exists(Folder() / "abc") ? "abd" : "abc";
  kept.push_back(Folder() / unused);  // a link in the place of a prefix folder
  stdfs::create_directory_symlink(folder, kept.back());
  kept.push_back(outside / "deep" / "er" / "file");
  // A namespace of a newer format, with a block's name in it.
  const stdfs::path newer = Root() / "newer-0123456789abcdef";
  stdfs::create_directories(newer / prefix);
  std::ofstream(newer / kRootFileName) << "ucmstore 2\nwho: knows\n";
  std::ofstream(newer / prefix / id) << std::string(100'000, 'x');
  kept.push_back(newer / prefix / id);
  MakeOld(kept.back(), 1'000'000);
  // What ours are besides blocks: they go by their age.
  std::vector<stdfs::path> gone = {folder / (id + ".corrupt"),
                                   folder / (id + ".0123456789abcdef.moved"),
                                   folder / (id + ".0123456789abcdef.1.activated")};
  for (const stdfs::path& path : gone) {
    std::ofstream(path) << std::string(10'000, 'x');
    MakeOld(path, 1'000'000);
  }
  const std::uint64_t before = DiskBytes(Root());
  auto store = PosixStore::Open(Limited(before * 2 / 3));
  ASSERT_TRUE(AwaitCycles(*store, 1));
  EXPECT_LE(DiskBytes(Root()), before * 2 / 3);
  EXPECT_GE(store->Stat("used_bytes"), 400'000) << "counted all the same";
  for (const stdfs::path& path : kept)
    EXPECT_TRUE(stdfs::exists(stdfs::symlink_status(path))) << path;
  for (const stdfs::path& path : gone) EXPECT_FALSE(stdfs::exists(path)) << path;
}

TEST_F(PosixReclaim, WhatALiveWriterWritesStaysHoweverOld) {
  auto writer = PosixStore::Open(Unlimited());
  ASSERT_TRUE(DumpShard(*writer, kSmall, MakeId(2, 0), 0, 5).ok());
  const std::vector<std::string> activated = FilesBelow(Root(), ".activated");
  ASSERT_EQ(activated.size(), 1U);
  MakeOld(Root() / activated[0], 1'000'000);
  Fill(Unlimited(), kBlocks);
  auto store = PosixStore::Open(Limited(DiskBytes(Root()) / 2));
  ASSERT_TRUE(AwaitCycles(*store, 1));
  for (std::uint32_t i = 1; i < 4; ++i) {
    ASSERT_TRUE(DumpShard(*writer, kSmall, MakeId(2, 0), i, 5).ok());
  }
  EXPECT_EQ(BlockProblem(*store, kSmall, MakeId(2, 0), 5), "");
}

// Foreign files alone are more than the limit: said, with numbers, and no harm is done.
TEST_F(PosixReclaim, ForeignBytesAboveTheLimitAreSaid) {
  std::ofstream(Root() / "foreign") << std::string(1'000'000, 'x');
  Fill(Unlimited(), 5);
  auto store = PosixStore::Open(Limited(500'000));
  ASSERT_TRUE(AwaitCycles(*store, 1));
  EXPECT_TRUE(store->log().Has(LogLevel::kWarning, "of a capacity of 500000"));
  EXPECT_TRUE(stdfs::exists(Root() / "foreign"));
}

// Killed before any one call of a cycle; then the next one comes.
TEST_F(PosixReclaim, E01_AKilledCollectorIsFollowedByTheNext) {
  Fill(Unlimited(), kBlocks);
  const std::uint64_t capacity = DiskBytes(Root()) / 2;
  int killed = 0;
  for (std::uint64_t nth = 0; nth < 4000; nth += 1 + nth / 8) {
    Children children;
    children.Start([&]() -> std::string {
      PosixConfig config = Limited(capacity);
      fs_.Set([nth](const Call& call) {
        if (call.nth == nth) ::kill(::getpid(), SIGKILL);
        return HookedFs::kGoOn;
      });
      auto store = PosixStore::Open(config);
      return AwaitCycles(*store, 1) ? "" : "no cycle";
    });
    const std::vector<int> codes = children.Finish();
    ASSERT_TRUE(codes[0] == 0 || codes[0] == 128 + SIGKILL) << codes[0];
    if (codes[0] == 0) break;
    ++killed;
    const std::set<std::uint64_t> left = Left(kBlocks);
    for (std::uint64_t i = kBlocks * 2 / 3; i < kBlocks; ++i) {
      ASSERT_TRUE(left.contains(i)) << "only the oldest go, wherever it dies";
    }
  }
  EXPECT_GT(killed, 20);
  auto store = PosixStore::Open(Limited(capacity));
  ASSERT_TRUE(AwaitCycles(*store, 1));
  EXPECT_LE(DiskBytes(Root()), capacity);
  for (const std::uint64_t i : Left(kBlocks)) {
    EXPECT_EQ(BlockProblem(*store, kSmall, MakeId(1, i), 1), "");
  }
}

// Any one call of a cycle fails once: the next cycle does it.
TEST_F(PosixReclaim, ACycleThatFailsAnywhereIsBegunAnew) {
  const std::size_t descriptors = OpenDescriptors();
  for (const int error : {-EIO, -EMFILE, -ENOLCK}) {
    for (std::uint64_t nth = 0; nth < 2000; nth += 1 + nth / 3) {
      SCOPED_TRACE("call " + std::to_string(nth) + ", error " + std::to_string(error));
      Fill(Unlimited(), 20);
      const std::uint64_t capacity = DiskBytes(Root()) / 2;
      Status status;
      std::atomic<bool> reached{false};
      fs_.Set([&](const Call& call) {
        if (call.nth != nth) return HookedFs::kGoOn;
        reached.store(true);
        return error;
      });
      PosixConfig config = Limited(capacity);
      config.options["io"] = std::string("buffered");
      auto store = PosixStore::Try(config, &status);
      if (status.ok()) {
        // Done, or ended early: then a dump begins it again.
        std::uint64_t next = 0;
        EXPECT_TRUE(Eventually([&] {
          clock_.Advance(Collector::kBackOff);
          if (DiskBytes(Root()) <= capacity) return true;
          (void)DumpBlock(*store, kSmall, MakeId(2, next++), 1);
          return false;
        }));
      }
      store.reset();
      fs_.Clear();
      stdfs::remove_all(Folder());
      if (!reached) break;
    }
  }
  EXPECT_EQ(OpenDescriptors(), descriptors);
}

}  // namespace
}  // namespace ucmstore::test
