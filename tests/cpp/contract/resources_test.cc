// SPDX-License-Identifier: Apache-2.0
//
// Kind J of the faults that stores like this have had: after any mix of operations and failures the
// resources in use are back to where they started (F08, J09).
#include <algorithm>
#include <atomic>
#include <thread>

#include "contract/contract.h"
#include "support/checks.h"
#include "support/eventually.h"
#include "support/process_state.h"

namespace ucmstore::test {
namespace {

class ResourceContract : public Contract {
 protected:
  ResourceContract() {
    config().geometry = {256, 4};
    config().max_incomplete_blocks = 64;
  }

  void ExpectIdle() {
    std::string busy;
    // Behind Cache a dump goes on below when its task has ended.
    EXPECT_TRUE(Eventually([&] {
      busy.clear();
      for (const auto& [name, value] : store().Stats()) {
        const bool idle = name.ends_with("_in_flight") || name.ends_with(".queued_jobs") ||
                          name.ends_with(".held_shards");
        if (idle && value != 0) busy += name + " ";
      }
      return busy.empty();
    })) << busy;
    for (const auto& [name, value] : store().Stats()) {
      if (name.ends_with(".incomplete_blocks")) {
        EXPECT_LE(value, config().max_incomplete_blocks) << name;
      }
    }
  }

  // One operation of any kind, well or badly made.
  void AnyOperation(Random& random) {
    const BlockId id = Id(random.Between(0, 40));
    const auto shard = static_cast<std::uint32_t>(random.Between(0, shards() - 1));
    switch (random.Between(0, 9)) {
      case 0:
      case 1: (void)DumpBlock(store(), geometry(), id, NextNonce()); break;
      case 2: (void)DumpShard(store(), geometry(), id, shard, NextNonce()); break;
      case 3: (void)IsPresent(store(), id); break;
      case 4: {
        DumpBatch bad(geometry());
        (void)Finish(store(), bad.Add(id, shard, 1, geometry().shard_size + 1));
        break;
      }
      case 5: {
        LoadBatch small(geometry());
        (void)Finish(store(), small.Add(id, shard, {{1}}));
        break;
      }
      case 6: {
        LoadBatch prefetch(geometry());
        (void)Finish(store(), prefetch.AddPrefetch(id, shard));
        break;
      }
      case 7: {
        LoadBatch load(geometry());
        load.AddBlock(id);
        const TaskDesc desc = load.desc();
        TaskId task = 0;
        (void)store().Load(desc, &task);  // a Fault may refuse it
        (void)store().Cancel(task);
        (void)store().Wait(task, kPatienceMs);
        Check(load);
        break;
      }
      case 8: {
        LoadBatch load(geometry());
        load.AddBlock(id);
        TaskDesc desc = load.desc();
        desc.timeout_ms = 1;
        TaskId task = 0;
        (void)store().Load(desc, &task);
        (void)store().Wait(task, kPatienceMs);
        Check(load);
        break;
      }
      default: {
        LoadBatch load(geometry());
        (void)Finish(store(), load.AddBlock(id));
        Check(load);
      }
    }
  }

  static void Check(const LoadBatch& load) {
    for (std::size_t i = 0; i < load.size(); ++i) {
      if (load.result(i).code == Code::kOk) {
        EXPECT_EQ(load.Problem(i), "");
      }
      EXPECT_TRUE(load.GuardsIntact(i));
    }
  }

  void ManyOperations(std::uint64_t count, Random& random) {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([this, count, mine = random.Fork()]() mutable {
        for (std::uint64_t n = 0; n < count / 4; ++n) AnyOperation(mine);
      });
    }
  }
};

TEST_P(ResourceContract, F08_TwentyThousandMixedOperationsLeaveNothingBehind) {
  Random random;
  ManyOperations(2000, random);  // warm up: threads, buffers, caches
  const std::size_t descriptors = OpenDescriptors();
  const std::size_t threads = ThreadCount();
  const std::uint64_t memory = MemoryInUse();
  ManyOperations(18000, random);
  ExpectIdle();
  EXPECT_LE(OpenDescriptors(), descriptors + 8) << "descriptors";
  EXPECT_LE(ThreadCount(), threads + config().workers) << "threads";
  EXPECT_LE(MemoryInUse(), memory + (48ULL << 20)) << "memory";
  CheckRoundTrip(store(), geometry(), {Id(1000), Id(1001)});
}

TEST_P(ResourceContract, OpeningAndClosingLeavesNothingBehind) {
  CheckRoundTrip(store(), geometry(), Ids(2));
  CloseStore();
  const std::size_t descriptors = OpenDescriptors();
  const std::size_t threads = ThreadCount();
  for (int n = 0; n < 20; ++n) {
    CheckRoundTrip(store(), geometry(), {Id(100 + static_cast<std::uint64_t>(n))});
    (void)DumpShard(store(), geometry(), Id(7777), 0, NextNonce());
    CloseStore();
  }
  EXPECT_EQ(OpenDescriptors(), descriptors);
  EXPECT_EQ(ThreadCount(), threads);
}

INSTANTIATE_TEST_SUITE_P(, ResourceContract, testing::ValuesIn(RawCases()), CaseName);

class FailingResources : public ResourceContract {};

TEST_P(FailingResources, F08_TheSameWithFailuresOfEveryKind) {
  Random random;
  const FaultControl fault = this->fault();
  for (const char* rule :
       {"load fail=io_error chance=0.03", "load throw chance=0.02", "load refuse chance=0.03",
        "load delay=2 chance=0.02", "load delay=2 when=after chance=0.02",
        "dump fail=no_space errno=28 chance=0.03", "dump throw chance=0.02",
        "dump refuse chance=0.03", "dump delay=2 chance=0.02",
        "dump delay=1 when=moving chance=0.02", "lookup delay=1 chance=0.01"}) {
    (void)fault.Arm(rule);
  }
  ManyOperations(1000, random);
  const std::size_t descriptors = OpenDescriptors();
  ManyOperations(5000, random);
  ExpectIdle();
  EXPECT_LE(OpenDescriptors(), descriptors + 8);
  fault.Disarm(0);
  CheckRoundTrip(store(), geometry(), {Id(1000), Id(1001)});
}

std::vector<Case> RawFaultCases() {
  std::vector<Case> cases = RawCases();
  std::erase_if(cases, [](const Case& c) { return !c.has_fault(); });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(, FailingResources, testing::ValuesIn(RawFaultCases()), CaseName);

// A host without an SDK runtime: the stages make their own.
class NoRuntime : public Contract {
 protected:
  NoRuntime() { config().no_runtime = true; }
};

TEST_P(NoRuntime, TheStagesMakeTheirOwn) {
  const std::size_t threads = ThreadCount();
  CheckRoundTrip(store(), geometry(), Ids(3));
  CheckShortShards(store(), geometry(), Id(10));
  CheckResultsOfAMixedTask(store(), geometry(), Id(11), Id(12));
  EXPECT_TRUE(store().Close(kPatienceMs));
  CloseStore();
  EXPECT_EQ(ThreadCount(), threads);
}

INSTANTIATE_TEST_SUITE_P(, NoRuntime, testing::ValuesIn(RawCases()), CaseName);

}  // namespace
}  // namespace ucmstore::test
