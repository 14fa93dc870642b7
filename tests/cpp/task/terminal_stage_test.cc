// SPDX-License-Identifier: Apache-2.0
//
// TerminalStage, over a medium that blocks, throws and fails on demand: deadlines and cancels with
// bytes in flight, dumps that follow one another, and what a broken medium may not break.
#include "task/terminal_stage.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "support/checks.h"
#include "support/scarce_threads.h"
#include "task/gate_stage.h"

namespace ucmstore::test {
namespace {

constexpr Geometry kTwo = {100, 2};
const BlockId kA = MakeId(1, 1);
const BlockId kB = MakeId(1, 2);

GateStage::Hook Throws() {
  return [](const BlockId&) -> Status { throw std::runtime_error("the medium threw"); };
}

GateStage::Hook Fails(Code code) {
  return [code](const BlockId&) { return Status::Error(code, "the medium failed", 5); };
}

TEST(TerminalStage, KeepsTheContractByItself) {
  GateStore store(kTwo);
  CheckRoundTrip(store, kTwo, {kA, kB});
  CheckShortShards(store, kTwo, MakeId(2, 1));
  CheckInvisibleUntilComplete(store, kTwo, MakeId(2, 2));
  CheckResultsOfAMixedTask(store, kTwo, MakeId(2, 3), MakeId(2, 4));
  CheckRetirement(store, kTwo, MakeId(2, 5));
  CheckOnDone(store, kTwo, MakeId(2, 6));
  CheckRefusalLeavesNothing(store, kTwo, MakeId(2, 7));
  EXPECT_EQ(store.stage().writers, 0);
}

TEST(TerminalStage, D04_ADeadlineOutwaitsABlockedReadAndEndsWhatIsQueued) {
  GateStore store(kTwo, {.workers = 1});
  const std::uint64_t nonce = NextNonce();
  ASSERT_TRUE(DumpBlock(store, kTwo, kA, nonce).ok());
  ASSERT_TRUE(DumpBlock(store, kTwo, kB, nonce).ok());
  Gate gate;
  store.stage().hooks.read = gate.hook();
  LoadBatch load(kTwo);
  load.AddBlock(kA).AddBlock(kB);
  TaskDesc desc = load.desc();
  desc.timeout_ms = 20;
  TaskId task = 0;
  ASSERT_TRUE(store.Load(desc, &task).ok());
  gate.AwaitArrival();
  EXPECT_EQ(store.Wait(task, 60).code, Code::kPending) << "its memory is in use";
  gate.LetThrough();
  EXPECT_EQ(store.Wait(task, kPatienceMs).code, Code::kTimeout);
  EXPECT_EQ(load.Problem(0, nonce), "");
  EXPECT_EQ(load.Problem(1, nonce), "");
  for (const std::size_t i : {2U, 3U}) {
    EXPECT_EQ(load.result(i).code, Code::kTimeout);
    EXPECT_TRUE(load.Untouched(i));
  }
}

// A deadline that nobody could keep is no deadline: the task is refused, and nothing is touched.
TEST(TerminalStage, ATaskWhoseDeadlineCannotBeKeptIsRefused) {
  ScarceThreads threads(1);
  GateStore store(kTwo, {.workers = 1, .start_thread = threads.starter()});
  ASSERT_TRUE(DumpBlock(store, kTwo, kA, 1).ok());  // the worker has the only thread
  LoadBatch load(kTwo);
  TaskDesc desc = load.AddBlock(kA).desc();
  desc.timeout_ms = kPatienceMs;
  std::atomic<int> calls{0};
  desc.on_done = [](void* ctx, TaskId) { ++*static_cast<std::atomic<int>*>(ctx); };
  desc.on_done_ctx = &calls;
  TaskId task = 7;
  const Status status = store.Load(desc, &task);
  EXPECT_EQ(status.code, Code::kLimit);
  for (const std::string_view word : {"Gate: ", "deadlines", "ulimit -u", "pids cgroup"}) {
    EXPECT_NE(status.text().find(word), std::string_view::npos) << status.text();
  }
  EXPECT_EQ(task, 0U);
  EXPECT_EQ(calls, 0);
  EXPECT_TRUE(load.Untouched(0));
  EXPECT_EQ(store.Stats()["tasks_in_flight"], 0);
  EXPECT_TRUE(Finish(store, load).ok()) << "without a deadline it needs no timer";
  EXPECT_EQ(load.Problem(0, 1), "");
  threads.SetLeft(1);
  ASSERT_TRUE(store.Load(desc, &task).ok());
  EXPECT_TRUE(store.Wait(task, kPatienceMs).ok());
}

TEST(TerminalStage, ATaskWithoutAWorkerIsRefused) {
  ScarceThreads threads(1);
  GateStore store(kTwo, {.workers = 1, .start_thread = threads.starter()});
  LoadBatch load(kTwo);
  TaskDesc desc = load.AddBlock(kA).desc();
  desc.timeout_ms = kPatienceMs;  // the timer has the only thread
  TaskId task = 7;
  const Status status = store.Load(desc, &task);
  EXPECT_EQ(status.code, Code::kLimit) << status.text();
  EXPECT_NE(status.text().find("worker"), std::string_view::npos) << status.text();
  EXPECT_EQ(task, 0U);
  EXPECT_TRUE(load.Untouched(0));
  EXPECT_EQ(store.Stats()["tasks_in_flight"], 0);
  threads.SetLeft(1);
  EXPECT_EQ(Finish(store, load).code, Code::kNotFound);
}

TEST(TerminalStage, TasksBehindAHungOneEndAtTheirDeadlines) {
  GateStore store(kTwo, {.workers = 1});
  Gate gate;
  store.stage().hooks.read = gate.hook();
  LoadBatch hung(kTwo);
  const TaskId first = Submit(store, hung.Add(kA, 0));
  gate.AwaitArrival();
  std::vector<LoadBatch> loads(100, LoadBatch(kTwo));
  std::vector<TaskId> tasks;
  for (LoadBatch& load : loads) {
    TaskDesc desc = load.AddBlock(kB).desc();
    desc.timeout_ms = 1 + static_cast<std::uint32_t>(tasks.size() % 7);
    tasks.emplace_back();
    ASSERT_TRUE(store.Load(desc, &tasks.back()).ok());
  }
  for (const TaskId task : tasks) EXPECT_EQ(store.Wait(task, kPatienceMs).code, Code::kTimeout);
  EXPECT_EQ(store.Stats()["queued_jobs"], 0);
  gate.LetThrough();
  EXPECT_EQ(store.Wait(first, kPatienceMs).code, Code::kNotFound);
}

TEST(TerminalStage, CancelReachesWhatIsQueuedAndNotWhatMoves) {
  GateStore store(kTwo, {.workers = 1});
  ASSERT_TRUE(DumpBlock(store, kTwo, kA, 1).ok());
  Gate gate;
  store.stage().hooks.read = gate.hook();
  LoadBatch load(kTwo);
  load.AddBlock(kA).AddBlock(kB);
  const TaskId task = Submit(store, load);
  gate.AwaitArrival();
  EXPECT_TRUE(store.Cancel(task).ok());
  EXPECT_TRUE(store.Cancel(task).ok());
  EXPECT_EQ(store.Wait(task, 5).code, Code::kPending);
  gate.LetThrough();
  EXPECT_EQ(store.Wait(task, kPatienceMs).code, Code::kCancelled);
  EXPECT_EQ(load.Problem(0, 1), "");
  EXPECT_EQ(load.result(2).code, Code::kCancelled);
  EXPECT_TRUE(load.Untouched(2));
}

// A dump of a shard that is being written follows the first and shares its end.
TEST(TerminalStage, ADumpFollowsAnotherOfTheSameShards) {
  GateStore store(kTwo);
  Gate gate;
  store.stage().hooks.write = gate.hook();
  DumpBatch first(kTwo);
  DumpBatch second(kTwo);
  const TaskId leads = Submit(store, first.AddBlock(kA, 11));
  gate.AwaitArrival();
  const TaskId follows = Submit(store, second.AddBlock(kA, 22));
  EXPECT_EQ(store.Wait(follows, 20).code, Code::kPending);
  gate.LetThrough();
  EXPECT_TRUE(store.Wait(leads, kPatienceMs).ok());
  EXPECT_TRUE(store.Wait(follows, kPatienceMs).ok());
  EXPECT_EQ(second.result(0).bytes, kTwo.shard_size);
  EXPECT_EQ(BlockProblem(store, kTwo, kA, 11), "");
  EXPECT_EQ(store.stage().writes, 1);
  EXPECT_EQ(store.stage().commits, 1);
}

TEST(TerminalStage, AFollowerIsEndedByItsOwnDeadline) {
  GateStore store(kTwo);
  Gate gate;
  store.stage().hooks.write = gate.hook();
  DumpBatch first(kTwo);
  const TaskId leads = Submit(store, first.AddBlock(kA, 11));
  gate.AwaitArrival();
  for (int round = 0; round < 20; ++round) {
    DumpBatch second(kTwo);
    TaskDesc desc = second.AddBlock(kA, 22).desc();
    desc.timeout_ms = round % 2 == 0 ? 1 : 10;
    TaskId follows = 0;
    ASSERT_TRUE(store.Dump(desc, &follows).ok());
    EXPECT_EQ(store.Wait(follows, kPatienceMs).code, Code::kTimeout);
  }
  gate.LetThrough();
  EXPECT_TRUE(store.Wait(leads, kPatienceMs).ok());
  EXPECT_EQ(BlockProblem(store, kTwo, kA, 11), "");
}

TEST(TerminalStage, FollowersOfAFailureFailAndTheNextSucceeds) {
  GateStore store(kTwo, {.workers = 4});
  Gate gate;
  store.stage().hooks.write = [&](const BlockId&) {
    (void)gate.Pass();
    return Status::Error(Code::kNoSpace, "the disk is full", 28);
  };
  DumpBatch first(kTwo);
  DumpBatch second(kTwo);
  const TaskId leads = Submit(store, first.AddBlock(kA, 11));
  gate.AwaitArrival();
  const TaskId follows = Submit(store, second.AddBlock(kA, 22));
  EXPECT_EQ(store.Wait(follows, 20).code, Code::kPending);
  gate.LetThrough(9);
  EXPECT_EQ(store.Wait(leads, kPatienceMs).code, Code::kNoSpace);
  const Status status = store.Wait(follows, kPatienceMs);
  EXPECT_TRUE(status.code == Code::kAborted || status.code == Code::kNoSpace) << status.message;
  EXPECT_EQ(store.stage().writers, 0) << "a trace of it is left";
  store.stage().hooks.write = nullptr;
  ASSERT_TRUE(DumpBlock(store, kTwo, kA, 33).ok());
  EXPECT_EQ(BlockProblem(store, kTwo, kA, 33), "");
}

TEST(TerminalStage, D03_ABrokenMediumIsAStatus) {
  struct Line {
    const char* what;
    GateStage::Hook GateStage::Hooks::* hook;
    bool dump;
  };
  const Line lines[] = {{"read", &GateStage::Hooks::read, false},
                        {"create", &GateStage::Hooks::create, true},
                        {"write", &GateStage::Hooks::write, true},
                        {"commit", &GateStage::Hooks::commit, true}};
  GateStore store(kTwo);
  ASSERT_TRUE(DumpBlock(store, kTwo, kB, 7).ok());
  for (const Line& line : lines) {
    for (const bool throws : {true, false}) {
      store.stage().hooks.*line.hook = throws ? Throws() : Fails(Code::kIoError);
      const Code want = throws ? Code::kInternal : Code::kIoError;
      LoadBatch load(kTwo);
      DumpBatch dump(kTwo);
      const Status status =
          line.dump ? Finish(store, dump.AddBlock(kA, 1)) : Finish(store, load.AddBlock(kB));
      EXPECT_EQ(status.code, want) << line.what << ": " << status.message;
      EXPECT_NE(status.text().find(throws ? "threw" : "failed"), std::string_view::npos);
      store.stage().hooks.*line.hook = nullptr;
      EXPECT_FALSE(IsPresent(store, kA)) << line.what;
      EXPECT_EQ(store.stage().writers, 0) << line.what;
      EXPECT_EQ(BlockProblem(store, kTwo, kB, 7), "") << line.what;
    }
  }
  ASSERT_TRUE(DumpBlock(store, kTwo, kA, 8).ok());
  EXPECT_EQ(BlockProblem(store, kTwo, kA, 8), "");
}

TEST(TerminalStage, AFindThatThrowsOrFailsIsAnErrorWithoutAnswers) {
  GateStore store(kTwo);
  ASSERT_TRUE(DumpBlock(store, kTwo, kA, 7).ok());
  for (const bool throws : {true, false}) {
    store.stage().hooks.find = throws ? Throws() : Fails(Code::kIoError);
    std::uint8_t found = 0xEE;
    LookupDesc desc;
    desc.blocks = &kA;
    desc.count = 1;
    EXPECT_FALSE(store.Lookup(desc, &found).ok());
    EXPECT_EQ(found, kAbsent);
    // A dump does not depend on it.
    store.stage().hooks.find = Fails(Code::kIoError);
    EXPECT_TRUE(DumpBlock(store, kTwo, kB, 8).ok());
    store.stage().hooks.find = nullptr;
  }
  EXPECT_EQ(BlockProblem(store, kTwo, kA, 7), "");
}

TEST(TerminalStage, AMediumThatForgetsAShardFailsIt) {
  GateStore store(kTwo);
  ASSERT_TRUE(DumpBlock(store, kTwo, kA, 7).ok());
  store.stage().hooks.forgets_results = true;
  LoadBatch load(kTwo);
  EXPECT_EQ(Finish(store, load.AddBlock(kA)).code, Code::kInternal);
  EXPECT_EQ(DumpBlock(store, kTwo, kB, 8).code, Code::kInternal);
  store.stage().hooks.forgets_results = false;
  EXPECT_FALSE(IsPresent(store, kB));
  EXPECT_EQ(BlockProblem(store, kTwo, kA, 7), "");
}

TEST(TerminalStage, N01_CountersEqualWhatHappened) {
  GateStore store(kTwo);
  for (std::uint64_t b = 0; b < 60; ++b) {
    ASSERT_TRUE(DumpBlock(store, kTwo, MakeId(4, b), NextNonce()).ok());
  }
  std::vector<BlockId> ids;
  for (std::uint64_t b = 0; b < 100; ++b) ids.push_back(MakeId(4, b));
  (void)Presence(store, ids);
  for (std::uint64_t b = 50; b < 70; ++b) {
    LoadBatch load(kTwo);
    (void)Finish(store, load.AddBlock(MakeId(4, b)));
  }
  DumpBatch refused(kTwo);
  EXPECT_FALSE(Finish(store, refused.Add(kA, 9, 1)).ok());
  auto stats = store.Stats();
  EXPECT_EQ(stats["lookup_calls"], 1);
  EXPECT_EQ(stats["lookup_blocks"], 100);
  EXPECT_EQ(stats["lookup_hits_memory"] + stats["lookup_hits_below"], 60);
  EXPECT_EQ(stats["lookup_misses"], 40);
  EXPECT_EQ(stats["dump_tasks"], 60);
  EXPECT_EQ(stats["dump_shards"], 120);
  EXPECT_EQ(stats["dump_bytes"], 60 * 2 * 100);
  EXPECT_EQ(stats["load_tasks"], 20);
  EXPECT_EQ(stats["load_shards"], 40);
  EXPECT_EQ(stats["load_bytes"], 10 * 2 * 100);
  EXPECT_EQ(stats["load_not_found"], 20);
  EXPECT_EQ(stats["load_errors"], 0);
  EXPECT_EQ(stats["committed_blocks"], 60);
  EXPECT_EQ(stats["tasks_in_flight"], 0);
}

TEST(TerminalStage, RefusesASetupThatCannotBe) {
  SetupV1 good;
  good.shard_size = 100;
  good.shards_per_block = 2;
  const auto refused = [](SetupV1 setup) {
    GateStage stage;
    const Status status = stage.Setup(setup);
    EXPECT_EQ(status.code, Code::kInvalidArgument) << status.message;
    EXPECT_NE(status.text().find("Gate"), std::string_view::npos) << status.message;
    // Only destroy may follow, but a mistake must not be a crash.
    TaskId task = 77;
    EXPECT_FALSE(stage.Load(TaskDesc{}, &task).ok());
    EXPECT_FALSE(stage.Wait(1, 0).ok());
    EXPECT_TRUE(stage.Close(0));
  };
  SetupV1 setup = good;
  setup.shard_size = 0;
  refused(setup);
  setup = good;
  setup.shards_per_block = 0;
  refused(setup);
  setup = good;
  setup.shard_size = 1ULL << 32;
  refused(setup);
  setup = good;
  setup.struct_size = 8;
  refused(setup);
  setup = good;
  setup.flags = 1;
  refused(setup);
  GateStage other;
  setup = good;
  setup.below = &other;
  refused(setup);
}

TEST(TerminalStage, WithoutARuntimeItMakesItsOwn) {
  auto stage = std::make_unique<GateStage>();
  SetupV1 setup;
  setup.shard_size = 100;
  setup.shards_per_block = 2;
  std::array<std::uint64_t, 64> stranger{};  // a runtime of a host that is not ours
  setup.runtime = stranger.data();
  ASSERT_TRUE(stage->Setup(setup).ok());
  std::vector<std::byte> memory(100);
  const Segment segment{memory.data(), 100};
  const Shard shard{kA, &segment, 1, 0};
  TaskDesc desc;
  desc.shards = &shard;
  desc.shard_count = 1;
  TaskId task = 0;
  ASSERT_TRUE(stage->Dump(desc, &task).ok());
  EXPECT_TRUE(stage->Wait(task, kPatienceMs).ok());
  EXPECT_TRUE(stage->Close(kPatienceMs));
}

}  // namespace
}  // namespace ucmstore::test
