// SPDX-License-Identifier: Apache-2.0
//
// Tests of S03 and S09: liveness is neither lost while a process lives nor inherited by its
// children, and a stopped process lives.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>
#include <vector>

#include "shm/fork_watch.h"
#include "shm/process_fixture.h"

namespace ucmstore::test {
namespace {

// ---- S03: neither lost nor inherited ------------------------------------------------------------

TEST_F(ProcessTableTest, S03_ClosingOtherDescriptorsLosesNothing) {
  const Member watcher = Join();
  const Member member = Join();
  for (int round = 0; round < 3; ++round) {
    const int other = ::open(FilePath().c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(other, 0);
    ::close(other);
    const Member passing = Join();
  }
  EXPECT_TRUE(watcher.table->IsAlive(member.table->place()));
  EXPECT_EQ(watcher.table->ReapDead(&NoTraces), 0U);
  EXPECT_EQ(watcher.segment->processes()[member.table->place()].taken.load(), 1U);
}

TEST_F(ProcessTableTest, S03_AForkedChildDoesNotKeepItsParentAlive) {
  const Member watcher = Join();
  Children children;
  Pipe said;
  Pipe go;
  const pid_t parent = children.Start([&]() -> std::string {
    go.CloseWrite();
    const Member member = Join();
    if (::fork() == 0) {
      said.Say('c');
      (void)go.Hear();  // lives until the test lets it go
      ::_exit(0);
    }
    said.Say('p');
    (void)go.Hear();
    return {};
  });
  EXPECT_EQ(static_cast<int>(said.Hear()) + said.Hear(), 'p' + 'c');
  EXPECT_TRUE(watcher.table->IsAlive(1));
  KillAndReap(parent);
  EXPECT_FALSE(watcher.table->IsAlive(1));
  EXPECT_EQ(watcher.table->ReapDead(&NoTraces), 1U);
  // The child is still there: the pipe has not ended.
  said.CloseWrite();
  go.CloseWrite();
  EXPECT_EQ(said.Hear(), '\0');
}

TEST(ForkWatchTest, S03_AForkIsSeenOnBothSides) {
  const std::uint64_t depth = ForkDepth();
  const ForkWatch before;
  EXPECT_TRUE(before.Quiet());
  EXPECT_TRUE(before.Quiet());
  Children children;
  children.Start([&]() -> std::string {
    if (before.Quiet()) return "the child has not seen the fork";
    if (ForkDepth() == depth) return "the child takes itself for its parent";
    return ForkWatch().Quiet() ? "" : "the child still sees the fork";
  });
  EXPECT_FALSE(before.Quiet());
  EXPECT_TRUE(ForkWatch().Quiet());
  EXPECT_EQ(ForkDepth(), depth);
  EXPECT_EQ(children.Finish(), std::vector<int>{0});
}

// Wherever between two instructions of Open a child is born.
TEST_F(ProcessTableTest, S03_ForksWhileOpeningKeepNoLock) {
  const Member watcher = Join();
  Children children;
  Pipe said;
  Pipe go;
  const pid_t parent = children.Start([&]() -> std::string {
    go.CloseWrite();
    std::atomic<bool> joined{false};
    std::jthread forker([&] {
      for (int i = 0; i < 100 && !joined.load(); ++i) {
        if (::fork() == 0) {
          (void)go.Hear();
          ::_exit(0);
        }
      }
    });
    std::vector<Member> members;
    for (int i = 0; i < 50; ++i) members.push_back(Join());
    joined = true;
    forker.join();
    said.Say('j');
    (void)go.Hear();
    return {};
  });
  ASSERT_EQ(said.Hear(), 'j');
  EXPECT_EQ(watcher.table->Others(), 50U);
  KillAndReap(parent);
  EXPECT_EQ(watcher.table->Others(), 0U);
  EXPECT_EQ(watcher.table->ReapDead(&NoTraces), 50U);
}

TEST_F(ProcessTableTest, S03_AForkedChildIsNoMemberAndHarmsNone) {
  const Member watcher = Join();
  Member member = Join();
  Children children;
  children.Start([&]() -> std::string {
    const int reused = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (reused != member.table->lock_fd() && reused != watcher.table->lock_fd()) {
      return "the locks' descriptors are open";
    }
    if (member.table->Join(&NoTraces).code != Code::kClosed) return "joined";
    const auto erase = [](std::uint32_t) { ::_exit(3); };
    if (member.table->ReapDead(erase) != 0 || member.table->Others() != 0) return "reaped";
    member.table->Leave(erase);
    member.table.reset();
    if (::fcntl(reused, F_GETFD) < 0) return "somebody else's descriptor is closed";
    const Member own = Join();
    return own.table->place() == 2 ? "" : "no place of its own";
  });
  EXPECT_EQ(children.Finish(), std::vector<int>{0});
  EXPECT_TRUE(watcher.table->IsAlive(member.table->place()));
  EXPECT_EQ(watcher.segment->processes()[member.table->place()].taken.load(), 1U);
  EXPECT_EQ(watcher.table->Others(), 1U);
}

TEST_F(ProcessTableTest, S03_AProgramThatIsRunInheritsNothing) {
  const Member member = Join();
  EXPECT_EQ(::fcntl(member.table->lock_fd(), F_GETFD), FD_CLOEXEC);
  EXPECT_EQ(::fcntl(member.segment->fd(), F_GETFD), FD_CLOEXEC);
}

TEST_F(ProcessTableTest, S09_AStoppedProcessIsAlive) {
  const Member watcher = Join();
  Children children;
  Pipe said;
  Pipe go;
  const pid_t pid = StartMember(children, said, go);
  ASSERT_EQ(said.Hear(), Letter(1));
  ASSERT_EQ(::kill(pid, SIGSTOP), 0);
  Children::AwaitStop(pid);
  EXPECT_TRUE(watcher.table->IsAlive(1));
  EXPECT_EQ(watcher.table->ReapDead(&NoTraces), 0U);
  EXPECT_EQ(watcher.table->Others(), 1U);
  ASSERT_EQ(::kill(pid, SIGCONT), 0);
  go.CloseWrite();
  EXPECT_EQ(children.Finish(), std::vector<int>{0});
  EXPECT_FALSE(watcher.table->IsAlive(1));
}

TEST_F(ProcessTableTest, S09_AReaperThatIsStoppedStallsNobody) {
  const Member watcher = Join();
  Children children;
  Pipe said;
  Pipe go;
  const pid_t dead = StartMember(children, said, go);
  ASSERT_EQ(said.Hear(), Letter(1));
  KillAndReap(dead);
  const pid_t reaper = children.Start([&]() -> std::string {
    const Member member = Open();
    member.table->ReapDead([](std::uint32_t) { ::raise(SIGSTOP); });
    return {};
  });
  Children::AwaitStop(reaper);
  EXPECT_EQ(watcher.table->ReapDead(&NoTraces), 0U);
  const Member newcomer = Join();
  EXPECT_EQ(newcomer.table->place(), 2U);
  ASSERT_EQ(::kill(reaper, SIGCONT), 0);
}

}  // namespace
}  // namespace ucmstore::test
