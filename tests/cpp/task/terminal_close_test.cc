// SPDX-License-Identifier: Apache-2.0
//
// TerminalStage, at its end and in old age: closing with bytes in flight and with half-written
// blocks that a slow or hung medium does not remove, and blocks that nobody completes.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "support/checks.h"
#include "support/eventually.h"
#include "task/gate_stage.h"

namespace ucmstore::test {
namespace {

constexpr Geometry kTwo = {100, 2};
const BlockId kA = MakeId(1, 1);

TEST(TerminalStage, ClosingEndsQueuedTasksAndCallsBackFirst) {
  auto store = std::make_unique<GateStore>(kTwo, RuntimeOptions{.workers = 1});
  Gate gate;
  store->stage().hooks.read = gate.hook();
  std::atomic<int> called{0};
  std::vector<LoadBatch> loads(10, LoadBatch(kTwo));
  for (LoadBatch& load : loads) {
    TaskDesc desc = load.AddBlock(kA).desc();
    desc.on_done_ctx = &called;
    desc.on_done = [](void* ctx, TaskId) { ++*static_cast<std::atomic<int>*>(ctx); };
    TaskId task = 0;
    ASSERT_TRUE(store->Load(desc, &task).ok());
  }
  gate.AwaitArrival();
  EXPECT_FALSE(store->Close(20)) << "a read still moves";
  EXPECT_FALSE(store->stage().shut) << "nothing may be torn down under it";
  EXPECT_EQ(called, 9);
  TaskId task = 77;
  LoadBatch late(kTwo);
  EXPECT_EQ(store->Load(late.AddBlock(kA).desc(), &task).code, Code::kClosed);
  EXPECT_EQ(task, 0U);
  gate.LetThrough();
  EXPECT_TRUE(store->Close(kPatienceMs));
  EXPECT_EQ(called, 10);
}

TEST(TerminalStage, ClosingRemovesIncompleteBlocks) {
  auto store = std::make_unique<GateStore>(kTwo);
  GateStage& stage = store->stage();
  ASSERT_TRUE(DumpShard(*store, kTwo, kA, 0, 1).ok());
  EXPECT_EQ(stage.writers, 1);
  ASSERT_TRUE(stage.Close(kPatienceMs));
  EXPECT_EQ(stage.writers, 0);
  EXPECT_TRUE(stage.shut);
}

void DumpHalves(TestStore& store, std::uint64_t count) {
  for (std::uint64_t b = 0; b < count; ++b) {
    ASSERT_TRUE(DumpShard(store, kTwo, MakeId(5, b), 0, 1).ok());
  }
}

// Thousands of files on a slow disk: those that there is no time for are left to be reaped.
TEST(TerminalStage, ClosingAbandonsWhatThereIsNoTimeToRemove) {
  GateStore store(kTwo, {.workers = 1});
  GateStage& stage = store.stage();
  DumpHalves(store, 50);
  stage.hooks.reaps = true;
  stage.hooks.remove = [](const BlockId&) {
    std::this_thread::sleep_for(milliseconds(20));  // style: a slow medium
    return Status::Ok();
  };
  EXPECT_TRUE(stage.Close(0));
  EXPECT_GT(stage.abandoned, 0);
  EXPECT_EQ(stage.writers, 0);
}

TEST(TerminalStage, D04_ClosingIsBoundedWhenRemovalsHang) {
  GateStore store(kTwo, {.workers = 2});
  GateStage& stage = store.stage();
  DumpHalves(store, 50);
  Gate gate;
  stage.hooks.reaps = true;
  stage.hooks.remove = gate.hook();
  std::jthread closer([&] { EXPECT_FALSE(stage.Close(500)) << "two removals hang"; });
  gate.AwaitArrival();
  gate.AwaitArrival();
  closer.join();
  EXPECT_EQ(stage.abandoned, 48);
  EXPECT_FALSE(stage.shut);
  EXPECT_FALSE(stage.Close(0)) << "they still do";
  gate.LetThrough(2);
  EXPECT_TRUE(stage.Close(kPatienceMs));
  EXPECT_EQ(stage.writers, 0);
}

// Blocks age while dumps keep the only worker busy; the job that aborts them must be queued once,
// for the queue is made of the jobs themselves.
TEST(TerminalStage, AgeingUnderLoadKeepsTheQueueWhole) {
  GateStore store(kTwo, {.workers = 1, .incomplete_age = milliseconds(12)});
  store.stage().hooks.write = [](const BlockId&) {
    std::this_thread::sleep_for(milliseconds(2));  // style: a slow medium
    return Status::Ok();
  };
  std::uint64_t block = 100;
  for (int round = 0; round < 6; ++round) {
    std::vector<DumpBatch> dumps(40, DumpBatch(kTwo));
    std::vector<TaskId> tasks;
    for (DumpBatch& dump : dumps) {
      tasks.push_back(Submit(store, dump.Add(MakeId(3, block++), 0, 1)));
    }
    for (const TaskId task : tasks) ASSERT_TRUE(store.Wait(task, kPatienceMs).ok());
  }
  EXPECT_TRUE(Eventually([&] { return store.Stats()["incomplete_blocks"] == 0; }));
  EXPECT_EQ(store.stage().writers, 0);
}

TEST(TerminalStage, S10_AgeIsMeasuredOnTheClock) {
  ManualClock clock;
  GateStore store(kTwo, {.workers = 2, .incomplete_age = milliseconds(100), .clock = &clock});
  ASSERT_TRUE(DumpShard(store, kTwo, kA, 0, 1).ok());
  std::this_thread::sleep_for(milliseconds(60));  // style: real time passes, the clock stands
  EXPECT_EQ(store.Stats()["incomplete_blocks"], 1);
  clock.Advance(milliseconds(101));
  EXPECT_TRUE(Eventually([&] { return store.Stats()["incomplete_blocks"] == 0; }));
  EXPECT_EQ(DumpShard(store, kTwo, kA, 1, 1).code, Code::kAborted);
}

}  // namespace
}  // namespace ucmstore::test
