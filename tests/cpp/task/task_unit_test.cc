// SPDX-License-Identifier: Apache-2.0
//
// Task: shards counted down by many threads at once end it exactly once, in the promised order.
#include "task/task.h"

#include <gtest/gtest.h>

#include <atomic>
#include <semaphore>

#include "support/batch.h"
#include "task/task_table.h"

namespace ucmstore::test {
namespace {

class CountingTask final : public Task {
 public:
  CountingTask(const TaskDesc& desc, std::atomic<int>& finished, std::atomic<int>& alive)
      : Task(TaskKind::kLoad, desc), finished_(finished), alive_(alive) {
    ++alive_;
  }
  ~CountingTask() override { --alive_; }

 private:
  void OnFinish() noexcept override { ++finished_; }
  std::atomic<int>& finished_;
  std::atomic<int>& alive_;
};

struct Counters {
  std::atomic<int> finished{0};
  std::atomic<int> alive{0};
  std::atomic<int> called{0};
};

TaskDesc DescOf(std::vector<Shard>& shards, std::vector<ShardResult>& results, std::size_t count) {
  shards.assign(count, Shard{MakeId(1, 1), nullptr, 0, 0});
  results.assign(count, ShardResult{});
  TaskDesc desc;
  desc.shards = shards.data();
  desc.results = results.data();
  desc.shard_count = static_cast<std::uint32_t>(count);
  return desc;
}

TEST(Task, ManyThreadsEndEachShardOnceAndTheTaskOnce) {
  for (int round = 0; round < 30; ++round) {
    constexpr std::size_t kShards = 200;
    Counters counters;
    std::vector<Shard> shards;
    std::vector<ShardResult> results;
    TaskDesc desc = DescOf(shards, results, kShards);
    desc.on_done_ctx = &counters;
    desc.on_done = [](void* ctx, TaskId) { ++static_cast<Counters*>(ctx)->called; };
    TaskTable table(4);
    TaskId id = 0;
    std::atomic<std::size_t> wins{0};
    {
      const auto task = std::make_shared<CountingTask>(desc, counters.finished, counters.alive);
      ASSERT_TRUE(table.Insert(task).ok());
      id = task->id();
      std::vector<std::jthread> threads;
      for (std::uint32_t t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
          for (std::size_t n = 0; n < kShards; ++n) {
            const std::size_t i = (n + std::size_t{50} * t) % kShards;
            if (task->EndShard(i, Status::Ok(), t + 1)) ++wins;
          }
        });
      }
    }
    EXPECT_TRUE(table.Wait(id, kPatienceMs).ok());
    EXPECT_EQ(wins, kShards);
    EXPECT_EQ(counters.finished, 1);
    EXPECT_EQ(counters.called, 1);
    EXPECT_EQ(counters.alive, 0) << "a task that is retired is gone";
    for (const ShardResult& result : results) {
      EXPECT_TRUE(result.bytes >= 1 && result.bytes <= 4);
    }
  }
}

TEST(Task, TheFirstErrorIsItsStatus) {
  Counters counters;
  std::vector<Shard> shards;
  std::vector<ShardResult> results;
  const auto task =
      std::make_shared<CountingTask>(DescOf(shards, results, 3), counters.finished, counters.alive);
  EXPECT_TRUE(task->EndShard(2, Status::Error(Code::kIoError, "first", 5), 0));
  EXPECT_FALSE(task->EndShard(2, Status::Ok(), 9)) << "only the first end of a shard counts";
  EXPECT_FALSE(task->Ended());
  EXPECT_TRUE(task->EndShard(0, Status::Error(Code::kNotFound, "second"), 0));
  EXPECT_TRUE(task->EndShard(1, Status::Ok(), 7));
  EXPECT_TRUE(task->Ended());
  EXPECT_EQ(task->status().code, Code::kIoError);
  EXPECT_EQ(task->status().sys_errno, 5);
  EXPECT_EQ(results[2].code, Code::kIoError);
  EXPECT_EQ(results[2].sys_errno, 5);
  EXPECT_EQ(results[0].code, Code::kNotFound);
  EXPECT_EQ(results[1].bytes, 7U);
}

TEST(Task, AwaitEndIsBoundedAndWakes) {
  Counters counters;
  std::vector<Shard> shards;
  std::vector<ShardResult> results;
  const auto task =
      std::make_shared<CountingTask>(DescOf(shards, results, 1), counters.finished, counters.alive);
  EXPECT_FALSE(task->AwaitEnd(std::chrono::steady_clock::now() + milliseconds(10)));
  std::jthread ender([&] { EXPECT_TRUE(task->EndShard(0, Status::Ok(), 1)); });
  EXPECT_TRUE(task->AwaitEnd(std::chrono::steady_clock::now() + milliseconds(kPatienceMs)));
}

// While on_done runs, the task is ended for the callback's own thread and for nobody else.
TEST(Task, EndedIsSeenInsideTheCallbackFirst) {
  struct Context {
    std::shared_ptr<CountingTask> task;
    std::binary_semaphore inside{0};
    std::binary_semaphore go{0};
    std::atomic<bool> ended_inside{false};
  } context;
  Counters counters;
  std::vector<Shard> shards;
  std::vector<ShardResult> results;
  TaskDesc desc = DescOf(shards, results, 1);
  desc.on_done_ctx = &context;
  desc.on_done = [](void* ctx, TaskId) {
    auto& self = *static_cast<Context*>(ctx);
    self.ended_inside = self.task->Ended();
    self.inside.release();
    self.go.acquire();
  };
  context.task = std::make_shared<CountingTask>(desc, counters.finished, counters.alive);
  std::jthread ender([&] { (void)context.task->EndShard(0, Status::Ok(), 1); });
  context.inside.acquire();
  EXPECT_TRUE(context.ended_inside);
  EXPECT_FALSE(context.task->Ended());
  EXPECT_FALSE(context.task->AwaitEnd(std::chrono::steady_clock::now() + milliseconds(5)));
  context.go.release();
  EXPECT_TRUE(context.task->AwaitEnd(std::chrono::steady_clock::now() + milliseconds(kPatienceMs)));
  ender.join();
  context.task.reset();
}

TEST(Task, CopiesItsArrays) {
  std::vector<std::byte> memory(10);
  std::vector<Segment> segments = {{memory.data(), 4}, {memory.data() + 4, 6}};
  std::vector<Shard> shards = {{MakeId(1, 1), segments.data(), 2, 3},
                               {MakeId(1, 2), nullptr, 0, 4},
                               {MakeId(1, 3), segments.data() + 1, 1, 5}};
  TaskDesc desc;
  desc.shards = shards.data();
  desc.shard_count = 3;
  Counters counters;
  const auto task = std::make_shared<CountingTask>(desc, counters.finished, counters.alive);
  segments.assign(2, Segment{nullptr, 99});
  shards.assign(3, Shard{});
  const std::span<const Shard> copy = task->shards();
  ASSERT_EQ(copy.size(), 3U);
  EXPECT_EQ(copy[0].index, 3U);
  EXPECT_EQ(copy[0].segments[0].size, 4U);
  EXPECT_EQ(copy[0].segments[1].data, memory.data() + 4);
  EXPECT_EQ(copy[1].segment_count, 0U);
  EXPECT_EQ(copy[2].segments[0].size, 6U);
  EXPECT_EQ(copy[2].block, MakeId(1, 3));
}

}  // namespace
}  // namespace ucmstore::test
