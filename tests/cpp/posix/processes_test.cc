// SPDX-License-Identifier: Apache-2.0
//
// Several processes on one folder, and the limits that the system sets to one.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "posix/children.h"
#include "posix/posix_fixture.h"
#include "support/random.h"

namespace ucmstore::test {
namespace {

TEST_F(PosixFaults, B01_EightProcessesDumpTheSameBlocks) {
  constexpr std::uint64_t kRounds = 12;
  constexpr std::uint64_t kIds = 50;
  Children children;
  for (std::uint64_t child = 0; child < 8; ++child) {
    children.Start([&, child]() -> std::string {
      PosixConfig config = Config();
      config.fs = &FileSystem::Real();
      auto store = PosixStore::Open(config);
      Random random(child);
      for (std::uint64_t round = 0; round < kRounds; ++round) {
        DumpBatch dump(kSmall);
        const std::uint64_t nonce = NextNonce();
        for (std::uint64_t skew = random.Between(0, kIds), i = 0; i < kIds; ++i) {
          dump.AddBlock(MakeId(round, (i + skew) % kIds), nonce);
        }
        const Status status = Finish(*store, dump);
        if (!status.ok()) return status.message;
      }
      return "";
    });
  }
  for (const int code : children.Finish()) EXPECT_EQ(code, 0);
  EXPECT_EQ(Leftovers(), 0U);
  EXPECT_TRUE(FilesBelow(Folder() / "writers").empty()) << "closed stores leave no mark";
  auto store = PosixStore::Open(Config());
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    for (std::uint64_t i = 0; i < kIds; ++i) {
      ASSERT_EQ(BlockProblem(*store, kSmall, MakeId(round, i)), "");
    }
  }
  EXPECT_EQ(FilesBelow(Folder()).size(), 1 + kRounds * kIds);
}

TEST_F(PosixFaults, B04_AFreshFolderCommitsAllOfItsFirstDump) {
  auto store = PosixStore::Open(Config());
  DumpBatch dump(kSmall);
  for (std::uint64_t i = 0; i < 7; ++i) dump.AddBlock(MakeId(1, i), 9);
  ASSERT_TRUE(Finish(*store, dump).ok());
  Children children;
  children.Start([&]() -> std::string {
    PosixConfig config = Config();
    config.fs = &FileSystem::Real();
    auto second = PosixStore::Open(config);
    for (std::uint64_t i = 0; i < 7; ++i) {
      if (!IsPresent(*second, MakeId(1, i))) return "absent";
      std::string problem = BlockProblem(*second, kSmall, MakeId(1, i), 9);
      if (!problem.empty()) return problem;
    }
    return "";
  });
  store.reset();
  EXPECT_EQ(children.Finish(), std::vector<int>{0});
}

TEST_F(PosixFaults, B07_AShortWriteLeavesNothing) {
  Children children;
  children.Start([&]() -> std::string {
    auto store = PosixStore::Open(Config());
    if (!DumpBlock(*store, kSmall, MakeId(1, 0), 1).ok()) return "the first dump failed";
    const std::size_t before = OpenDescriptors();
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit half{.rlim_cur = 16384, .rlim_max = RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &half);
    for (std::uint64_t i = 1; i <= 200; ++i) {
      const Status status = DumpBlock(*store, kSmall, MakeId(1, i), 1);
      if (status.code != Code::kLimit) return "dump " + std::to_string(i) + ": " + status.message;
      if (status.text().find("RLIMIT_FSIZE") == std::string_view::npos) return status.message;
    }
    if (OpenDescriptors() != before) return "descriptors leak";
    const rlimit none{.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &none);
    if (!DumpBlock(*store, kSmall, MakeId(1, 1), 2).ok()) return "it does not recover";
    return BlockProblem(*store, kSmall, MakeId(1, 1), 2);
  });
  EXPECT_EQ(children.Finish(), std::vector<int>{0});
  EXPECT_EQ(Leftovers(), 0U);
}

TEST_F(PosixFaults, G01_AnotherProcessFindsWhatWasDumped) {
  Children children;
  children.Start([&]() -> std::string {
    auto store = PosixStore::Open(Config());
    DumpBatch dump(kSmall);
    for (std::uint64_t i = 0; i < 100; ++i) dump.AddBlock(MakeId(1, i), 77);
    return Finish(*store, dump).message;
  });
  ASSERT_EQ(children.Finish(), std::vector<int>{0});
  auto store = PosixStore::Open(Config());
  for (std::uint64_t i = 0; i < 100; ++i) {
    ASSERT_EQ(BlockProblem(*store, kSmall, MakeId(1, i), 77), "");
  }
}

TEST_F(PosixFaults, G06_AStoppedWriterIsAliveAndHarmless) {
  const BlockId id = MakeId(1, 1);
  Children children;
  const pid_t writer = children.Start([&]() -> std::string {
    HookedFs fs;
    PosixConfig config = Config();
    config.fs = &fs;
    auto store = PosixStore::Open(config);
    std::atomic<bool> created{false};
    fs.Set([&created](const Call& call) {
      if (call.op == Op::kOpen && call.path.ends_with(".activated")) created = true;
      if (call.op == Op::kWrite && created.exchange(false)) ::raise(SIGSTOP);
      return HookedFs::kGoOn;
    });
    return DumpBlock(*store, kSmall, id, 1).message;
  });
  Children::AwaitStop(writer);
  ASSERT_EQ(Leftovers(), 1U);
  {
    auto store = PosixStore::Open(Config());
    EXPECT_TRUE(DumpBlock(*store, kSmall, id, 2).ok());
    EXPECT_EQ(BlockProblem(*store, kSmall, id, 2), "");
    EXPECT_EQ(Leftovers(), 1U) << "a stopped writer's file was taken";
  }
  ::kill(writer, SIGCONT);
  EXPECT_EQ(children.Finish(), std::vector<int>{0});
  auto store = PosixStore::Open(Config());
  EXPECT_EQ(BlockProblem(*store, kSmall, id), "");
  EXPECT_EQ(Leftovers(), 0U);
}

TEST_F(PosixFaults, J05_TooFewDescriptorsIsALimitWithItsNameAndPasses) {
  Children children;
  children.Start([&]() -> std::string {
    PosixConfig config = Config();
    config.workers = 128;
    auto store = PosixStore::Open(config);
    DumpBatch dump(kSmall);
    for (std::uint64_t i = 0; i < 128; ++i) dump.AddBlock(MakeId(1, i), 4);
    if (const Status status = Finish(*store, dump); !status.ok()) return status.message;
    const rlimit few{.rlim_cur = OpenDescriptors() + 2, .rlim_max = 1024};
    ::setrlimit(RLIMIT_NOFILE, &few);
    // Every load holds its descriptor until all have tried, so some must fail.
    std::atomic<int> opened{0};
    std::atomic<int> limited{0};
    fs_.Set([&](const Call& call) {
      if (call.op == Op::kRead) {
        ++opened;
        while (opened.load() + limited.load() < 128 && limited.load() < 64) {
          std::this_thread::yield();
        }
      }
      return HookedFs::kGoOn;
    });
    LoadBatch load(kSmall);
    for (std::uint64_t i = 0; i < 128; ++i) load.Add(MakeId(1, i), 0);
    TaskId task = Submit(*store, load);
    bool done = false;
    while (!done) {
      std::size_t failed = 0;
      for (std::size_t i = 0; i < load.size(); ++i) failed += load.result(i).code == Code::kLimit;
      limited = static_cast<int>(failed);
      if (!store->Check(task, &done).ok()) return "Check failed";
      std::this_thread::yield();
    }
    const Status status = store->Wait(task, kPatienceMs);
    if (status.code != Code::kLimit) return std::string("no limit was hit: ") + status.message;
    if (status.text().find("RLIMIT_NOFILE") == std::string_view::npos) return status.message;
    fs_.Clear();
    for (std::uint64_t i = 0; i < 128; ++i) {
      std::string problem = BlockProblem(*store, kSmall, MakeId(1, i), 4);
      if (!problem.empty()) return "afterwards: " + problem;
    }
    return "";
  });
  EXPECT_EQ(children.Finish(), std::vector<int>{0});
}

TEST_F(PosixFaults, K01_FoldersFillEvenly) {
  PosixConfig config = Config();
  config.geometry = {.shard_size = 64, .shards_per_block = 1};
  config.options["prefix_digits"] = std::int64_t{1};
  config.options["io"] = std::string("buffered");
  auto store = PosixStore::Open(config);
  DumpBatch dump(config.geometry);
  for (std::uint64_t i = 0; i < 1600; ++i) dump.AddBlock(MakeId(1, i), 1);
  ASSERT_TRUE(Finish(*store, dump).ok());
  std::size_t folders = 0;
  for (const auto& folder : stdfs::directory_iterator(Folder())) {
    if (!IsPrefixFolder(folder.path().filename().string(), 1)) continue;
    ++folders;
    EXPECT_LT(FilesBelow(folder.path()).size(), 200U);
  }
  EXPECT_EQ(folders, 16U);
  // An existing namespace keeps its digits, whatever is asked for.
  store.reset();
  config.options["prefix_digits"] = std::int64_t{4};
  store = PosixStore::Open(config);
  EXPECT_EQ(BlockProblem(*store, config.geometry, MakeId(1, 7)), "");
}

TEST_F(PosixFaults, S06_SixteenProcessesOpenAFreshRootAtOnce) {
  for (int round = 0; round < 5; ++round) {
    stdfs::remove_all(dir_.path() / "fresh");
    int start[2];
    ASSERT_EQ(::pipe(start), 0);
    Children children;
    for (int i = 0; i < 16; ++i) {
      children.Start([&]() -> std::string {
        ::close(start[1]);
        char byte;
        (void)!::read(start[0], &byte, 1);  // ends when the parent closes its end
        PosixConfig config = Config();
        config.roots = {(dir_.path() / "fresh").string()};
        config.fs = &FileSystem::Real();
        Status status;
        auto store = PosixStore::Try(config, &status);
        if (!status.ok()) return status.message;
        return DumpBlock(*store, kSmall, MakeId(1, 1), 1).message;
      });
    }
    ::close(start[0]);
    ::close(start[1]);
    for (const int code : children.Finish()) EXPECT_EQ(code, 0);
    const stdfs::path folder = dir_.path() / "fresh" / PosixConfig().label;
    EXPECT_EQ(FilesBelow(folder).size(), 2U) << "UCMSTORE and one block";
  }
}

}  // namespace
}  // namespace ucmstore::test
