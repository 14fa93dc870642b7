// SPDX-License-Identifier: Apache-2.0
//
// What lies under a block's name is not what was dumped: torn, foreign, hostile, another's, or only
// read wrongly once.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "posix/posix_fixture.h"

namespace ucmstore::test {
namespace {

TEST_F(PosixFaults, Q01_HostileFilesAreData) {
  auto store = PosixStore::Open(Config());
  const std::string bomb = "cos\nsystem\n(S'touch /tmp/ucmstore-was-here'\ntR.";
  std::vector<BlockId> ids(6);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = MakeId(1, i);
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
  for (const std::string& label :
       {std::string(".."), std::string("."), std::string(""), std::string("../x"),
        std::string("/abs"), std::string("a/../../b"), std::string(".hidden"), std::string("a\nb"),
        std::string(5000, 'a'), std::string("caf\xc3\xa9")}) {
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
  const std::vector<std::streamoff> places{
      0, 8191, 3 * 8192 + 17, 4 * 8192 + 3, 4 * 8192 + 20, 4 * 8192 + 4095};
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
    if (at < std::streamoff{4} * 8192) {  // the other shards were good, and came
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
  for (const std::uintmax_t size :
       {0U, 1U, 4096U, 4U * 8192, 4U * 8192 + 4095, 4U * 8192 + 12288}) {
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
