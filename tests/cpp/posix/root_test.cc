// SPDX-License-Identifier: Apache-2.0
//
// Opening: what is refused and in which words, permissions, and which files of which writers are
// reaped.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "base/hex.h"
#include "io/hooked_fs.h"
#include "posix/children.h"
#include "posix/posix_store.h"
#include "store/posix/names.h"
#include "store/posix/reaper.h"
#include "store/posix/root_file.h"
#include "support/temp_dir.h"

namespace ucmstore::test {
namespace {

namespace stdfs = std::filesystem;
constexpr Geometry kSmall{.shard_size = 8192, .shards_per_block = 4};

class PosixRoot : public ::testing::Test {
 protected:
  PosixConfig Config() {
    PosixConfig config;
    config.roots = {dir_.string()};
    config.fs = &fs_;
    return config;
  }
  Status TryOpen(const PosixConfig& config) {
    Status status;
    (void)PosixStore::Try(config, &status);
    return status;
  }
  static void ExpectWords(const Status& status, Code code, const std::vector<std::string>& parts) {
    EXPECT_EQ(status.code, code) << status.message;
    for (const std::string& part : parts) {
      EXPECT_NE(status.text().find(part), std::string_view::npos)
          << "'" << part << "' is not in: " << status.message;
    }
  }
  [[nodiscard]] stdfs::path Folder() const { return dir_.path() / PosixConfig().label; }
  [[nodiscard]] stdfs::path PathOf(const BlockId& id) const {
    return Folder() / BlockName(id, 3).c_str();
  }
  // Waits, at most 20 s, until a condition holds that a background job brings about.
  template <typename Condition>
  static bool Await(Condition&& condition) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::yield();
    }
    return true;
  }

  TempDir dir_;
  HookedFs fs_;
};

TEST_F(PosixRoot, M06_WhatCannotBeOpenedIsNamed) {
  PosixConfig config = Config();
  config.roots = {};
  ExpectWords(TryOpen(config), Code::kInvalidArgument, {"roots"});
  config.roots = {""};
  ExpectWords(TryOpen(config), Code::kInvalidArgument, {"roots", "empty"});
  config.roots = {dir_.string(), dir_.string()};
  ExpectWords(TryOpen(config), Code::kInvalidArgument, {"roots", "twice", dir_.string()});
  config.roots = {dir_.string(), dir_.string() + "/."};
  ExpectWords(TryOpen(config), Code::kInvalidArgument, {"same folder"});
  config.roots = {dir_.string() + "/a/b"};
  ExpectWords(TryOpen(config), Code::kNotFound, {dir_.string() + "/a/b", "create that first"});
  config.roots = {dir_.string() + "/a"};
  config.options["create_root"] = false;
  ExpectWords(TryOpen(config), Code::kNotFound, {dir_.string() + "/a", "create_root"});
  EXPECT_FALSE(stdfs::exists(dir_.path() / "a"));
  config.options.clear();
  EXPECT_TRUE(TryOpen(config).ok()) << "the last component is created";
  std::ofstream(dir_.path() / "file") << "x";
  config.roots = {dir_.string() + "/file"};
  ExpectWords(TryOpen(config), Code::kInvalidArgument, {dir_.string() + "/file", "not a folder"});
  config = Config();
  fs_.Set([](const Call& call) {
    return call.op == Op::kOpen && (call.flags & O_CREAT) != 0 ? -EROFS : HookedFs::kGoOn;
  });
  ExpectWords(TryOpen(config), Code::kIoError, {dir_.string(), "Read-only"});
  fs_.Set([](const Call& call) { return call.op == Op::kMakeFolder ? -EACCES : HookedFs::kGoOn; });
  ExpectWords(TryOpen(config), Code::kIoError, {dir_.string(), "Permission denied"});
}

TEST_F(PosixRoot, AnotherGeometryContentOrNamespaceIsRefusedWithBothValues) {
  const std::string path = (Folder() / "UCMSTORE").string().substr(0, 12);
  auto store = PosixStore::Open(Config());
  ASSERT_TRUE(DumpBlock(*store, kSmall, MakeId(1, 1), 1).ok());
  PosixConfig config = Config();
  config.geometry.shard_size = 4096;
  ExpectWords(TryOpen(config), Code::kInvalidArgument, {path, "shard_size", "8192", "4096"});
  config = Config();
  config.geometry.shards_per_block = 5;
  ExpectWords(TryOpen(config), Code::kInvalidArgument,
              {"shards_per_block is 4 there, 5 asked for"});
  config = Config();
  config.content = "frame/1";
  ExpectWords(TryOpen(config), Code::kInvalidArgument, {"content", "raw", "frame/1"});  // S08
  config = Config();
  config.fingerprint = 9;
  ExpectWords(TryOpen(config), Code::kInvalidArgument, {"fingerprint", "0707", "0909"});
  EXPECT_EQ(BlockProblem(*store, kSmall, MakeId(1, 1), 1), "") << "nothing was touched";
}

TEST_F(PosixRoot, ADamagedOrNewerRootFileIsRefused) {
  (void)PosixStore::Open(Config());
  const stdfs::path path = Folder() / "UCMSTORE";
  std::string text;
  {
    std::ifstream in(path);
    text.assign(std::istreambuf_iterator<char>(in), {});
  }
  const auto write = [&path](const std::string& content) { std::ofstream(path) << content; };
  write("");
  ExpectWords(TryOpen(Config()), Code::kCorruption, {"UCMSTORE", "0 bytes"});
  write(text.substr(0, text.size() - 5));
  ExpectWords(TryOpen(Config()), Code::kCorruption, {"UCMSTORE", "checksum"});
  std::string newer = text;
  newer[9] = '9';
  write(newer);
  ExpectWords(TryOpen(Config()), Code::kUnsupported, {"UCMSTORE", "format 9"});
  write(text);
  EXPECT_TRUE(TryOpen(Config()).ok());
}

TEST_F(PosixRoot, AnImpossibleGeometryIsRefused) {
  PosixConfig config = Config();
  config.geometry = {.shard_size = 4096, .shards_per_block = 65537};
  ExpectWords(TryOpen(config), Code::kInvalidArgument, {"65537", "65536"});
  config.geometry = kSmall;
  config.content = std::string(32, 'c');
  ExpectWords(TryOpen(config), Code::kInvalidArgument, {"content", "31"});
}

TEST_F(PosixRoot, Q_OnlyTheOwnerCanReadUnlessAskedOtherwise) {
  const mode_t before = ::umask(0);
  const auto modes = [this](const char* mode, unsigned file, unsigned folder) {
    PosixConfig config = Config();
    config.label = mode;
    config.options["mode"] = std::string(mode);
    auto store = PosixStore::Open(config);
    EXPECT_TRUE(DumpBlock(*store, kSmall, MakeId(1, 1), 1).ok());
    EXPECT_TRUE(DumpShard(*store, kSmall, MakeId(1, 2), 0, 1).ok());
    std::size_t files = 0;
    for (const auto& entry : stdfs::recursive_directory_iterator(dir_.path() / mode)) {
      const auto perms = static_cast<unsigned>(entry.status().permissions());
      EXPECT_EQ(perms, entry.is_directory() ? folder : file) << entry.path();
      files += entry.is_directory() ? 0 : 1;
    }
    EXPECT_EQ(files, 4U);
    EXPECT_EQ(static_cast<unsigned>(stdfs::status(dir_.path() / mode).permissions()), folder);
  };
  modes("private", 0600, 0700);
  ::umask(077);
  modes("group", 0660, 0770);
  modes("world", 0666, 0777);
  ::umask(before);
}

TEST_F(PosixRoot, DeadWritersAreReapedAtOpenAndLiveOnesAreNot) {
  Children children;
  children.Start([&]() -> std::string {
    auto store = PosixStore::Open(Config());
    for (std::uint64_t i = 0; i < 20; ++i) {
      if (!DumpShard(*store, kSmall, MakeId(1, i), 0, 1).ok()) return "dump";
    }
    ::_exit(0);  // as if killed: nothing is cleaned up
  });
  ASSERT_EQ(children.Finish(), std::vector<int>{0});
  EXPECT_EQ(FilesBelow(Folder(), ".activated").size(), 20U);
  EXPECT_EQ(FilesBelow(Folder() / "writers").size(), 1U);

  PosixConfig plain = Config();
  plain.fs = &FileSystem::Real();
  // The live one opens first, held back from reaping by a pool whose only worker waits for it.
  auto live = PosixStore::Open(plain);
  EXPECT_TRUE(Await([&] { return FilesBelow(Folder(), ".activated").empty(); }));
  EXPECT_TRUE(Await([&] { return FilesBelow(Folder() / "writers").empty(); }));
  EXPECT_TRUE(Await([&] { return live->Stat("reaped_files") == 20; }));
  ASSERT_TRUE(DumpShard(*live, kSmall, MakeId(1, 1), 0, 5).ok());
  // A file without any mark was left behind as well; it goes with the next sweep for the dead.
  std::ofstream(Folder() / ActivatedName(MakeId(1, 1), 3, 12345, 1).c_str()) << "x";
  std::ofstream(Folder() / "writers" / "00000000000000ff") << "";  // a dead mark
  auto next = PosixStore::Open(Config());
  EXPECT_TRUE(Await([&] { return next->Stat("reaped_files") == 1; }));
  EXPECT_EQ(FilesBelow(Folder(), ".activated").size(), 1U);
  DumpBatch rest(kSmall);
  rest.Add(MakeId(1, 1), 1, 5).Add(MakeId(1, 1), 2, 5).Add(MakeId(1, 1), 3, 5);
  EXPECT_TRUE(Finish(*live, rest).ok());
  EXPECT_EQ(BlockProblem(*next, kSmall, MakeId(1, 1), 5), "");
}

// Begins after a sweep has begun, writes where that has been already, and dies.
TEST_F(PosixRoot, G_WhoDiesDuringASweepIsLookedForAgain) {
  {
    auto store = PosixStore::Open(Config());
  }
  FileSystem& fs = FileSystem::Real();
  const File folder(fs, fs.OpenAt(AT_FDCWD, Folder().c_str(), O_RDONLY | O_DIRECTORY, 0));
  std::optional<WriterCensus> census(std::in_place, fs, folder.get(), true);
  ASSERT_EQ(census->Take(), 0);
  auto created = WriterMark::Create(fs, folder.get(), Modes{});
  ASSERT_TRUE(created);
  const WriterId writer = (*created)->id();
  const stdfs::path behind = Folder() / ActivatedName(MakeId(1, 0), 3, writer, 1).c_str();
  stdfs::create_directories(behind.parent_path());
  std::ofstream(behind) << "x";
  (*created)->Keep();
  created->reset();  // as a kill would: the mark is there, its lock is free
  EXPECT_TRUE(census->MayReap(writer)) << "met further on";
  census->RemoveMarks();
  census.reset();
  EXPECT_TRUE(stdfs::exists(Folder() / MarkName(writer).c_str()));
  EXPECT_TRUE(stdfs::exists(behind));
  WriterCensus next(fs, folder.get(), true);
  ASSERT_EQ(next.Take(), 0);
  EXPECT_TRUE(next.found_dead());
}

// A child that is forked and lives on does not keep its dead parent's work from being reaped.
TEST_F(PosixRoot, S03_AForkedChildDoesNotKeepItsParentAlive) {
  int hold[2];
  ASSERT_EQ(::pipe(hold), 0);
  Children children;
  children.Start([&]() -> std::string {
    auto store = PosixStore::Open(Config());
    if (!DumpShard(*store, kSmall, MakeId(1, 1), 0, 1).ok()) return "dump";
    int ready[2];
    if (::pipe(ready) != 0) return "pipe";
    if (::fork() == 0) {
      char byte = 0;
      ::close(hold[1]);
      (void)!::write(ready[1], &byte, 1);
      (void)!::read(hold[0], &byte, 1);  // until the test ends
      ::_exit(0);
    }
    char byte = 0;
    (void)!::read(ready[0], &byte, 1);
    ::_exit(0);
  });
  ASSERT_EQ(children.Finish(), std::vector<int>{0});
  auto store = PosixStore::Open(Config());
  EXPECT_TRUE(Await([&] { return FilesBelow(Folder(), ".activated").empty(); }));
  ::close(hold[0]);
  ::close(hold[1]);
}

// A reaper that comes between the making of a mark and its lock.
TEST_F(PosixRoot, AMarkTakenForDeadAtBirthIsMadeAnew) {
  auto store = PosixStore::Open(Config());
  std::atomic<int> marks{0};
  fs_.Set([&](const Call& call) {
    if (call.op == Op::kTryLock && marks.fetch_add(1) < 3) {
      // What a reaper does: lock, unlink.
      for (const std::string& mark : FilesBelow(Folder() / "writers")) {
        stdfs::remove(Folder() / "writers" / mark);
      }
      if (marks.load() == 2) return -EAGAIN;
    }
    return HookedFs::kGoOn;
  });
  EXPECT_TRUE(DumpBlock(*store, kSmall, MakeId(1, 1), 1).ok());
  EXPECT_EQ(marks.load(), 4);
  EXPECT_EQ(FilesBelow(Folder() / "writers").size(), 1U);
}

TEST_F(PosixRoot, WithoutLocksNothingIsReapedAndAllElseWorks) {
  Children children;
  children.Start([&]() -> std::string {
    fs_.Set([](const Call& call) { return call.op == Op::kTryLock ? -ENOLCK : HookedFs::kGoOn; });
    auto store = PosixStore::Open(Config());
    if (!DumpShard(*store, kSmall, MakeId(1, 1), 0, 1).ok()) return "dump";
    ::_exit(0);
  });
  ASSERT_EQ(children.Finish(), std::vector<int>{0});
  fs_.Set([](const Call& call) { return call.op == Op::kTryLock ? -ENOLCK : HookedFs::kGoOn; });
  auto store = PosixStore::Open(Config());
  ASSERT_TRUE(DumpBlock(*store, kSmall, MakeId(1, 2), 1).ok());
  EXPECT_EQ(BlockProblem(*store, kSmall, MakeId(1, 2), 1), "");
  store.reset();
  EXPECT_EQ(FilesBelow(Folder(), ".activated").size(), 1U);
}

TEST_F(PosixRoot, I02_ARefusedDirectModeIsSaidAndReplaced) {
  fs_.Set([](const Call& call) {
    return call.op == Op::kOpen && (call.flags & O_DIRECT) != 0 ? -EINVAL : HookedFs::kGoOn;
  });
  auto store = PosixStore::Open(Config());
  EXPECT_TRUE(store->log().Has(LogLevel::kWarning, "no direct I/O here"));
  ASSERT_TRUE(DumpBlock(*store, kSmall, MakeId(1, 1), 1).ok());
  EXPECT_EQ(BlockProblem(*store, kSmall, MakeId(1, 1), 1), "");
  EXPECT_EQ(store->Stat("direct_bytes"), 0);
  EXPECT_EQ(store->Stat("buffered_bytes"), 2 * 4 * 8192);
  store.reset();
  PosixConfig config = Config();
  config.options["io"] = std::string("direct");
  ExpectWords(TryOpen(config), Code::kUnsupported, {"io=direct", "io=auto"});
}

TEST_F(PosixRoot, AFolderThatIsOpenedWhileItIsPurgedWaitsAndBeginsAnew) {
  (void)PosixStore::Open(Config());
  std::atomic<int> tries{0};
  fs_.Set([&](const Call& call) {
    if (call.op != Op::kTryLock) return HookedFs::kGoOn;
    if (tries.fetch_add(1) < 2) return -EAGAIN;          // a purge holds it
    if (tries.load() == 3) stdfs::remove_all(Folder());  // and has ended
    return HookedFs::kGoOn;
  });
  auto store = PosixStore::Open(Config());
  fs_.Clear();
  EXPECT_TRUE(DumpBlock(*store, kSmall, MakeId(1, 1), 1).ok());
  EXPECT_EQ(BlockProblem(*store, kSmall, MakeId(1, 1), 1), "");
}

}  // namespace
}  // namespace ucmstore::test
