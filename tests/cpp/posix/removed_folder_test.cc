// SPDX-License-Identifier: Apache-2.0
//
// The namespace's folder, or the whole root, is removed under a running store: what was in it is a
// miss, and the store goes on by itself.
#include <gtest/gtest.h>

#include <thread>

#include "posix/posix_fixture.h"
#include "support/eventually.h"

namespace ucmstore::test {
namespace {

const BlockId kA = MakeId(1, 1);
const BlockId kB = MakeId(1, 2);

class PosixRemoved : public PosixFaults {
 protected:
  PosixRemoved() {
    root_ = dir_.string() + "/root";
    config_ = Config();
    config_.roots = {root_};
    config_.clock = &clock_;
    store_ = PosixStore::Open(config_);
    EXPECT_TRUE(DumpBlock(*store_, kSmall, kA, 1).ok());
  }
  [[nodiscard]] stdfs::path NamespaceFolder() const { return stdfs::path(root_) / config_.label; }

  std::string root_;
  ManualClock clock_;
  PosixConfig config_;
  std::unique_ptr<PosixStore> store_;
};

TEST_F(PosixRemoved, DumpsGoOnAndWhatWasThereIsAMiss) {
  const auto id = RootFileOf(root_).root_id;
  for (const stdfs::path& removed : {NamespaceFolder(), stdfs::path(root_)}) {
    stdfs::remove_all(removed);
    EXPECT_FALSE(IsPresent(*store_, kA));
    LoadBatch load(kSmall);
    load.AddBlock(kA);
    EXPECT_EQ(Finish(*store_, load).code, Code::kNotFound);
    ASSERT_TRUE(DumpBlock(*store_, kSmall, kB, 2).ok()) << removed;
    EXPECT_EQ(BlockProblem(*store_, kSmall, kB, 2), "");
    EXPECT_EQ(RootFileOf(root_).root_id, id) << "it stays the same root";
    EXPECT_EQ(BlockProblem(*PosixStore::Open(config_), kSmall, kB, 2), "");
    ASSERT_TRUE(DumpBlock(*store_, kSmall, kA, 3).ok());
    EXPECT_EQ(BlockProblem(*store_, kSmall, kA, 3), "");
  }
  EXPECT_TRUE(store_->log().Has(LogLevel::kWarning, "somebody removed this folder"));
}

// As `rm -rf` leaves it that meets a folder in which files are being made.
TEST_F(PosixRemoved, WithoutItsRootFileItGetsTheSameAgain) {
  const auto id = RootFileOf(root_).root_id;
  const stdfs::path root_file = NamespaceFolder() / "UCMSTORE";
  stdfs::remove(root_file);
  EXPECT_TRUE(Eventually([&] {
    clock_.Advance(milliseconds(2'000));
    return DumpBlock(*store_, kSmall, kB, 2).ok() && stdfs::exists(root_file);
  }));
  EXPECT_EQ(RootFileOf(root_).root_id, id);
  const auto next = PosixStore::Open(config_);
  for (const BlockId& block : {kA, kB}) EXPECT_TRUE(IsPresent(*next, block));
}

TEST_F(PosixRemoved, AnothersRootFileInTheSameFolderIsAdopted) {
  stdfs::remove(NamespaceFolder() / "UCMSTORE");
  const auto other = PosixStore::Open(config_);
  const std::string theirs = other->stage().Identity();
  EXPECT_NE(store_->stage().Identity(), theirs);
  EXPECT_TRUE(Eventually([&] {
    clock_.Advance(milliseconds(2'000));
    return IsPresent(*store_, kA) && store_->stage().Identity() == theirs;
  }));
}

TEST_F(PosixRemoved, AHalfWrittenBlockIsAbortedAndCanBeDumpedAgain) {
  ASSERT_TRUE(DumpShard(*store_, kSmall, kB, 0, 2).ok());
  stdfs::remove_all(NamespaceFolder());
  EXPECT_EQ(DumpShard(*store_, kSmall, kB, 1, 2).code, Code::kAborted);
  ASSERT_TRUE(DumpBlock(*store_, kSmall, kB, 3).ok());
  EXPECT_EQ(BlockProblem(*store_, kSmall, kB, 3), "");
}

TEST_F(PosixRemoved, RemovedJustBeforeTheRenameItIsAbortedToo) {
  fs_.Set([this](const Call& call) {
    if (call.op == Op::kRename) stdfs::remove_all(NamespaceFolder());
    return HookedFs::kGoOn;
  });
  EXPECT_EQ(DumpBlock(*store_, kSmall, kB, 2).code, Code::kAborted);
  fs_.Clear();
  ASSERT_TRUE(DumpBlock(*store_, kSmall, kB, 3).ok());
  EXPECT_EQ(BlockProblem(*store_, kSmall, kB, 3), "");
}

TEST_F(PosixRemoved, WhereItCannotBeMadeADumpSaysSoAndHealsLater) {
  stdfs::remove_all(root_);
  fs_.Set([](const Call& call) { return call.op == Op::kMakeFolder ? -EROFS : HookedFs::kGoOn; });
  EXPECT_FALSE(IsPresent(*store_, kA));
  fs_.Set([this](const Call& call) {
    const bool ours = call.path == root_ || call.path == config_.label;
    return call.op == Op::kMakeFolder && ours ? -EROFS : HookedFs::kGoOn;
  });
  const Status status = DumpBlock(*store_, kSmall, kB, 2);
  EXPECT_EQ(status.code, Code::kIoError) << status.message;
  for (const char* part : {root_.c_str(), "removed this folder", "Read-only"}) {
    EXPECT_NE(status.text().find(part), std::string_view::npos) << status.message;
  }
  fs_.Clear();
  EXPECT_EQ(DumpBlock(*store_, kSmall, kB, 2).code, Code::kIoError) << "it was tried just now";
  clock_.Advance(milliseconds(2'000));
  ASSERT_TRUE(DumpBlock(*store_, kSmall, kB, 2).ok());
  EXPECT_EQ(BlockProblem(*store_, kSmall, kB, 2), "");
}

TEST_F(PosixRemoved, WithoutItsParentItIsAnIoErrorNotAMiss) {
  config_.roots = {dir_.string() + "/deep/root"};
  stdfs::create_directory(dir_.path() / "deep");
  const auto store = PosixStore::Open(config_);
  stdfs::remove_all(dir_.path() / "deep");
  const Status status = DumpBlock(*store, kSmall, kB, 2);
  EXPECT_EQ(status.code, Code::kIoError) << status.message;
  EXPECT_NE(status.text().find("/deep/root"), std::string_view::npos) << status.message;
}

TEST_F(PosixRemoved, AnotherStoresFolderInItsPlaceIsRefusedAndLeftAlone) {
  stdfs::remove_all(NamespaceFolder());
  PosixConfig other = config_;
  other.geometry.shard_size = 4096;
  const auto theirs = PosixStore::Open(other);
  ASSERT_TRUE(DumpBlock(*theirs, other.geometry, kB, 7).ok());
  const Status status = DumpBlock(*store_, kSmall, kA, 2);
  EXPECT_EQ(status.code, Code::kIoError) << status.message;
  EXPECT_NE(status.text().find("shard_size"), std::string_view::npos) << status.message;
  EXPECT_FALSE(IsPresent(*store_, kA));
  EXPECT_EQ(BlockProblem(*theirs, other.geometry, kB, 7), "");
}

// Two stores find it gone at once: one makes UCMSTORE, the other reads it.
TEST_F(PosixRemoved, ManyDumpsOfTwoStoresMakeItOnce) {
  const auto second = PosixStore::Open(config_);
  for (std::uint8_t round = 0; round < 10; ++round) {
    stdfs::remove_all(root_);
    const auto dump_all = [round](PosixStore& store, std::uint64_t from) {
      DumpBatch dump(kSmall);
      for (std::uint64_t i = 0; i < 16; ++i) dump.AddBlock(MakeId(from, i), round);
      EXPECT_TRUE(Finish(store, dump).ok());
    };
    std::thread beside([&] { dump_all(*second, 20 + round); });
    dump_all(*store_, 40 + round);
    beside.join();
    for (std::uint64_t i = 0; i < 16; ++i) {
      EXPECT_EQ(BlockProblem(*store_, kSmall, MakeId(20 + round, i), round), "");
      EXPECT_EQ(BlockProblem(*second, kSmall, MakeId(40 + round, i), round), "");
    }
  }
}

// A store that only reads finds what another one puts into the folder that it has made again.
TEST_F(PosixRemoved, AReaderFollowsAndMakesNothingItself) {
  stdfs::remove_all(NamespaceFolder());
  clock_.Advance(RootSlot::kLookAfter);
  EXPECT_FALSE(IsPresent(*store_, kA));
  EXPECT_TRUE(Eventually([&] { return store_->Stat("queued_jobs") == 0; }));
  EXPECT_FALSE(stdfs::exists(NamespaceFolder()));
  PosixConfig plain = config_;
  plain.fs = &FileSystem::Real();
  ASSERT_TRUE(DumpBlock(*PosixStore::Open(plain), kSmall, kB, 9).ok());
  EXPECT_TRUE(Eventually([&] {
    clock_.Advance(RootSlot::kLookAfter);
    return IsPresent(*store_, kB);
  }));
  EXPECT_EQ(BlockProblem(*store_, kSmall, kB, 9), "");
}

TEST_F(PosixRemoved, DescriptorsComeBackToTheStart) {
  stdfs::remove_all(NamespaceFolder());
  ASSERT_TRUE(DumpBlock(*store_, kSmall, kB, 2).ok());
  const std::size_t before = OpenDescriptors();
  for (int i = 0; i < 20; ++i) {
    stdfs::remove_all(NamespaceFolder());
    ASSERT_TRUE(DumpBlock(*store_, kSmall, kB, 2).ok());
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

}  // namespace
}  // namespace ucmstore::test
