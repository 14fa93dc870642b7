// SPDX-License-Identifier: Apache-2.0
//
// Tests of places: taken, given back, freed of the dead, by real processes that are killed.
#include "shm/process_table.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <set>
#include <thread>
#include <vector>

#include "shm/process_fixture.h"

namespace ucmstore::test {
namespace {

TEST_F(ProcessTableTest, PlacesAreTakenAndGivenBack) {
  const Member first = Join();
  const Member second = Join();
  EXPECT_EQ(first.table->place(), 0U);
  EXPECT_EQ(second.table->place(), 1U);
  const ProcessEntry& entry = first.segment->processes()[1];
  EXPECT_EQ(entry.taken.load(), 1U);
  EXPECT_EQ(entry.pid.load(), static_cast<std::uint32_t>(::getpid()));
  EXPECT_GT(entry.since_ns.load(), 0U);
  EXPECT_TRUE(first.table->IsAlive(0));
  EXPECT_TRUE(first.table->IsAlive(1));
  EXPECT_FALSE(first.table->IsAlive(2));
  EXPECT_FALSE(first.table->IsAlive(kMaxProcesses));
  EXPECT_EQ(first.table->Others(), 1U);
  EXPECT_EQ(first.table->ReapDead(&NoTraces), 0U);
  EXPECT_FALSE(second.table->Join(&NoTraces).ok());

  std::vector<std::uint32_t> erased;
  second.table->Leave([&](std::uint32_t place) { erased.push_back(place); });
  EXPECT_EQ(erased, std::vector<std::uint32_t>{1});
  EXPECT_EQ(entry.taken.load(), 0U);
  EXPECT_FALSE(first.table->IsAlive(1));
  EXPECT_EQ(first.table->Others(), 0U);
  second.table->Leave([&](std::uint32_t place) { erased.push_back(place); });
  EXPECT_EQ(erased.size(), 1U);
  EXPECT_TRUE(second.table->Join(&NoTraces).ok());
  EXPECT_EQ(second.table->place(), 1U);
}

TEST_F(ProcessTableTest, TheDestructorLeaves) {
  const Member watcher = Join();
  std::vector<std::uint32_t> erased;
  {
    const Member member = Open();
    ASSERT_TRUE(member.table->Join([&](std::uint32_t place) { erased.push_back(place); }).ok());
  }
  EXPECT_EQ(erased, std::vector<std::uint32_t>{1});
  EXPECT_EQ(watcher.segment->processes()[1].taken.load(), 0U);
  EXPECT_FALSE(watcher.table->IsAlive(1));
}

TEST_F(ProcessTableTest, E01_TheDeadAreReapedOnce) {
  const Member watcher = Join();
  Children children;
  Pipe said;
  Pipe go;
  const pid_t pid = StartMember(children, said, go);
  ASSERT_EQ(said.Hear(), Letter(1));
  EXPECT_TRUE(watcher.table->IsAlive(1));
  EXPECT_EQ(watcher.table->ReapDead(&NoTraces), 0U);
  KillAndReap(pid);
  EXPECT_FALSE(watcher.table->IsAlive(1));
  EXPECT_EQ(watcher.table->Others(), 0U);
  std::vector<std::uint32_t> erased;
  const auto erase = [&](std::uint32_t place) {
    EXPECT_EQ(watcher.segment->processes()[place].taken.load(), 1U);
    EXPECT_FALSE(watcher.table->IsAlive(place));
    erased.push_back(place);
  };
  EXPECT_EQ(watcher.table->ReapDead(erase), 1U);
  EXPECT_EQ(erased, std::vector<std::uint32_t>{1});
  EXPECT_EQ(watcher.segment->processes()[1].taken.load(), 0U);
  EXPECT_EQ(watcher.table->ReapDead(erase), 0U);
}

TEST_F(ProcessTableTest, E01_ANewcomerErasesItsPredecessorFirst) {
  Children children;
  Pipe said;
  Pipe go;
  const pid_t pid = StartMember(children, said, go);
  ASSERT_EQ(said.Hear(), Letter(0));
  KillAndReap(pid);
  const Member member = Open();
  int calls = 0;
  ASSERT_TRUE(member.table
                  ->Join([&](std::uint32_t place) {
                    if (calls++ > 0) return;  // our own, at the end
                    EXPECT_EQ(place, 0U);
                    const ProcessEntry& entry = member.segment->processes()[0];
                    EXPECT_EQ(entry.taken.load(), 1U);
                    EXPECT_EQ(entry.pid.load(), static_cast<std::uint32_t>(pid));
                  })
                  .ok());
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(member.table->place(), 0U);
  EXPECT_EQ(member.segment->processes()[0].pid.load(), static_cast<std::uint32_t>(::getpid()));
  member.table->Leave(&NoTraces);
}

TEST_F(ProcessTableTest, E01_AReaperKilledOnTheWayIsFollowedByTheNext) {
  const Member watcher = Join();
  Children children;
  Pipe said;
  Pipe go;
  const pid_t dead = StartMember(children, said, go);
  ASSERT_EQ(said.Hear(), Letter(1));
  KillAndReap(dead);
  const pid_t reaper = children.Start([&]() -> std::string {
    const Member member = Open();
    member.table->ReapDead([](std::uint32_t) { ::raise(SIGKILL); });
    return "not killed";
  });
  KillAndReap(reaper);
  EXPECT_EQ(watcher.segment->processes()[1].taken.load(), 1U);
  std::vector<std::uint32_t> erased;
  EXPECT_EQ(watcher.table->ReapDead([&](std::uint32_t place) { erased.push_back(place); }), 1U);
  EXPECT_EQ(erased, std::vector<std::uint32_t>{1});
}

TEST_F(ProcessTableTest, E01_OfManyReapersOneErases) {
  const Member watcher = Join();
  const Member other = Join();
  Children children;
  Pipe said;
  Pipe go;
  constexpr int kDead = 12;
  std::vector<pid_t> pids;
  for (int i = 0; i < kDead; ++i) pids.push_back(StartMember(children, said, go));
  for (int i = 0; i < kDead; ++i) ASSERT_NE(said.Hear(), '\0');
  for (const pid_t pid : pids) KillAndReap(pid);
  std::array<std::atomic<int>, kMaxProcesses> erased{};
  std::array<std::atomic<int>, kMaxProcesses> inside{};
  std::atomic<std::uint32_t> reaped{0};
  const auto erase = [&](std::uint32_t place) {
    EXPECT_EQ(inside[place].fetch_add(1), 0);
    ::poll(nullptr, 0, 1);  // room for another to come in, if anything lets it
    erased[place].fetch_add(1);
    inside[place].fetch_sub(1);
  };
  {
    std::vector<std::jthread> threads;
    for (const Member* member : {&watcher, &watcher, &other, &other}) {
      threads.emplace_back([&, member] { reaped += member->table->ReapDead(erase); });
    }
  }
  reaped += watcher.table->ReapDead(erase);
  EXPECT_EQ(reaped.load(), static_cast<std::uint32_t>(kDead));
  for (std::uint32_t place = 0; place < kMaxProcesses; ++place) {
    EXPECT_EQ(erased[place].load(), place >= 2 && place < 2 + kDead ? 1 : 0);
  }
}

// ---- how many -----------------------------------------------------------------------------------

TEST_F(ProcessTableTest, SixtyFourProcessesJoinAtOnce) {
  const Member watcher = Join();
  constexpr std::uint32_t kProcesses = 64;
  Children children;
  Pipe said;
  Pipe go;
  for (std::uint32_t i = 0; i < kProcesses; ++i) StartMember(children, said, go);
  std::set<char> places;
  for (std::uint32_t i = 0; i < kProcesses; ++i) places.insert(said.Hear());
  EXPECT_EQ(places.size(), kProcesses);
  EXPECT_EQ(*places.begin(), Letter(1));
  EXPECT_EQ(watcher.table->Others(), kProcesses);
  EXPECT_EQ(watcher.table->ReapDead(&NoTraces), 0U);
  go.CloseWrite();
  EXPECT_EQ(children.Finish(), std::vector<int>(kProcesses, 0));
  EXPECT_EQ(watcher.table->Others(), 0U);
}

TEST_F(ProcessTableTest, OneTooManyIsRefusedInWords) {
  std::vector<Member> members;
  for (std::uint32_t i = 0; i < kMaxProcesses; ++i) members.push_back(Join());
  EXPECT_EQ(members.back().table->place(), kMaxProcesses - 1);
  const Member late = Open();
  const Status status = late.table->Join(&NoTraces);
  EXPECT_EQ(status.code, Code::kLimit);
  EXPECT_EQ(Lacks(status.text(), {FilePath().string(), "128", "option `name`"}), "");
  members[77].table.reset();
  EXPECT_TRUE(late.table->Join(&NoTraces).ok());
  EXPECT_EQ(late.table->place(), 77U);
}

// ---- files without a name -----------------------------------------------------------------------

TEST_F(ProcessTableTest, E11_AVanishedNameChangesNothing) {
  const Member first = Join();
  ASSERT_TRUE(first.segment->Unlink());
  auto second = ProcessTable::Open(*first.segment);
  ASSERT_TRUE(second.has_value());
  ASSERT_TRUE((*second)->Join(&NoTraces).ok());
  EXPECT_EQ((*second)->place(), 1U);
  const Member other = Join();  // of the new segment
  EXPECT_EQ(other.table->place(), 0U);
  EXPECT_EQ(first.table->Others(), 1U);
}

}  // namespace
}  // namespace ucmstore::test
