// SPDX-License-Identifier: Apache-2.0
//
// One ring, many stores and processes: what one keeps the other finds, what outlives whom, and who
// gets a ring of his own.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "cache/cache_fixture.h"

namespace ucmstore::test {
namespace {

class CacheSharing : public CacheTest {
 protected:
  // Runs `body` in a process of its own and ends it as said.
  template <typename Body>
  void InChild(Body&& body, bool killed) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      const bool good = body();
      if (killed) ::kill(::getpid(), SIGKILL);
      ::_exit(good ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(killed ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  std::vector<std::filesystem::path> Segments() const {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator(memory_.path())) {
      if (entry.is_regular_file()) found.push_back(entry.path());
    }
    return found;
  }
};

TEST_F(CacheSharing, E07_TwoStoresShareOneRing) {
  const std::uint64_t nonce = NextNonce();
  ASSERT_TRUE(Dump(0, nonce).ok());
  const auto other = OpenAnother();
  EXPECT_EQ(BlockProblem(*other, kGeometry, Id(0), nonce), "");
  EXPECT_EQ(other->Stats().at("posix.load_shards"), 0);
  EXPECT_EQ(Segments().size(), 1U);
}

TEST_F(CacheSharing, ClosingOneStoreHarmsNoOther) {
  const std::uint64_t nonce = NextNonce();
  const auto other = OpenAnother();
  ASSERT_TRUE(Dump(0, nonce).ok());
  Close();
  EXPECT_EQ(BlockProblem(*other, kGeometry, Id(0), nonce), "");
  ASSERT_TRUE(DumpBlock(*other, kGeometry, Id(1), nonce).ok());
  EXPECT_EQ(Problem(1, nonce), "");
}

TEST_F(CacheSharing, TheRingIsWarmAfterAllAreGone) {
  const std::uint64_t nonce = NextNonce();
  ASSERT_TRUE(Dump(0, nonce).ok());
  Close();
  DeleteBelow(0);
  EXPECT_EQ(Where(0), kInMemory);
  EXPECT_EQ(Problem(0, nonce), "");
}

TEST_F(CacheSharing, UnlinkTakesTheSegmentAlong) {
  config_.options["cache.unlink"] = "true";
  ASSERT_TRUE(Dump(0, NextNonce()).ok());
  EXPECT_EQ(Segments().size(), 1U);
  Close();
  EXPECT_EQ(Segments().size(), 0U);
}

TEST_F(CacheSharing, E10_TheSegmentIsItsOwnersAlone) {
  (void)store();
  struct stat segment{};
  ASSERT_EQ(::stat(Segments().at(0).c_str(), &segment), 0);
  EXPECT_EQ(segment.st_mode & 0777U, 0600U);
}

TEST_F(CacheSharing, E01_DirtyBlocksOfAKilledProcessAreWrittenBackByTheNext) {
  const std::uint64_t nonce = NextNonce();
  InChild(
      [&] {
        (void)fault().Arm("dump hold");
        for (std::uint64_t i = 0; i < 10; ++i) {
          if (!Dump(i, nonce).ok()) return false;
        }
        return true;
      },
      true);
  EXPECT_EQ(FilesBelow(), 0U);
  EXPECT_TRUE(Reaches("cache.write_back_blocks", 10));
  EXPECT_EQ(FilesBelow(), 10U);
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_EQ(Problem(i, nonce), "");
}

TEST_F(CacheSharing, AProcessKilledInTheMiddleOfAFillLeavesItToTheNext) {
  const std::uint64_t nonce = NextNonce();
  DumpedLongAgo(1, nonce);
  InChild(
      [&] {
        const std::uint64_t hold = fault().Arm("load hold");
        LoadBatch load(kGeometry);
        (void)Submit(store(), load.AddBlock(Id(0)));
        fault().AwaitHeld(hold, 4);
        return true;
      },
      true);
  EXPECT_EQ(Problem(0, nonce), "");
  EXPECT_EQ(Where(0), kInMemory);
}

TEST_F(CacheSharing, S09_AStoppedFillerStallsNobody) {
  const std::uint64_t nonce = NextNonce();
  DumpedLongAgo(1, nonce);
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    const std::uint64_t hold = fault().Arm("load hold");
    LoadBatch load(kGeometry);
    (void)Submit(store(), load.AddBlock(Id(0)));
    fault().AwaitHeld(hold, 4);
    (void)!::write(ready[1], "x", 1);
    for (;;) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ASSERT_EQ(::kill(pid, SIGSTOP), 0);
  EXPECT_EQ(Problem(0, nonce), "");
  EXPECT_EQ(Figure("cache.load_past_shards"), 4);
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(CacheSharing, E04_NoRoomMakesAPrivateRingNotARefusal) {
  // A path where nothing can be shared between processes of this machine stands for a full one.
  config_.options["cache.path"] = "/proc/self";
  const std::uint64_t nonce = NextNonce();
  const auto opened = OpenRaw(config_);
  if (opened == nullptr) GTEST_FAIL() << "the store was refused";
  ASSERT_TRUE(DumpBlock(*opened, kGeometry, Id(0), nonce).ok());
  EXPECT_EQ(BlockProblem(*opened, kGeometry, Id(0), nonce), "");
  EXPECT_EQ(opened->Stats().at("cache.ring_is_private"), 1);
}

TEST_F(CacheSharing, E09_AnotherGeometryUnderTheSameNameIsRefusedInWords) {
  config_.options["cache.name"] = "mine";
  (void)store();
  StackConfig other = config_;
  other.geometry = {8192, 4};
  other.options["posix.roots"] = (memory_.path() / "other").string();
  other.options.erase("fault.name");
  std::unique_ptr<TestStore> opened;
  const Status status = TryOpenRaw(other, &opened);
  EXPECT_EQ(status.code, Code::kInvalidArgument) << status.message;
  EXPECT_NE(status.text().find("Cache: "), std::string_view::npos) << status.message;
}

TEST_F(CacheSharing, WhatAClosedStoreCouldNotWriteBackItsNeighbourDoes) {
  const std::uint64_t nonce = NextNonce();
  const auto other = OpenAnother();
  (void)fault().Arm("dump fail=io_error");
  for (std::uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(Dump(i, nonce).ok());
  EXPECT_TRUE(store().Close(200));
  store_.reset();
  EXPECT_EQ(FilesBelow(), 0U);
  EXPECT_TRUE(Eventually([&] {
    EXPECT_EQ(BlockProblem(*other, kGeometry, Id(0), nonce), "");
    return FilesBelow() == 5;
  }));
}

TEST_F(CacheSharing, ClosingOneOfTwoWhileTheOtherWritesBackLosesNothing) {
  config_.options["cache.write_back_tasks"] = "1";
  const std::uint64_t nonce = NextNonce();
  for (std::uint64_t i = 0; i < 40; ++i) {
    if (i % 10 == 0) {
      const auto other = OpenAnother();
      EXPECT_TRUE(other->Close(2'000));
    }
    ASSERT_TRUE(Dump(i, nonce).ok());
  }
  EXPECT_TRUE(Eventually([&] {
    EXPECT_EQ(Problem(0, nonce), "");
    return FilesBelow() == 40;
  }));
}

TEST_F(CacheSharing, E01_ASurvivorWritesBackWhatAKilledProcessCouldNot) {
  const std::uint64_t nonce = NextNonce();
  ASSERT_TRUE(Dump(100, nonce).ok());
  InChild(
      [&] {
        const auto mine = OpenAnother();
        FaultControl held(fault_name_ + "-other");
        (void)held.Arm("dump hold");
        for (std::uint64_t i = 0; i < 10; ++i) {
          if (!DumpBlock(*mine, kGeometry, Id(i), nonce).ok()) return false;
        }
        return true;
      },
      true);
  EXPECT_TRUE(Eventually([&] {
    EXPECT_EQ(Problem(0, nonce), "");
    return FilesBelow() == 11;
  }));
}

}  // namespace
}  // namespace ucmstore::test
