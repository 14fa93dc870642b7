// SPDX-License-Identifier: Apache-2.0
//
// TaskTable: bounded, and an id names one task for ever: neither a retired one nor another table's.
#include "task/task_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "support/batch.h"

namespace ucmstore::test {
namespace {

class PlainTask final : public Task {
 public:
  explicit PlainTask(const TaskDesc& desc) : Task(TaskKind::kLoad, desc) {}
};

std::shared_ptr<Task> Ended() {
  auto task = std::make_shared<PlainTask>(TaskDesc{});
  task->EndEmpty();
  return task;
}

std::shared_ptr<Task> Running() {
  static const Shard shard{};
  TaskDesc desc;
  desc.shards = &shard;
  desc.shard_count = 1;
  return std::make_shared<PlainTask>(desc);
}

TEST(TaskTable, IsBoundedAndReusesItsSlots) {
  TaskTable table(3);
  std::set<TaskId> ids;
  std::vector<std::shared_ptr<Task>> tasks;
  for (int n = 0; n < 3; ++n) {
    tasks.push_back(Ended());
    ASSERT_TRUE(table.Insert(tasks.back()).ok());
    ids.insert(tasks.back()->id());
  }
  const auto one_more = Ended();
  EXPECT_EQ(table.Insert(one_more).code, Code::kBusy);
  EXPECT_EQ(table.size(), 3U);
  for (int n = 0; n < 1000; ++n) {
    const TaskId old = tasks.front()->id();
    EXPECT_TRUE(table.Wait(old, 0).ok());
    EXPECT_EQ(table.Find(old), nullptr);
    EXPECT_FALSE(table.Remove(old));
    tasks.erase(tasks.begin());
    tasks.push_back(Ended());
    ASSERT_TRUE(table.Insert(tasks.back()).ok());
    EXPECT_TRUE(ids.insert(tasks.back()->id()).second) << "an id came back";
    EXPECT_EQ(table.Find(tasks.back()->id()), tasks.back());
  }
  EXPECT_EQ(table.size(), 3U);
  EXPECT_EQ(table.All().size(), 3U);
}

TEST(TaskTable, KnowsNoIdsOfAnother) {
  TaskTable one(8);
  TaskTable two(8);
  for (int n = 0; n < 8; ++n) {
    const auto task = Ended();
    ASSERT_TRUE(one.Insert(task).ok());
    ASSERT_TRUE(two.Insert(Ended()).ok());
    EXPECT_NE(task->id(), 0U);
    EXPECT_EQ(two.Find(task->id()), nullptr);
    EXPECT_EQ(two.Wait(task->id(), 0).code, Code::kNotFound);
  }
}

TEST(TaskTable, NeighbouringIdsAreUnknown) {
  TaskTable table(100);
  const auto task = Running();
  ASSERT_TRUE(table.Insert(task).ok());
  for (int bit = 0; bit < 64; ++bit) {
    const TaskId near = task->id() ^ (TaskId{1} << bit);
    EXPECT_EQ(table.Find(near), nullptr) << bit;
    bool done = true;
    EXPECT_EQ(table.Check(near, &done).code, Code::kNotFound);
  }
  EXPECT_EQ(table.Find(0), nullptr);
  (void)task->EndShard(0, Status::Ok(), 0);
}

TEST(TaskTable, WaitIsPendingUntilTheEndAndRetiresOnce) {
  TaskTable table(2);
  const auto task = Running();
  ASSERT_TRUE(table.Insert(task).ok());
  EXPECT_EQ(table.Wait(task->id(), 0).code, Code::kPending);
  EXPECT_EQ(table.Wait(task->id(), 5).code, Code::kPending);
  EXPECT_EQ(table.size(), 1U);
  (void)task->EndShard(0, Status::Error(Code::kCorruption, "bad"), 0);
  EXPECT_EQ(table.Wait(task->id(), 0).code, Code::kCorruption);
  EXPECT_EQ(table.Wait(task->id(), 0).code, Code::kNotFound);
  EXPECT_EQ(table.size(), 0U);
}

TEST(TaskTable, CapacityIsKeptInItsRange) {
  EXPECT_EQ(TaskTable(0).capacity(), 1U);
  EXPECT_EQ(TaskTable(~0U).capacity(), TaskTable::kMaxCapacity);
}

// Insertions, endings, waits by several and removals, all at once: each task is retired once, and
// the table is empty in the end.
TEST(TaskTable, EveryTaskIsRetiredOnceWhoeverWaits) {
  TaskTable table(64);
  std::atomic<std::uint64_t> retired{0};
  std::atomic<std::uint64_t> inserted{0};
  std::atomic<std::uint64_t> busy{0};
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int n = 0; n < 3000; ++n) {
        const auto task = Running();
        if (!table.Insert(task).ok()) {
          ++busy;
          continue;
        }
        ++inserted;
        const TaskId id = task->id();
        std::jthread helper;
        if (n % 50 == 0) {
          helper = std::jthread([&] {
            if (table.Wait(id, kPatienceMs).ok()) ++retired;
          });
        }
        (void)task->EndShard(0, Status::Ok(), 0);
        if (table.Wait(id, kPatienceMs).ok()) ++retired;
        EXPECT_EQ(table.Find(id), nullptr);
      }
    });
  }
  threads.clear();
  EXPECT_EQ(retired, inserted);
  EXPECT_EQ(table.size(), 0U);
  EXPECT_TRUE(table.All().empty());
}

}  // namespace
}  // namespace ucmstore::test
