// SPDX-License-Identifier: Apache-2.0
//
// Faults that file stores have really had, each under its id: blocks half-written, vanished, torn or
// foreign, folders removed under a store's feet, several processes on one folder.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "io/hooked_fs.h"
#include "posix/children.h"
#include "posix/posix_store.h"
#include "store/posix/names.h"
#include "support/temp_dir.h"

namespace ucmstore::test {
namespace {

namespace stdfs = std::filesystem;
constexpr Geometry kSmall{.shard_size = 8192, .shards_per_block = 4};

class PosixFaults : public ::testing::Test {
 protected:
  PosixConfig Config() {
    PosixConfig config;
    config.roots = {dir_.string()};
    config.fs = &fs_;
    return config;
  }
  [[nodiscard]] stdfs::path Folder() const { return dir_.path() / PosixConfig().label; }
  [[nodiscard]] stdfs::path PathOf(const BlockId& id) const {
    return Folder() / BlockName(id, 3).c_str();
  }
  [[nodiscard]] std::size_t Leftovers() const { return FilesBelow(dir_.path(), ".activated").size(); }

  static void FlipByte(const stdfs::path& path, std::streamoff at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const auto byte = static_cast<char>(file.get() ^ 1);
    file.seekp(at);
    file.put(byte);
    ASSERT_TRUE(file.good()) << path;
  }

  TempDir dir_;
  HookedFs fs_;
};

std::size_t OpenDescriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : stdfs::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

// A gate that calls at a pause point wait at until it is opened.
class Gate {
 public:
  void Wait() {
    waiting_.fetch_add(1);
    waiting_.notify_all();
    open_.wait(false);
  }
  void AwaitOne() const { waiting_.wait(0); }
  void Open() {
    open_.store(true);
    open_.notify_all();
  }

 private:
  std::atomic<int> waiting_{0};
  std::atomic<bool> open_{false};
};

TEST_F(PosixFaults, A02_ABlockBeingWrittenIsAMissUntilItIsWhole) {
  const BlockId id = MakeId(1, 1);
  for (const Op pause : {Op::kWrite, Op::kClose, Op::kRename}) {
    auto writer = PosixStore::Open(Config());
    PosixConfig other = Config();
    other.fs = &FileSystem::Real();
    auto reader = PosixStore::Open(other);
    Gate gate;
    std::atomic<bool> armed{true};
    fs_.Set([&](const Call& call) {
      if (call.op == pause && armed.exchange(false)) gate.Wait();
      return HookedFs::kGoOn;
    });
    DumpBatch dump(kSmall);
    dump.AddBlock(id, 5);
    const TaskId task = Submit(*writer, dump);
    gate.AwaitOne();
    for (int i = 0; i < 20; ++i) {
      EXPECT_FALSE(IsPresent(*reader, id));
      EXPECT_EQ(AbsenceProblem(*reader, kSmall, id), "");
    }
    gate.Open();
    EXPECT_TRUE(writer->Wait(task, kPatienceMs).ok());
    EXPECT_TRUE(IsPresent(*reader, id));
    EXPECT_EQ(BlockProblem(*reader, kSmall, id, 5), "");
    fs_.Clear();
    stdfs::remove(PathOf(id));
  }
}

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

TEST_F(PosixFaults, B03_ARemovedFolderIsMadeAgainOrNamed) {
  const BlockId id = MakeId(1, 1);
  auto store = PosixStore::Open(Config());
  ASSERT_TRUE(DumpBlock(*store, kSmall, id, 1).ok());
  stdfs::remove_all(PathOf(id).parent_path());
  EXPECT_FALSE(IsPresent(*store, id));
  EXPECT_TRUE(DumpBlock(*store, kSmall, id, 2).ok());
  EXPECT_EQ(BlockProblem(*store, kSmall, id, 2), "");
  // Between the last byte and the commit.
  stdfs::remove_all(PathOf(id).parent_path());
  fs_.Set([&](const Call& call) {
    if (call.op == Op::kRename) stdfs::remove_all(PathOf(id).parent_path());
    return HookedFs::kGoOn;
  });
  const Status status = DumpBlock(*store, kSmall, id, 3);
  fs_.Clear();
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.text().find("activated"), std::string_view::npos) << status.message;
  EXPECT_NE(status.text().find("No such file"), std::string_view::npos) << status.message;
  EXPECT_TRUE(DumpBlock(*store, kSmall, id, 4).ok());
  EXPECT_EQ(BlockProblem(*store, kSmall, id, 4), "");
  // The whole namespace: nothing to go back to, but words, and no crash.
  stdfs::remove_all(Folder());
  EXPECT_FALSE(IsPresent(*store, id));
  const Status gone = DumpBlock(*store, kSmall, id, 5);
  EXPECT_FALSE(gone.ok());
  EXPECT_NE(gone.text().find(Folder().string()), std::string_view::npos) << gone.message;
}

TEST_F(PosixFaults, B03_AShardThatVanishedWithItsFileAbortsTheBlock) {
  const BlockId id = MakeId(1, 1);
  auto store = PosixStore::Open(Config());
  ASSERT_TRUE(DumpShard(*store, kSmall, id, 0, 1).ok());
  ASSERT_EQ(Leftovers(), 1U);
  stdfs::remove_all(PathOf(id).parent_path());
  const Status status = DumpShard(*store, kSmall, id, 1, 1);
  EXPECT_EQ(status.code, Code::kAborted) << status.message;
  EXPECT_TRUE(DumpBlock(*store, kSmall, id, 2).ok());
  EXPECT_EQ(BlockProblem(*store, kSmall, id, 2), "");
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

TEST_F(PosixFaults, C01_OneMissingFileIsOneMiss) {
  auto store = PosixStore::Open(Config());
  std::vector<BlockId> ids;
  DumpBatch dump(kSmall);
  for (std::uint64_t i = 0; i < 10; ++i) dump.AddBlock(ids.emplace_back(MakeId(1, i)), 3);
  ASSERT_TRUE(Finish(*store, dump).ok());
  ASSERT_EQ(Presence(*store, ids), "1111111111");
  stdfs::remove(PathOf(ids[4]));
  LoadBatch load(kSmall);
  for (const BlockId& id : ids) load.AddBlock(id);
  EXPECT_EQ(Finish(*store, load).code, Code::kNotFound);
  for (std::size_t i = 0; i < load.size(); ++i) {
    if (i / 4 == 4) {
      EXPECT_EQ(load.result(i).code, Code::kNotFound);
    } else {
      EXPECT_EQ(load.Problem(i, 3), "");
    }
  }
  EXPECT_EQ(Presence(*store, ids), "1111011111");
}

TEST_F(PosixFaults, D02_AFailedLoadIsNotRememberedAsAHit) {
  auto store = PosixStore::Open(Config());
  const BlockId id = MakeId(1, 1);
  ASSERT_TRUE(DumpBlock(*store, kSmall, id, 1).ok());
  ASSERT_TRUE(IsPresent(*store, id));
  stdfs::remove(PathOf(id));
  EXPECT_EQ(AbsenceProblem(*store, kSmall, id), "");
  EXPECT_FALSE(IsPresent(*store, id));
  ASSERT_TRUE(DumpBlock(*store, kSmall, id, 2).ok());
  EXPECT_EQ(BlockProblem(*store, kSmall, id, 2), "");
}

TEST_F(PosixFaults, F01_NoCapacityIsSaidAtOpen) {
  auto store = PosixStore::Open(Config());
  EXPECT_TRUE(store->log().Has(LogLevel::kWarning, "no capacity"));
  store.reset();
  PosixConfig config = Config();
  config.options["capacity"] = "2TiB";
  store = PosixStore::Open(config);
  EXPECT_TRUE(store->log().Has(LogLevel::kWarning, "does not reclaim yet"));
}

TEST_F(PosixFaults, F11_AVisibleBlockIsNotWrittenAgain) {
  auto store = PosixStore::Open(Config());
  const BlockId id = MakeId(1, 1);
  ASSERT_TRUE(DumpBlock(*store, kSmall, id, 1).ok());
  FileStat before;
  ASSERT_EQ(fs_.StatAt(AT_FDCWD, PathOf(id).c_str(), &before), 0);
  std::atomic<int> writes{0};
  fs_.Set([&writes](const Call& call) {
    writes += call.op == Op::kWrite ? 1 : 0;
    return HookedFs::kGoOn;
  });
  for (std::uint64_t i = 0; i < 100; ++i) ASSERT_TRUE(DumpBlock(*store, kSmall, id, 2 + i).ok());
  EXPECT_EQ(writes.load(), 0);
  FileStat after;
  ASSERT_EQ(fs_.StatAt(AT_FDCWD, PathOf(id).c_str(), &after), 0);
  EXPECT_TRUE(after.SameFile(before));
  EXPECT_EQ(after.mtime_ns, before.mtime_ns);
  EXPECT_EQ(BlockProblem(*store, kSmall, id, 1), "");
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

TEST_F(PosixFaults, Q01_HostileFilesAreData) {
  auto store = PosixStore::Open(Config());
  const std::string bomb = "cos\nsystem\n(S'touch /tmp/ucmstore-was-here'\ntR.";
  std::vector<BlockId> ids;
  for (std::uint64_t i = 0; i < 6; ++i) ids.push_back(MakeId(1, i));
  for (const BlockId& id : ids) stdfs::create_directories(PathOf(id).parent_path());
  std::ofstream(PathOf(ids[0])) << bomb;
  std::ofstream(PathOf(ids[1])) << bomb << std::string(4 * 8192 + 4096 - bomb.size(), 'x');
  stdfs::create_symlink("/etc/passwd", PathOf(ids[2]));
  ASSERT_EQ(::mkfifo(PathOf(ids[3]).c_str(), 0600), 0);
  stdfs::create_directory(PathOf(ids[4]));
  std::ofstream(Folder() / "evil.pkl") << bomb;
  std::ofstream(Folder() / "writers" / "evil") << bomb;
  // The right size is all that a lookup can see.
  EXPECT_EQ(Presence(*store, ids), "010000");
  for (const BlockId& id : ids) {
    LoadBatch load(kSmall);
    load.AddBlock(id);
    const Status status = Finish(*store, load);
    EXPECT_EQ(status.code, id == ids[1] ? Code::kCorruption : Code::kNotFound) << status.message;
  }
  EXPECT_EQ(Presence(*store, ids), "000000") << "what is no block was set aside";
  for (const BlockId& id : ids) {
    const Status status = DumpBlock(*store, kSmall, id, 1);
    if (id == ids[4]) {
      EXPECT_FALSE(status.ok());
      EXPECT_NE(status.text().find("Is a directory"), std::string_view::npos) << status.message;
    } else {
      EXPECT_TRUE(status.ok()) << status.message;
      EXPECT_EQ(BlockProblem(*store, kSmall, id, 1), "");
    }
  }
  EXPECT_TRUE(stdfs::exists("/etc/passwd"));
  EXPECT_FALSE(stdfs::exists("/tmp/ucmstore-was-here"));
  EXPECT_EQ(Leftovers(), 0U);
}

TEST_F(PosixFaults, Q02_ALabelCannotLeaveTheRoot) {
  std::size_t before = FilesBelow(dir_.path()).size();
  for (const std::string& label : {std::string(".."), std::string("."), std::string(""),
                                   std::string("../x"), std::string("/abs"), std::string("a/../../b"),
                                   std::string(".hidden"), std::string("a\nb"), std::string(5000, 'a'),
                                   std::string("caf\xc3\xa9")}) {
    PosixConfig config = Config();
    config.label = label;
    Status status;
    (void)PosixStore::Try(config, &status);
    EXPECT_EQ(status.code, Code::kInvalidArgument) << label << ": " << status.message;
  }
  EXPECT_EQ(FilesBelow(dir_.path()).size(), before);
  // A link in the place of the namespace is not followed.
  TempDir elsewhere;
  stdfs::create_directory_symlink(elsewhere.path(), Folder());
  Status status;
  (void)PosixStore::Try(Config(), &status);
  EXPECT_EQ(status.code, Code::kInvalidArgument) << status.message;
  EXPECT_TRUE(stdfs::is_empty(elsewhere.path()));
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

TEST_F(PosixFaults, S07_OneFlakyReadIsReadAgain) {
  auto store = PosixStore::Open(Config());
  const BlockId id = MakeId(1, 1);
  ASSERT_TRUE(DumpBlock(*store, kSmall, id, 1).ok());
  std::atomic<bool> flip{true};
  fs_.SetAfterRead([&flip](const iovec* pieces, int, std::uint64_t) {
    if (flip.exchange(false)) static_cast<char*>(pieces[0].iov_base)[100] ^= 4;
  });
  EXPECT_EQ(BlockProblem(*store, kSmall, id, 1), "");
  EXPECT_EQ(store->Stat("rereads"), 1);
  EXPECT_EQ(store->Stat("set_aside_blocks"), 0);
  EXPECT_TRUE(IsPresent(*store, id));
}

TEST_F(PosixFaults, S07_WhatWasMovedIsWhatWasJudged) {
  auto store = PosixStore::Open(Config());
  PosixConfig plain = Config();
  plain.fs = &FileSystem::Real();
  auto other = PosixStore::Open(plain);
  const BlockId id = MakeId(1, 1);
  ASSERT_TRUE(DumpBlock(*store, kSmall, id, 1).ok());
  FlipByte(PathOf(id), 5000);
  std::atomic<bool> once{true};
  fs_.Set([&](const Call& call) {
    if (call.op == Op::kRename && call.path.ends_with(".moved") && once.exchange(false)) {
      stdfs::remove(PathOf(id));  // and a good one comes, between the verdict and the move
      EXPECT_TRUE(DumpBlock(*other, kSmall, id, 2).ok());
    }
    return HookedFs::kGoOn;
  });
  LoadBatch load(kSmall);
  load.AddBlock(id);
  EXPECT_EQ(Finish(*store, load).code, Code::kCorruption);
  fs_.Clear();
  EXPECT_EQ(store->Stat("put_back_blocks"), 1);
  EXPECT_EQ(store->Stat("set_aside_blocks"), 0);
  EXPECT_EQ(BlockProblem(*store, kSmall, id, 2), "");
  EXPECT_TRUE(FilesBelow(dir_.path(), ".corrupt").empty());
  EXPECT_TRUE(FilesBelow(dir_.path(), ".moved").empty());
}

TEST_F(PosixFaults, S07_AStillNewerBlockIsNotReplacedByPuttingBack) {
  auto store = PosixStore::Open(Config());
  PosixConfig plain = Config();
  plain.fs = &FileSystem::Real();
  auto other = PosixStore::Open(plain);
  const BlockId id = MakeId(1, 1);
  ASSERT_TRUE(DumpBlock(*store, kSmall, id, 1).ok());
  FlipByte(PathOf(id), 5000);
  fs_.Set([&](const Call& call) {
    if (call.op == Op::kRename && call.path.ends_with(".moved")) {
      stdfs::remove(PathOf(id));
      EXPECT_TRUE(DumpBlock(*other, kSmall, id, 2).ok());
    }
    if (call.op == Op::kRenameNoReplace) {
      EXPECT_TRUE(DumpBlock(*other, kSmall, id, 3).ok());
    }
    return HookedFs::kGoOn;
  });
  LoadBatch load(kSmall);
  load.AddBlock(id);
  EXPECT_EQ(Finish(*store, load).code, Code::kCorruption);
  fs_.Clear();
  EXPECT_EQ(BlockProblem(*store, kSmall, id, 3), "");
  EXPECT_EQ(FilesBelow(Folder()).size(), 4U) << "UCMSTORE, the block, two marks";
}

TEST_F(PosixFaults, S07_CorruptTwiceIsSetAsideAndCanBeDumpedAgain) {
  auto store = PosixStore::Open(Config());
  const BlockId id = MakeId(1, 1);
  const std::vector<std::streamoff> places{0, 8191, 3 * 8192 + 17, 4 * 8192 + 3, 4 * 8192 + 20,
                                           4 * 8192 + 4095};
  for (const std::streamoff at : places) {
    ASSERT_TRUE(DumpBlock(*store, kSmall, id, 1).ok());
    FlipByte(PathOf(id), at);
    LoadBatch load(kSmall);
    load.AddBlock(id);
    const Status status = Finish(*store, load);
    EXPECT_EQ(status.code, Code::kCorruption) << "byte " << at << ": " << status.message;
    EXPECT_NE(status.text().find("set aside"), std::string_view::npos) << status.message;
    EXPECT_FALSE(IsPresent(*store, id));
    EXPECT_EQ(FilesBelow(dir_.path(), ".corrupt").size(), 1U) << "one for each block, not more";
    if (at < 4 * 8192) {  // the other shards were good, and came
      for (std::uint32_t i = 0; i < 4; ++i) {
        const bool bad = i == static_cast<std::uint32_t>(at / 8192);
        EXPECT_EQ(load.result(i).code, bad ? Code::kCorruption : Code::kOk);
      }
    }
  }
}

// A block of another id, or of another namespace, under this name is corrupt, however whole it is.
TEST_F(PosixFaults, A_AnotherBlocksBytesAreNeverGiven) {
  auto store = PosixStore::Open(Config());
  const BlockId one = MakeId(1, 1);
  const BlockId two = MakeId(1, 2);
  ASSERT_TRUE(DumpBlock(*store, kSmall, one, 1).ok());
  ASSERT_TRUE(DumpBlock(*store, kSmall, two, 2).ok());
  stdfs::copy_file(PathOf(one), PathOf(two), stdfs::copy_options::overwrite_existing);
  LoadBatch load(kSmall);
  load.AddBlock(two);
  const Status status = Finish(*store, load);
  EXPECT_EQ(status.code, Code::kCorruption);
  EXPECT_NE(status.text().find("holds block"), std::string_view::npos) << status.message;
  PosixConfig config = Config();
  config.label = "other-0123456789abcdef";
  config.fingerprint = 8;
  auto other = PosixStore::Open(config);
  ASSERT_TRUE(DumpBlock(*other, kSmall, one, 3).ok());
  stdfs::copy_file(dir_.path() / config.label / BlockName(one, 3).c_str(), PathOf(one),
                   stdfs::copy_options::overwrite_existing);
  LoadBatch foreign(kSmall);
  foreign.AddBlock(one);
  EXPECT_EQ(Finish(*store, foreign).code, Code::kCorruption);
}

TEST_F(PosixFaults, B_ATornFileIsAMissAndIsReplaced) {
  auto store = PosixStore::Open(Config());
  const BlockId id = MakeId(1, 1);
  for (const std::uintmax_t size : {0U, 1U, 4096U, 4U * 8192, 4U * 8192 + 4095, 4U * 8192 + 12288}) {
    ASSERT_TRUE(DumpBlock(*store, kSmall, id, 1).ok());
    stdfs::resize_file(PathOf(id), size);
    EXPECT_FALSE(IsPresent(*store, id)) << size;
    EXPECT_EQ(AbsenceProblem(*store, kSmall, id), "") << size;
    ASSERT_TRUE(DumpBlock(*store, kSmall, id, 2).ok());
    EXPECT_EQ(BlockProblem(*store, kSmall, id, 2), "");
    stdfs::remove(PathOf(id));
  }
}

TEST_F(PosixFaults, AnIoErrorIsAnErrorAndTheFileStays) {
  auto store = PosixStore::Open(Config());
  const BlockId id = MakeId(1, 1);
  ASSERT_TRUE(DumpBlock(*store, kSmall, id, 1).ok());
  fs_.Set([](const Call& call) { return call.op == Op::kRead ? -EIO : HookedFs::kGoOn; });
  LoadBatch load(kSmall);
  load.AddBlock(id);
  const Status status = Finish(*store, load);
  EXPECT_EQ(status.code, Code::kIoError);
  EXPECT_EQ(status.sys_errno, EIO);
  EXPECT_NE(status.text().find(PathOf(id).filename().string().substr(8)), std::string_view::npos)
      << status.message;
  fs_.Clear();
  EXPECT_EQ(BlockProblem(*store, kSmall, id, 1), "");
}

}  // namespace
}  // namespace ucmstore::test
