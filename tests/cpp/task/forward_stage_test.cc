// SPDX-License-Identifier: Apache-2.0
//
// ForwardStage: passes everything down unchanged, and one override is a stage.
#include "task/forward_stage.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "support/checks.h"
#include "task/gate_stage.h"
#include "task/stage_plugin.h"

namespace ucmstore::test {
namespace {

constexpr Geometry kTwo = {100, 2};

class Passing : public ForwardStage {
 public:
  Passing() : ForwardStage("Passing") {}
  using ForwardStage::CancelBelow;
  using ForwardStage::QueryBelow;
};

// The thirty lines: counts what goes by.
class CountsLoads final : public ForwardStage {
 public:
  CountsLoads() : ForwardStage("CountsLoads") {}
  Status Load(const TaskDesc& desc, TaskId* task) noexcept override {
    shards += desc.shard_count;
    return ForwardStage::Load(desc, task);
  }
  std::atomic<std::uint64_t> shards{0};
};

constexpr PluginV1 kGatePlugin = MakePlugin<GateStage>("Gate", "1", {});

template <typename Stage>
class Stacked final : public TestStore {
 public:
  explicit Stacked(bool with_plugin = true) : lower_(kTwo) {
    SetupV1 setup;
    setup.shard_size = kTwo.shard_size;
    setup.shards_per_block = kTwo.shards_per_block;
    setup.below = &lower_.stage();
    setup.below_plugin = with_plugin ? &kGatePlugin : nullptr;
    setup.runtime = &lower_.runtime();
    const Status status = stage_.Setup(setup);
    EXPECT_TRUE(status.ok()) << status.message;
  }
  ~Stacked() override { EXPECT_TRUE(stage_.Close(kPatienceMs)); }
  Status Lookup(const LookupDesc& desc, std::uint8_t* found) override {
    return stage_.Lookup(desc, found);
  }
  Status Load(const TaskDesc& desc, TaskId* task) override { return stage_.Load(desc, task); }
  Status Dump(const TaskDesc& desc, TaskId* task) override { return stage_.Dump(desc, task); }
  Status Check(TaskId task, bool* done) override { return stage_.Check(task, done); }
  Status Wait(TaskId task, std::uint32_t ms) override { return stage_.Wait(task, ms); }
  Status Cancel(TaskId task) override { return stage_.Cancel(task); }
  bool Close(std::uint32_t ms) override { return stage_.Close(ms); }
  std::map<std::string, double> Stats() override { return {}; }

  [[nodiscard]] Stage& stage() { return stage_; }
  [[nodiscard]] GateStore& lower() { return lower_; }

 private:
  GateStore lower_;
  Stage stage_;
};

TEST(ForwardStage, KeepsTheContractByPassingItOn) {
  Stacked<Passing> store;
  CheckRoundTrip(store, kTwo, {MakeId(1, 1), MakeId(1, 2)});
  CheckShortShards(store, kTwo, MakeId(1, 3));
  CheckInvisibleUntilComplete(store, kTwo, MakeId(1, 4));
  CheckResultsOfAMixedTask(store, kTwo, MakeId(1, 5), MakeId(1, 6));
  CheckRetirement(store, kTwo, MakeId(1, 7));
  CheckOnDone(store, kTwo, MakeId(1, 8));
  CheckRefusalLeavesNothing(store, kTwo, MakeId(1, 9));
}

TEST(ForwardStage, TaskIdsAreThoseOfTheStoreBelow) {
  Stacked<Passing> store;
  LoadBatch load(kTwo);
  const TaskId task = Submit(store, load.AddBlock(MakeId(1, 1)));
  EXPECT_EQ(store.lower().Wait(task, kPatienceMs).code, Code::kNotFound);
  bool done = false;
  EXPECT_EQ(store.Check(task, &done).code, Code::kNotFound) << "retired below is retired here";
}

TEST(ForwardStage, CancelReachesTheStoreBelow) {
  Stacked<Passing> store;
  Gate gate;
  store.lower().stage().hooks.read = gate.hook();
  std::array<LoadBatch, 2> busy = {LoadBatch(kTwo), LoadBatch(kTwo)};
  std::array<TaskId, 2> tasks{};
  for (std::size_t n = 0; n < 2; ++n) {
    tasks[n] = Submit(store, busy[n].Add(MakeId(1, n), 0));
    gate.AwaitArrival();
  }
  LoadBatch load(kTwo);
  const TaskId task = Submit(store, load.AddBlock(MakeId(1, 9)));
  EXPECT_TRUE(store.Cancel(task).ok());
  EXPECT_EQ(store.Wait(task, kPatienceMs).code, Code::kCancelled);
  EXPECT_EQ(store.Cancel(task).code, Code::kNotFound);
  gate.LetThrough(2);
  for (const TaskId each : tasks) EXPECT_EQ(store.Wait(each, kPatienceMs).code, Code::kNotFound);
}

TEST(ForwardStage, WithoutTheTableBelowCancelIsUnsupported) {
  Stacked<Passing> store(false);
  EXPECT_EQ(store.stage().QueryBelow("cancel/1"), nullptr);
  EXPECT_EQ(store.Cancel(1).code, Code::kUnsupported);
  Stacked<Passing> other;
  EXPECT_NE(other.stage().QueryBelow("stats/1"), nullptr);
  EXPECT_EQ(other.stage().QueryBelow("no such table/1"), nullptr);
}

TEST(ForwardStage, OneOverrideIsAStage) {
  Stacked<CountsLoads> store;
  CheckRoundTrip(store, kTwo, {MakeId(1, 1)});
  EXPECT_EQ(store.stage().shards, 3U);
}

TEST(ForwardStage, RefusesToStandAtTheBottom) {
  Passing stage;
  SetupV1 setup;
  setup.shard_size = 100;
  setup.shards_per_block = 1;
  const Status status = stage.Setup(setup);
  EXPECT_EQ(status.code, Code::kInvalidArgument);
  EXPECT_NE(status.text().find("Passing|Posix"), std::string_view::npos) << status.message;
  setup.struct_size = 4;
  EXPECT_EQ(stage.Setup(setup).code, Code::kInvalidArgument);
}

TEST(ForwardStage, AnExceptionInOpenIsAStatus) {
  class Throwing final : public ForwardStage {
   public:
    Throwing() : ForwardStage("Throwing") {}

   protected:
    Status Open(const StageSetup&) override { throw std::runtime_error("no luck today"); }
  };
  GateStore lower(kTwo);
  Throwing stage;
  SetupV1 setup;
  setup.shard_size = 100;
  setup.shards_per_block = 2;
  setup.below = &lower.stage();
  const Status status = stage.Setup(setup);
  EXPECT_EQ(status.code, Code::kInternal);
  EXPECT_NE(status.text().find("no luck today"), std::string_view::npos) << status.message;
  EXPECT_TRUE(stage.Close(kPatienceMs));
}

}  // namespace
}  // namespace ucmstore::test
