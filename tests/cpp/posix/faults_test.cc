// SPDX-License-Identifier: Apache-2.0
//
// Faults that file stores have really had, each under its id: blocks half-written, vanished, disks
// full, and what is done about them.
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "posix/posix_fixture.h"

namespace ucmstore::test {
namespace {

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

TEST_F(PosixFaults, B03_ARemovedFolderIsMadeAgain) {
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
  EXPECT_NE(status.text().find("removed the file"), std::string_view::npos) << status.message;
  EXPECT_TRUE(DumpBlock(*store, kSmall, id, 4).ok());
  EXPECT_EQ(BlockProblem(*store, kSmall, id, 4), "");
  // The whole namespace; removed_folder_test.cc has more of it.
  stdfs::remove_all(Folder());
  EXPECT_FALSE(IsPresent(*store, id));
  EXPECT_TRUE(DumpBlock(*store, kSmall, id, 5).ok());
  EXPECT_EQ(BlockProblem(*store, kSmall, id, 5), "");
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
  PosixConfig config = Config();
  config.options["capacity"] = std::int64_t{0};
  auto store = PosixStore::Open(config);
  EXPECT_TRUE(store->log().Has(LogLevel::kWarning, "no limit"));
  for (const char* capacity : {"2TiB", "auto"}) {
    config.options["capacity"] = std::string(capacity);
    store.reset();
    store = PosixStore::Open(config);
    EXPECT_FALSE(store->log().Has(LogLevel::kWarning, "limit")) << capacity;
  }
}

// A full disk: dumps fail as no space and leave nothing, loads go on, and room heals it.
TEST_F(PosixFaults, F02_AFullDiskFailsDumpsOnlyAndHeals) {
  const stdfs::path mount = dir_.path() / "small";
  stdfs::create_directory(mount);
  if (::mount("none", mount.c_str(), "tmpfs", 0, "size=4m") != 0) {
    GTEST_SKIP() << "mounting a small tmpfs is not allowed here";
  }
  PosixConfig config = Config();
  config.roots = {mount.string()};
  config.options["capacity"] = "1GiB";
  {
    auto store = PosixStore::Open(config);
    ASSERT_TRUE(DumpBlock(*store, kSmall, MakeId(1, 0), 1).ok());
    {
      std::ofstream filler(mount / "foreign", std::ios::binary);
      const std::string chunk(4096, 'x');
      while (filler.write(chunk.data(), static_cast<std::streamsize>(chunk.size())).flush()) {
      }
    }
    const std::size_t files = FilesBelow(mount).size();
    for (std::uint64_t i = 1; i <= 100; ++i) {
      const Status status = DumpBlock(*store, kSmall, MakeId(1, i), 1);
      EXPECT_EQ(status.code, Code::kNoSpace) << status.message;
      EXPECT_NE(status.text().find("No space left"), std::string_view::npos) << status.message;
    }
    EXPECT_EQ(FilesBelow(mount).size(), files);
    EXPECT_EQ(BlockProblem(*store, kSmall, MakeId(1, 0), 1), "");
    stdfs::remove(mount / "foreign");
    for (std::uint64_t i = 1; i <= 50; ++i) {
      EXPECT_TRUE(DumpBlock(*store, kSmall, MakeId(1, i), 2).ok());
      EXPECT_EQ(BlockProblem(*store, kSmall, MakeId(1, i), 2), "");
    }
  }
  EXPECT_EQ(::umount(mount.c_str()), 0);
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

}  // namespace
}  // namespace ucmstore::test
