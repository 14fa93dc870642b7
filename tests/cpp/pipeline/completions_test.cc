// SPDX-License-Identifier: Apache-2.0
//
// Completions: each ended task announced once, in order, and forgotten when it is waited for.
#include "pipeline/completions.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "support/random.h"

namespace ucmstore {
namespace {

bool Readable(int fd) {
  pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&entry, 1, 0) == 1;
}

TaskDesc MustBegin(Completions& completions) {
  TaskDesc desc;
  EXPECT_TRUE(completions.Begin(desc).ok());
  return desc;
}

void End(const TaskDesc& desc, TaskId task) { desc.on_done(desc.on_done_ctx, task); }

TEST(Completions, AnnouncesOnceInTheOrderOfTheEnd) {
  const auto completions = Completions::Create().value();
  std::vector<TaskDesc> tasks;
  tasks.reserve(5);
  for (int i = 0; i < 5; ++i) tasks.push_back(MustBegin(*completions));
  EXPECT_EQ(completions->running(), 5U);
  for (const TaskId id : {50U, 10U, 30U, 20U, 40U}) End(tasks[id / 10 - 1], id);
  EXPECT_EQ(completions->running(), 0U);
  TaskId some[3];
  ASSERT_EQ(completions->Poll(some), 3U);
  EXPECT_TRUE(std::ranges::equal(some, std::vector<TaskId>{50, 10, 30}));
  ASSERT_EQ(completions->Poll(some), 2U);
  EXPECT_EQ(some[0], 20U);
  EXPECT_EQ(some[1], 40U);
  EXPECT_EQ(completions->Poll(some), 0U);
  EXPECT_EQ(completions->Poll({}), 0U);
}

TEST(Completions, DescriptorIsReadableWhileThereAreSome) {
  const auto completions = Completions::Create().value();
  End(MustBegin(*completions), 1);
  const int fd = completions->event_fd();
  EXPECT_TRUE(Readable(fd));  // ended before anybody asked for the descriptor
  completions->Retire(1);
  EXPECT_FALSE(Readable(fd));
  End(MustBegin(*completions), 2);
  End(MustBegin(*completions), 3);
  EXPECT_TRUE(Readable(fd));
  TaskId one[1];
  EXPECT_EQ(completions->Poll(one), 1U);
  EXPECT_TRUE(Readable(fd));
  EXPECT_EQ(completions->Poll(one), 1U);
  EXPECT_FALSE(Readable(fd));
  EXPECT_EQ(completions->event_fd(), fd);
}

TEST(Completions, WaitedTasksLeave) {
  const auto completions = Completions::Create().value();
  for (TaskId id = 1; id <= 10'000; ++id) {
    End(MustBegin(*completions), id);
    completions->Retire(id);
    ASSERT_EQ(completions->unannounced(), 0U);
  }
  TaskId one[1];
  EXPECT_EQ(completions->Poll(one), 0U);
}

TEST(Completions, ATaskWithItsOwnCallbackIsNotAnnounced) {
  const auto completions = Completions::Create().value();
  std::vector<TaskId> heard;
  TaskDesc desc;
  desc.on_done = [](void* ctx, TaskId task) {
    static_cast<std::vector<TaskId>*>(ctx)->push_back(task);
  };
  desc.on_done_ctx = &heard;
  ASSERT_TRUE(completions->Begin(desc).ok());
  EXPECT_EQ(completions->running(), 1U);
  End(desc, 7);
  EXPECT_EQ(heard, std::vector<TaskId>{7});
  EXPECT_EQ(completions->running(), 0U);
  EXPECT_EQ(completions->unannounced(), 0U);
}

TEST(Completions, ARefusedTaskLeavesNothing) {
  const auto completions = Completions::Create().value();
  completions->Withdraw(MustBegin(*completions));
  TaskDesc own;
  own.on_done = [](void*, TaskId) { FAIL() << "a refused task has no end"; };
  ASSERT_TRUE(completions->Begin(own).ok());
  completions->Withdraw(own);
  EXPECT_EQ(completions->running(), 0U);
  EXPECT_EQ(completions->unannounced(), 0U);
}

TEST(Completions, AStageThatCallsTwiceCountsOnce) {
  const auto completions = Completions::Create().value();
  const TaskDesc desc = MustBegin(*completions);
  const TaskDesc other = MustBegin(*completions);
  End(desc, 1);
  End(desc, 1);
  EXPECT_EQ(completions->running(), 1U);
  End(other, 2);
  TaskId all[8];
  EXPECT_EQ(completions->Poll(all), 2U);
}

TEST(Completions, AwaitIdleHearsOfTheLast) {
  const auto completions = Completions::Create().value();
  const TaskDesc desc = MustBegin(*completions);
  EXPECT_FALSE(completions->AwaitIdle(std::chrono::steady_clock::now()));
  std::thread thread([&] { End(desc, 1); });
  EXPECT_TRUE(completions->AwaitIdle(std::chrono::steady_clock::now() + milliseconds(60'000)));
  thread.join();
}

// Against a plain model, with many in flight: more than are kept for the next.
TEST(Completions, RandomMixMatchesAModel) {
  test::Random random;
  const auto completions = Completions::Create().value();
  const int fd = completions->event_fd();
  std::vector<std::pair<TaskId, TaskDesc>> running;
  std::vector<TaskId> ended;
  TaskId next = 1;
  for (int step = 0; step < 20'000; ++step) {
    const std::uint64_t what = random.Between(0, 9);
    if (what < 4 && running.size() < 500) {
      running.emplace_back(next++, MustBegin(*completions));
    } else if (what < 7 && !running.empty()) {
      const auto at =
          running.begin() + static_cast<std::ptrdiff_t>(random.Between(0, running.size() - 1));
      End(at->second, at->first);
      ended.push_back(at->first);
      running.erase(at);
    } else if (what == 7 && !running.empty()) {
      completions->Withdraw(running.back().second);
      running.pop_back();
    } else if (what == 8 && !ended.empty()) {
      const auto at =
          ended.begin() + static_cast<std::ptrdiff_t>(random.Between(0, ended.size() - 1));
      completions->Retire(*at);
      ended.erase(at);
    } else {
      std::vector<TaskId> some(random.Between(0, 5));
      some.resize(completions->Poll(some));
      ASSERT_LE(some.size(), ended.size());
      ASSERT_TRUE(std::equal(some.begin(), some.end(), ended.begin()));
      ended.erase(ended.begin(), ended.begin() + static_cast<std::ptrdiff_t>(some.size()));
    }
    ASSERT_EQ(completions->running(), running.size());
    ASSERT_EQ(completions->unannounced(), ended.size());
    ASSERT_EQ(Readable(fd), !ended.empty());
  }
  for (const auto& [id, desc] : running) End(desc, id);
}

}  // namespace
}  // namespace ucmstore
