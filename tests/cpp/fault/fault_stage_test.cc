// SPDX-License-Identifier: Apache-2.0
//
// Each rule of a Fault stage does what it says to the shards it meets, and nothing else: what it
// does not spoil on purpose stays as promised. (That it keeps the whole contract when it has no
// rules is tested with the other stacks.)
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "support/batch.h"
#include "support/eventually.h"
#include "support/fault_control.h"
#include "support/scarce_threads.h"
#include "support/test_store.h"

namespace ucmstore::test {
namespace {

constexpr Geometry kGeometry = {100, 4};
const BlockId kA = MakeId(1, 1);

class FaultStageTest : public testing::Test {
 protected:
  FaultStageTest() : store_(Open("")) {}

  static StackConfig Config(const std::string& rules, const std::string& name) {
    StackConfig config;
    config.spec = "Fault|Dram";
    config.geometry = kGeometry;
    if (!rules.empty()) config.options["fault.rules"] = rules;
    if (!name.empty()) config.options["fault.name"] = name;
    return config;
  }
  static std::unique_ptr<TestStore> Open(const std::string& rules) {
    return OpenRaw(Config(rules, "fault-stage-test"));
  }
  [[nodiscard]] FaultControl fault() const { return FaultControl("fault-stage-test"); }
  TestStore& store() { return *store_; }
  void CloseStore() { store_.reset(); }
  void StoreA(std::uint64_t nonce) { ASSERT_TRUE(DumpBlock(store(), kGeometry, kA, nonce).ok()); }

 private:
  std::unique_ptr<TestStore> store_;
};

TEST_F(FaultStageTest, FlipChangesOneByteOfTheDestination) {
  StoreA(1);
  (void)fault().Arm("load flip shard=2");
  LoadBatch load(kGeometry);
  EXPECT_TRUE(Finish(store(), load.AddBlock(kA)).ok());
  EXPECT_EQ(load.Problem(0, 1), "");
  EXPECT_NE(load.Problem(2, 1), "");
  EXPECT_TRUE(load.GuardsIntact(2));
  fault().Disarm(0);
  EXPECT_EQ(BlockProblem(store(), kGeometry, kA, 1), "") << "what is stored is whole";
}

TEST(FaultStage, ATaskWhoseDelayOrDeadlineCannotBeKeptIsRefused) {
  ScarceThreads threads(1);
  StackConfig config;
  config.spec = "Fault|Dram";
  config.geometry = kGeometry;
  config.options["fault.name"] = "fault-scarce-test";
  config.workers = 1;
  config.start_thread = threads.starter();
  const auto store = OpenRaw(config);
  ASSERT_TRUE(DumpBlock(*store, kGeometry, kA, 1).ok());  // the worker has the only thread
  const FaultControl fault("fault-scarce-test");
  for (const std::string rule : {"load delay=1", "load hold"}) {
    (void)fault.Arm(rule);
    LoadBatch load(kGeometry);
    TaskDesc desc = load.AddBlock(kA).desc();
    desc.timeout_ms = kPatienceMs;
    TaskId task = 7;
    const Status status = store->Load(desc, &task);
    EXPECT_EQ(status.code, Code::kLimit) << rule << ": " << status.text();
    EXPECT_NE(status.text().find("ulimit -u"), std::string_view::npos) << status.text();
    EXPECT_EQ(task, 0U);
    EXPECT_TRUE(load.Untouched(0));
    EXPECT_EQ(store->Stats()["fault.tasks_in_flight"], 0);
    fault.Disarm(0);
  }
  threads.SetLeft(1);
  (void)fault.Arm("load delay=1");
  EXPECT_EQ(BlockProblem(*store, kGeometry, kA, 1), "");
}

TEST_F(FaultStageTest, FlipFindsItsByteInAnyList) {
  StoreA(1);
  (void)fault().Arm("load flip");
  LoadBatch load(kGeometry);
  load.Add(kA, 0, {{40}, {0}, {60}}).Add(kA, 1, {{100, true}}).Add(kA, 2, {{1}, {98, true}, {1}});
  EXPECT_TRUE(Finish(store(), load).ok());
  EXPECT_NE(load.Problem(0, 1), "");
  EXPECT_EQ(load.Problem(1, 1), "") << "nothing there to flip";
  EXPECT_EQ(load.Problem(2, 1), "") << "the byte in the middle is skipped";
}

TEST_F(FaultStageTest, ShortReportsFewerBytes) {
  StoreA(1);
  (void)fault().Arm("load short=30 nth=2");
  LoadBatch load(kGeometry);
  EXPECT_TRUE(Finish(store(), load.AddBlock(kA)).ok());
  EXPECT_EQ(load.result(0).bytes, 100U);
  EXPECT_EQ(load.result(1).bytes, 70U);
  (void)fault().Arm("load short=1000");
  LoadBatch none(kGeometry);
  EXPECT_TRUE(Finish(store(), none.AddBlock(kA)).ok());
  EXPECT_EQ(none.result(0).bytes, 0U);
}

TEST_F(FaultStageTest, ScribbleOverwritesAfterTheTaskHasEnded) {
  StoreA(1);
  (void)fault().Arm("load scribble shard=1");
  LoadBatch load(kGeometry);
  load.AddBlock(kA);
  const TaskId task = Submit(store(), load);
  EXPECT_TRUE(Eventually([&] { return IsDone(store(), task); }));
  EXPECT_EQ(load.Problem(1, 1), "") << "not before";
  EXPECT_TRUE(store().Wait(task, 0).ok());
  EXPECT_NE(load.Problem(1, 1), "");
  EXPECT_TRUE(load.GuardsIntact(1));
  EXPECT_EQ(load.Problem(0, 1), "");
}

TEST_F(FaultStageTest, HoldsAreReleasedOldestFirst) {
  StoreA(1);
  const FaultControl fault = this->fault();
  const std::uint64_t hold = fault.Arm("load hold");
  std::array<LoadBatch, 3> loads = {LoadBatch(kGeometry), LoadBatch(kGeometry),
                                    LoadBatch(kGeometry)};
  std::array<TaskId, 3> tasks{};
  for (std::size_t n = 0; n < 3; ++n) tasks[n] = Submit(store(), loads[n].Add(kA, 0));
  fault.AwaitHeld(hold, 3);
  EXPECT_FALSE(fault.TryAwaitHeld(hold, 4, 1));
  EXPECT_EQ(fault.ReleaseSome(hold, 1), 1U);
  EXPECT_TRUE(store().Wait(tasks[0], kPatienceMs).ok());
  EXPECT_EQ(store().Wait(tasks[1], 0).code, Code::kPending);
  EXPECT_TRUE(loads[1].Untouched(0)) << "held before it moves";
  EXPECT_EQ(fault.ReleaseSome(hold, 9), 2U);
  EXPECT_TRUE(store().Wait(tasks[1], kPatienceMs).ok());
  EXPECT_TRUE(store().Wait(tasks[2], kPatienceMs).ok());
  EXPECT_EQ(fault.ReleaseSome(hold, 0), 0U);
  EXPECT_EQ(fault.Hits(hold), 3U);
}

TEST_F(FaultStageTest, HeldAfterMeansDoneBelowAndUnknownAbove) {
  const FaultControl fault = this->fault();
  const std::uint64_t hold = fault.Arm("dump hold when=after shard=3");
  DumpBatch dump(kGeometry);
  dump.AddBlock(kA, 1);
  const TaskId task = Submit(store(), dump);
  fault.AwaitHeld(hold, 1);
  EXPECT_EQ(BlockProblem(store(), kGeometry, kA, 1), "");
  EXPECT_EQ(store().Wait(task, 0).code, Code::kPending);
  EXPECT_TRUE(store().Cancel(task).ok());
  EXPECT_EQ(store().Wait(task, 0).code, Code::kPending) << "it has begun";
  fault.Release(hold);
  EXPECT_TRUE(store().Wait(task, kPatienceMs).ok());
}

TEST_F(FaultStageTest, DelayedShardsMayBeCancelledAndTheirTimersGo) {
  StoreA(1);
  (void)fault().Arm("load delay=600000 shard=1");
  for (int n = 0; n < 50; ++n) {
    LoadBatch load(kGeometry);
    const TaskId task = Submit(store(), load.AddBlock(kA));
    EXPECT_TRUE(store().Cancel(task).ok());
    const Status status = store().Wait(task, kPatienceMs);
    EXPECT_EQ(status.code, Code::kCancelled) << status.message;
    EXPECT_EQ(load.result(1).code, Code::kCancelled);
    EXPECT_TRUE(load.Untouched(1));
  }
  EXPECT_EQ(store().Stats()["fault.held_shards"], 0);
  EXPECT_EQ(store().Stats()["fault.tasks_in_flight"], 0);
}

TEST_F(FaultStageTest, ThrowEndsTheShardAndSparesTheProcess) {
  StoreA(1);
  (void)fault().Arm("load throw shard=0");
  LoadBatch load(kGeometry);
  const Status status = Finish(store(), load.AddBlock(kA));
  EXPECT_EQ(status.code, Code::kInternal);
  EXPECT_NE(status.text().find("threw"), std::string_view::npos) << status.message;
  EXPECT_EQ(load.Problem(1, 1), "");
}

TEST_F(FaultStageTest, LookupsAreDelayedHeldAndRefused) {
  StoreA(1);
  const FaultControl fault = this->fault();
  (void)fault.Arm("lookup delay=5 count=1");
  EXPECT_TRUE(IsPresent(store(), kA));
  const std::uint64_t hold = fault.Arm("lookup hold count=1");
  std::atomic<bool> answered{false};
  std::jthread asker([&] {
    EXPECT_TRUE(IsPresent(store(), kA));
    answered = true;
  });
  fault.AwaitHeld(hold, 1);
  EXPECT_FALSE(answered);
  fault.Release(hold);
  asker.join();
  EXPECT_TRUE(answered);
}

TEST_F(FaultStageTest, RulesComeWithTheOptionsToo) {
  const auto other = OpenRaw(Config("load fail=corruption nth=1", ""));
  ASSERT_TRUE(DumpBlock(*other, kGeometry, kA, 1).ok());
  LoadBatch load(kGeometry);
  EXPECT_EQ(Finish(*other, load.Add(kA, 0)).code, Code::kCorruption);
  EXPECT_EQ(BlockProblem(*other, kGeometry, kA, 1), "");
}

TEST_F(FaultStageTest, ABadRuleOrATakenNameIsRefusedAtOpen) {
  std::unique_ptr<TestStore> other;
  const Status bad = TryOpenRaw(Config("load explode", ""), &other);
  EXPECT_EQ(bad.code, Code::kInvalidArgument);
  EXPECT_NE(bad.text().find("explode"), std::string_view::npos) << bad.message;
  const Status taken = TryOpenRaw(Config("", "fault-stage-test"), &other);
  EXPECT_EQ(taken.code, Code::kInvalidArgument);
  EXPECT_NE(taken.text().find("fault-stage-test"), std::string_view::npos) << taken.message;
  EXPECT_EQ(other, nullptr);
  StoreA(1);  // ours is as it was
  CloseStore();
  EXPECT_TRUE(TryOpenRaw(Config("", "fault-stage-test"), &other).ok()) << "the name is free again";
}

TEST_F(FaultStageTest, NeverEndsWithTheStore) {
  StoreA(1);
  const FaultControl fault = this->fault();
  const std::uint64_t never = fault.Arm("load never");
  std::atomic<int> called{0};
  LoadBatch load(kGeometry);
  TaskDesc desc = load.AddBlock(kA).desc();
  desc.on_done_ctx = &called;
  desc.on_done = [](void* ctx, TaskId) { ++*static_cast<std::atomic<int>*>(ctx); };
  TaskId task = 0;
  ASSERT_TRUE(store().Load(desc, &task).ok());
  fault.AwaitHeld(never, 4);
  EXPECT_EQ(store().Wait(task, 20).code, Code::kPending);
  EXPECT_TRUE(store().Close(kPatienceMs));
  EXPECT_EQ(called, 1);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(load.result(i).code, Code::kClosed);
    EXPECT_TRUE(load.Untouched(i));
  }
}

// Tasks, cancels, deadlines, holds that are let go by another thread, all at once: every task ends,
// and nothing is left.
TEST_F(FaultStageTest, EveryTaskEndsWhateverRaces) {
  StoreA(1);
  const FaultControl fault = this->fault();
  Random random;
  for (const char* rule :
       {"load hold chance=0.05", "load hold when=before chance=0.05",
        "load hold when=after chance=0.05", "load delay=1 chance=0.1",
        "load delay=1 when=moving chance=0.1", "load delay=1 when=after chance=0.1",
        "load throw chance=0.05", "load fail chance=0.05", "load refuse chance=0.02"}) {
    (void)fault.Arm(rule);
  }
  std::atomic<bool> stop{false};
  std::jthread releaser([&] {
    while (!stop) {
      (void)fault.ReleaseSome(0, 3);
      std::this_thread::yield();
    }
  });
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&, mine = random.Fork()]() mutable {
        for (int n = 0; n < 400; ++n) {
          LoadBatch load(kGeometry);
          TaskDesc desc = load.AddBlock(kA).desc();
          if (mine.OneIn(3)) desc.timeout_ms = static_cast<std::uint32_t>(mine.Between(1, 3));
          TaskId task = 0;
          if (!store().Load(desc, &task).ok()) continue;
          if (mine.OneIn(3)) (void)store().Cancel(task);
          const Status status = store().Wait(task, kPatienceMs);
          ASSERT_NE(status.code, Code::kPending);
          for (std::size_t i = 0; i < load.size(); ++i) {
            if (load.result(i).code == Code::kOk) {
              EXPECT_EQ(load.Problem(i, 1), "");
            }
          }
        }
      });
    }
  }
  stop = true;
  releaser.join();
  EXPECT_EQ(store().Stats()["fault.tasks_in_flight"], 0);
  EXPECT_EQ(store().Stats()["fault.held_shards"], 0);
}

}  // namespace
}  // namespace ucmstore::test
