// SPDX-License-Identifier: Apache-2.0
//
// Promise 5: every task ends in bounded time, and what Wait has answered with anything but Pending
// is touched no more. A deadline or a cancel ends what has not begun and outwaits what moves. The
// lowest Fault of the stack holds shards where the test wants them, so nothing here sleeps to win
// a race.
#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>

#include "contract/contract.h"
#include "support/checks.h"
#include "support/eventually.h"

namespace ucmstore::test {
namespace {

class DeadlineContract : public Contract {
 protected:
  [[nodiscard]] static std::uint32_t MsOf(TimePoint from) {
    const auto took = std::chrono::steady_clock::now() - from;
    return static_cast<std::uint32_t>(std::chrono::duration_cast<milliseconds>(took).count());
  }
  void StoreBlocks(std::uint64_t count) {
    for (std::uint64_t b = 0; b < count; ++b) {
      nonces_.push_back(NextNonce());
      ASSERT_TRUE(DumpBlock(store(), geometry(), Id(b), nonces_.back()).ok());
    }
  }
  // Arms, and submits with a deadline; longer and longer ones, until the rule holds `count` shards
  // within it, however slow the machine is. Returns that deadline.
  struct Attempt {
    std::uint64_t rule;
    TaskId task;
  };
  std::uint32_t SubmitUntilHeld(const FaultControl& fault, std::uint32_t count, Attempt* last,
                                const std::function<Attempt(std::uint32_t ms)>& submit) {
    for (std::uint32_t ms = 25;; ms *= 4) {
      *last = submit(ms);
      if (fault.TryAwaitHeld(last->rule, count, ms) || ms > kPatienceMs) return ms;
      fault.ReleaseAll();
      EXPECT_NE(store().Wait(last->task, kPatienceMs).code, Code::kPending);
    }
  }
  [[nodiscard]] double HeldShards() {
    double held = 0;
    for (const auto& [name, value] : store().Stats()) {
      if (name.ends_with(".held_shards")) held += value;
    }
    return held;
  }
  static TaskDesc WithTimeout(TaskDesc desc, std::uint32_t ms) {
    desc.timeout_ms = ms;
    return desc;
  }
  std::vector<std::uint64_t> nonces_;
};

TEST_P(DeadlineContract, WaitIsPendingInTimeAndRetiresNothing) {
  StoreBlocks(1);
  const FaultControl fault = this->fault();
  const std::uint64_t hold = fault.Arm("load hold shard=0");
  LoadBatch load(geometry());
  load.AddBlock(Id(0));
  const TaskId task = Submit(store(), load);
  fault.AwaitHeld(hold, 1);
  const TimePoint start = std::chrono::steady_clock::now();
  for (const std::uint32_t ms : {0U, 1U, 20U}) {
    EXPECT_EQ(store().Wait(task, ms).code, Code::kPending);
    EXPECT_FALSE(IsDone(store(), task));
  }
  EXPECT_GE(MsOf(start), 21U) << "Wait gave up before its time";
  fault.Release(hold);
  EXPECT_TRUE(store().Wait(task, kPatienceMs).ok());
  for (std::size_t i = 0; i < load.size(); ++i) EXPECT_EQ(load.Problem(i, nonces_[0]), "");
}

// D04 and S04: the memory is the store's until what moves has moved, whatever the deadline says.
TEST_P(DeadlineContract, D04_ADeadlineOutwaitsWhatMoves) {
  StoreBlocks(2);
  const FaultControl fault = this->fault();
  LoadBatch load(geometry());
  Attempt last{};
  const std::uint32_t deadline = SubmitUntilHeld(fault, 1, &last, [&](std::uint32_t ms) {
    const std::uint64_t moving = fault.Arm("load hold nth=1");
    (void)fault.Arm("load hold when=before nth=2");
    load = LoadBatch(geometry());
    load.Add(Id(0), 0).Add(Id(1), 0);
    TaskId task = 0;
    EXPECT_TRUE(store().Load(WithTimeout(load.desc(), ms), &task).ok());
    return Attempt{moving, task};
  });
  // The second shard has not begun: the deadline ends it. The first goes on.
  EXPECT_EQ(store().Wait(last.task, deadline).code, Code::kPending);
  EXPECT_TRUE(Eventually([this] { return HeldShards() == 1; }));
  EXPECT_EQ(store().Wait(last.task, 0).code, Code::kPending);
  fault.ReleaseAll();  // too late for the second
  const Status status = store().Wait(last.task, kPatienceMs);
  EXPECT_EQ(status.code, Code::kTimeout) << status.message;
  EXPECT_EQ(load.result(1).code, Code::kTimeout);
  EXPECT_EQ(load.Problem(0, nonces_[0]), "") << "what moved was delivered";
  EXPECT_TRUE(load.Untouched(1));
}

TEST_P(DeadlineContract, D04_ADeadlineEndsWhatHasNotBegun) {
  StoreBlocks(1);
  const FaultControl fault = this->fault();
  const std::uint64_t hold = fault.Arm("load hold when=before");
  LoadBatch load(geometry());
  load.AddBlock(Id(0));
  TaskDesc desc = load.desc();
  desc.timeout_ms = 20;
  TaskId task = 0;
  ASSERT_TRUE(store().Load(desc, &task).ok());
  EXPECT_EQ(store().Wait(task, kPatienceMs).code, Code::kTimeout);
  fault.Release(hold);
  for (std::size_t i = 0; i < load.size(); ++i) {
    EXPECT_EQ(load.result(i).code, Code::kTimeout);
    EXPECT_TRUE(load.Untouched(i));
  }
  // The failure is forgotten.
  EXPECT_EQ(BlockProblem(store(), geometry(), Id(0), nonces_[0]), "");
}

TEST_P(DeadlineContract, ADumpThatTimedOutIsInvisibleAndCanBeDumpedAgain) {
  const FaultControl fault = this->fault();
  const std::uint64_t hold = fault.Arm("dump hold when=before shard=0");
  DumpBatch dump(geometry());
  dump.AddBlock(Id(0), NextNonce());
  TaskDesc desc = dump.desc();
  desc.timeout_ms = 20;
  TaskId task = 0;
  ASSERT_TRUE(store().Dump(desc, &task).ok());
  EXPECT_EQ(store().Wait(task, kPatienceMs).code, Code::kTimeout);
  dump.Scramble();  // it is ours again
  fault.Release(hold);
  EXPECT_FALSE(IsPresent(store(), Id(0)));
  EXPECT_EQ(AbsenceProblem(store(), geometry(), Id(0)), "");
  ASSERT_TRUE(DumpBlock(store(), geometry(), Id(0), NextNonce()).ok());
  EXPECT_EQ(BlockProblem(store(), geometry(), Id(0)), "");
}

TEST_P(DeadlineContract, ADumpReadsItsSourceUntilItHasEnded) {
  const FaultControl fault = this->fault();
  const std::uint64_t nonce = NextNonce();
  DumpBatch dump(geometry());
  Attempt last{};
  const std::uint32_t deadline = SubmitUntilHeld(fault, shards(), &last, [&](std::uint32_t ms) {
    const std::uint64_t hold = fault.Arm("dump hold");
    dump = DumpBatch(geometry());
    dump.AddBlock(Id(0), nonce);
    TaskId task = 0;
    EXPECT_TRUE(store().Dump(WithTimeout(dump.desc(), ms), &task).ok());
    return Attempt{hold, task};
  });
  EXPECT_EQ(store().Wait(last.task, deadline * 2).code, Code::kPending) << "all of it moves";
  fault.ReleaseAll();
  EXPECT_TRUE(store().Wait(last.task, kPatienceMs).ok());
  dump.Scramble();
  EXPECT_EQ(BlockProblem(store(), geometry(), Id(0), nonce), "");
}

TEST_P(DeadlineContract, CancelEndsWhatHasNotBegun) {
  StoreBlocks(2);
  const FaultControl fault = this->fault();
  const std::uint64_t moving = fault.Arm("load hold nth=1");
  const std::uint64_t waiting = fault.Arm("load hold when=before nth=2");
  LoadBatch load(geometry());
  load.Add(Id(0), 0).Add(Id(1), 0);
  const TaskId task = Submit(store(), load);
  fault.AwaitHeld(moving, 1);
  fault.AwaitHeld(waiting, 1);
  EXPECT_TRUE(store().Cancel(task).ok());
  EXPECT_EQ(store().Wait(task, 20).code, Code::kPending);
  EXPECT_TRUE(store().Cancel(task).ok()) << "again";
  fault.Release(moving);
  EXPECT_EQ(store().Wait(task, kPatienceMs).code, Code::kCancelled);
  EXPECT_EQ(load.result(1).code, Code::kCancelled);
  EXPECT_EQ(load.Problem(0, nonces_[0]), "");
  EXPECT_TRUE(load.Untouched(1));
  EXPECT_EQ(store().Cancel(task).code, Code::kNotFound);
}

TEST_P(DeadlineContract, CancelOfAnEndedTaskChangesNothing) {
  StoreBlocks(1);
  LoadBatch load(geometry());
  load.AddBlock(Id(0));
  const TaskId task = Submit(store(), load);
  EXPECT_TRUE(Eventually([&] { return IsDone(store(), task); }));
  EXPECT_TRUE(store().Cancel(task).ok());
  EXPECT_TRUE(store().Wait(task, 0).ok());
  for (std::size_t i = 0; i < load.size(); ++i) EXPECT_EQ(load.Problem(i, nonces_[0]), "");
}

TEST_P(DeadlineContract, OneSlowShardHoldsUpNobodyElse) {
  StoreBlocks(4);
  const FaultControl fault = this->fault();
  const std::uint64_t hold = fault.Arm("load hold nth=1");
  LoadBatch slow(geometry());
  slow.AddBlock(Id(0));
  const TaskId task = Submit(store(), slow);
  fault.AwaitHeld(hold, 1);
  for (std::uint64_t b = 0; b < 4; ++b) {
    EXPECT_EQ(BlockProblem(store(), geometry(), Id(b), nonces_[b]), "");
  }
  ASSERT_TRUE(DumpBlock(store(), geometry(), Id(4), NextNonce()).ok());
  EXPECT_EQ(store().Wait(task, 0).code, Code::kPending);
  fault.Release(hold);
  EXPECT_TRUE(store().Wait(task, kPatienceMs).ok());
  EXPECT_EQ(slow.Problem(0, nonces_[0]), "");
}

TEST_P(DeadlineContract, ABlockIsInvisibleWhileOneOfItsShardsIsSlow) {
  const FaultControl fault = this->fault();
  const std::uint64_t hold = fault.Arm("dump hold shard=0");
  const std::uint64_t nonce = NextNonce();
  DumpBatch dump(geometry());
  dump.AddBlock(Id(0), nonce);
  const TaskId task = Submit(store(), dump);
  fault.AwaitHeld(hold, 1);
  for (int n = 0; n < 3; ++n) {
    EXPECT_FALSE(IsPresent(store(), Id(0)));
    EXPECT_EQ(AbsenceProblem(store(), geometry(), Id(0)), "");
  }
  EXPECT_EQ(store().Wait(task, 0).code, Code::kPending);
  fault.Release(hold);
  EXPECT_TRUE(store().Wait(task, kPatienceMs).ok());
  EXPECT_EQ(BlockProblem(store(), geometry(), Id(0), nonce), "");
}

TEST_P(DeadlineContract, A02_ASlowWriteIsNeverSeenHalf) {
  const FaultControl fault = this->fault();
  (void)fault.Arm("dump delay=40 when=moving shard=" + std::to_string(shards() - 1));
  const std::uint64_t nonce = NextNonce();
  DumpBatch dump(geometry());
  dump.AddBlock(Id(0), nonce);
  const TaskId task = Submit(store(), dump);
  bool seen = false;
  while (!IsDone(store(), task)) {
    // Lookup may become true at any time, but then the block must be whole.
    seen = seen || IsPresent(store(), Id(0));
    if (seen) {
      EXPECT_EQ(BlockProblem(store(), geometry(), Id(0), nonce), "");
    }
    LoadBatch load(geometry());
    load.AddBlock(Id(0));
    const Status status = Finish(store(), load);
    if (status.ok()) {
      for (std::size_t i = 0; i < load.size(); ++i) EXPECT_EQ(load.Problem(i, nonce), "");
    } else {
      EXPECT_EQ(status.code, Code::kNotFound) << status.message;
    }
  }
  EXPECT_TRUE(store().Wait(task, 0).ok());
  EXPECT_EQ(BlockProblem(store(), geometry(), Id(0), nonce), "");
}

// Shards that never end: one that moves, one that has not begun.
TEST_P(DeadlineContract, CloseIsBoundedWithTasksInFlight) {
  StoreBlocks(1);
  const FaultControl fault = this->fault();
  const std::uint64_t moving = fault.Arm("load never shard=0 nth=1");
  const std::uint64_t waiting = fault.Arm("load hold when=before nth=2 shard=0");
  static std::atomic<int> calls{0};
  static LoadBatch load(geometry());  // for ever: a store that could not end may use it
  calls = 0;
  load = LoadBatch(geometry());
  load.Add(Id(0), 0).Add(Id(0), 0);
  TaskDesc desc = load.desc();
  desc.on_done = [](void*, TaskId) { ++calls; };
  TaskId task = 0;
  ASSERT_TRUE(store().Load(desc, &task).ok());
  fault.AwaitHeld(moving, 1);
  fault.AwaitHeld(waiting, 1);
  const TimePoint start = std::chrono::steady_clock::now();
  const bool closed = store().Close(200);
  EXPECT_LT(MsOf(start), kPatienceMs);
  EXPECT_TRUE(load.Untouched(0));
  EXPECT_TRUE(load.Untouched(1));
  // A Fault at the top ends what it holds. A stage above it must wait for what moves below, in
  // vain.
  const bool held_at_the_top = StagesOf(config().spec).size() == 2;
  if (held_at_the_top) {
    EXPECT_TRUE(closed);
  }
  EXPECT_EQ(calls, closed ? 1 : 0) << "a task is ended when its store is, and not before";
}

TEST_P(DeadlineContract, CloseWithManyTasksInFlight) {
  StoreBlocks(3);
  (void)this->fault().Arm("load delay=5 every=3");
  (void)this->fault().Arm("dump delay=5 every=2 when=moving");
  std::vector<LoadBatch> loads(20, LoadBatch(geometry()));
  std::vector<DumpBatch> dumps(20, DumpBatch(geometry()));
  for (std::uint64_t n = 0; n < loads.size(); ++n) {
    (void)Submit(store(), loads[n].AddBlock(Id(n % 3)));
    (void)Submit(store(), dumps[n].AddBlock(Id(100 + n % 7), NextNonce()));
  }
  EXPECT_TRUE(store().Close(kPatienceMs));
  for (DumpBatch& dump : dumps) dump.Scramble();
  // What was loaded is right, what was not is said; nothing is half.
  for (std::size_t n = 0; n < loads.size(); ++n) {
    for (std::size_t i = 0; i < loads[n].size(); ++i) {
      const Code code = loads[n].result(i).code;
      if (code == Code::kOk) {
        EXPECT_EQ(loads[n].Problem(i, nonces_[n % 3]), "");
      } else {
        EXPECT_TRUE(code == Code::kCancelled || code == Code::kClosed) << CodeName(code);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, DeadlineContract, testing::ValuesIn(FaultCases()), CaseName);

}  // namespace
}  // namespace ucmstore::test
