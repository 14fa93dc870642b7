// SPDX-License-Identifier: Apache-2.0
//
// Promises 4 and 6: the life of a task. Each shard has its own result; Check never retires, Wait
// retires once; on_done comes once; what is refused leaves nothing; a full table is busy.
#include <algorithm>
#include <atomic>
#include <thread>

#include "contract/contract.h"
#include "support/checks.h"
#include "support/eventually.h"

namespace ucmstore::test {
namespace {

class TaskContract : public Contract {};

TEST_P(TaskContract, OneBadShardDoesNotSpoilItsTask) {
  CheckResultsOfAMixedTask(store(), geometry(), Id(0), Id(1));
}

TEST_P(TaskContract, ResultsMayBeNull) {
  const std::uint64_t nonce = NextNonce();
  DumpBatch dump(geometry());
  dump.AddBlock(Id(0), nonce);
  TaskDesc desc = dump.desc();
  desc.results = nullptr;
  TaskId task = 0;
  ASSERT_TRUE(store().Dump(desc, &task).ok());
  EXPECT_TRUE(store().Wait(task, kPatienceMs).ok());
  LoadBatch load(geometry());
  load.AddBlock(Id(0)).AddBlock(Id(1));
  desc = load.desc();
  desc.results = nullptr;
  ASSERT_TRUE(store().Load(desc, &task).ok());
  EXPECT_EQ(store().Wait(task, kPatienceMs).code, Code::kNotFound);
  EXPECT_EQ(BlockProblem(store(), geometry(), Id(0), nonce), "");
}

TEST_P(TaskContract, D06_CheckNeverRetiresAndWaitRetiresOnce) {
  CheckRetirement(store(), geometry(), Id(0));
}

TEST_P(TaskContract, D05_UnknownTasksAreNotFound) {
  CheckRetirement(store(), geometry(), Id(0));
  std::vector<TaskId> unknown = {0, 1, 2, 77, ~TaskId{0}, TaskId{1} << 63, TaskId{1} << 24};
  Random random;
  for (int n = 0; n < 1000; ++n) unknown.push_back(random.Between(0, ~std::uint64_t{0}));
  for (const TaskId task : unknown) {
    bool done = false;
    EXPECT_EQ(store().Check(task, &done).code, Code::kNotFound);
    EXPECT_EQ(store().Wait(task, 0).code, Code::kNotFound);
    EXPECT_EQ(store().Wait(task, kPatienceMs).code, Code::kNotFound);
    EXPECT_EQ(store().Cancel(task).code, Code::kNotFound);
  }
}

TEST_P(TaskContract, IdsAreNotSharedByTwoStores) {
  const std::unique_ptr<TestStore> other = OpenAnother();
  ASSERT_TRUE(DumpBlock(store(), geometry(), Id(0), NextNonce()).ok());
  for (int n = 0; n < 50; ++n) {
    LoadBatch load(geometry());
    load.AddBlock(Id(0));
    const TaskId task = Submit(store(), load);
    EXPECT_EQ(other->Wait(task, 0).code, Code::kNotFound);
    EXPECT_TRUE(store().Wait(task, kPatienceMs).ok());
  }
}

// A retired id must not name the task that got its place.
TEST_P(TaskContract, ARetiredIdStaysUnknown) {
  ASSERT_TRUE(DumpBlock(store(), geometry(), Id(0), NextNonce()).ok());
  std::vector<TaskId> retired;
  for (int n = 0; n < 200; ++n) {
    LoadBatch load(geometry());
    load.Add(Id(0), 0);
    const TaskId task = Submit(store(), load);
    EXPECT_EQ(std::ranges::count(retired, task), 0) << "an id came back";
    for (const TaskId old : retired) {
      bool done = false;
      ASSERT_EQ(store().Check(old, &done).code, Code::kNotFound);
    }
    EXPECT_TRUE(store().Wait(task, kPatienceMs).ok());
    retired.push_back(task);
  }
}

TEST_P(TaskContract, WaitFromManyThreadsRetiresOnce) {
  ASSERT_TRUE(DumpBlock(store(), geometry(), Id(0), NextNonce()).ok());
  for (int round = 0; round < 30; ++round) {
    LoadBatch load(geometry());
    load.AddBlock(Id(0));
    const TaskId task = Submit(store(), load);
    std::atomic<int> ok{0};
    std::atomic<int> unknown{0};
    std::vector<std::jthread> waiters;
    for (int n = 0; n < 3; ++n) {
      waiters.emplace_back([&] {
        const Status status = store().Wait(task, kPatienceMs);
        if (status.ok()) ++ok;
        if (status.code == Code::kNotFound) ++unknown;
      });
    }
    waiters.clear();
    EXPECT_EQ(ok, 1);
    EXPECT_EQ(unknown, 2);
  }
}

TEST_P(TaskContract, ZeroShardsIsAFinishedTask) {
  for (const bool dump : {false, true}) {
    TaskDesc desc;
    TaskId task = 0;
    ASSERT_TRUE((dump ? store().Dump(desc, &task) : store().Load(desc, &task)).ok());
    EXPECT_NE(task, 0U);
    EXPECT_TRUE(IsDone(store(), task));
    EXPECT_TRUE(store().Wait(task, 0).ok());
    EXPECT_EQ(store().Wait(task, 0).code, Code::kNotFound);
  }
}

TEST_P(TaskContract, OnDoneComesOnceAndBeforeWaitReturns) {
  CheckOnDone(store(), geometry(), Id(0));
}

// on_done may come before Load has returned, on any thread, and may check and wait for its task.
TEST_P(TaskContract, OnDoneMayRetireItsTask) {
  ASSERT_TRUE(DumpBlock(store(), geometry(), Id(0), NextNonce()).ok());
  struct Context {
    TestStore& store;
    std::atomic<TaskId> task{0};
    std::atomic<bool> done{false};
    std::atomic<Code> waited{Code::kPending};
    std::atomic<int> calls{0};
  };
  for (int round = 0; round < 50; ++round) {
    LoadBatch load(geometry());
    load.AddBlock(Id(0));
    TaskDesc desc = load.desc();
    Context context{store()};
    desc.on_done_ctx = &context;
    desc.on_done = [](void* ctx, TaskId task) {
      auto& self = *static_cast<Context*>(ctx);
      bool done = false;
      if (self.store.Check(task, &done).ok()) self.done = done;
      self.task = task;
      self.waited = self.store.Wait(task, 0).code;
      ++self.calls;
      self.calls.notify_all();
    };
    TaskId task = 0;
    ASSERT_TRUE(store().Load(desc, &task).ok());
    context.calls.wait(0);
    EXPECT_EQ(context.task, task);
    EXPECT_TRUE(context.done) << "the callback does not see its task as ended";
    EXPECT_EQ(context.waited, Code::kOk);
    EXPECT_EQ(store().Wait(task, kPatienceMs).code, Code::kNotFound) << "retired already";
    EXPECT_EQ(context.calls, 1);
    for (std::size_t i = 0; i < load.size(); ++i) EXPECT_EQ(load.Problem(i), "");
  }
}

// A callback that takes its time: whoever waits elsewhere sees its end, not less.
TEST_P(TaskContract, WaitDoesNotReturnBeforeTheCallbackHas) {
  struct Context {
    std::atomic<bool> entered{false};
    std::atomic<bool> go{false};
    std::atomic<bool> left{false};
  } context;
  DumpBatch dump(geometry());
  dump.AddBlock(Id(0), NextNonce());
  TaskDesc desc = dump.desc();
  desc.on_done_ctx = &context;
  desc.on_done = [](void* ctx, TaskId) {
    auto& self = *static_cast<Context*>(ctx);
    self.entered = true;
    self.entered.notify_all();
    self.go.wait(false);
    self.left = true;
  };
  TaskId task = 0;
  std::jthread submitter([&] { ASSERT_TRUE(store().Dump(desc, &task).ok()); });
  context.entered.wait(false);
  std::jthread releaser([&] {
    context.go = true;
    context.go.notify_all();
  });
  submitter.join();
  EXPECT_TRUE(store().Wait(task, kPatienceMs).ok());
  EXPECT_TRUE(context.left);
}

TEST_P(TaskContract, RefusalsLeaveNothing) {
  CheckRefusalLeavesNothing(store(), geometry(), Id(0));
}

TEST_P(TaskContract, J09_AThousandInvalidTasksThenValidOnes) {
  const std::map<std::string, double> before = store().Stats();
  DumpBatch bad_size(geometry());
  bad_size.Add(Id(0), 0, 1, geometry().shard_size + 1);
  DumpBatch bad_index(geometry());
  bad_index.Add(Id(0), shards(), 1);
  for (int n = 0; n < 1000; ++n) {
    TaskId task = 77;
    TaskDesc desc = n % 2 == 0 ? bad_size.desc() : bad_index.desc();
    if (n % 3 == 0) desc.shards = nullptr;
    EXPECT_EQ(store().Dump(desc, &task).code, Code::kInvalidArgument);
    EXPECT_EQ(store().Load(desc, &task).code, Code::kInvalidArgument);
    EXPECT_EQ(task, 0U);
  }
  CheckRoundTrip(store(), geometry(), Ids(3));
  // Behind Cache a dump goes on below when its task has ended.
  EXPECT_TRUE(Eventually([this] {
    return std::ranges::all_of(store().Stats(), [](const auto& figure) {
      const auto& [name, value] = figure;
      const bool counts = name.ends_with("_in_flight") || name.ends_with("incomplete_blocks");
      return !counts || value == 0;
    });
  }));
}

TEST_P(TaskContract, PrioritiesAreAccepted) {
  ASSERT_TRUE(DumpBlock(store(), geometry(), Id(0), NextNonce()).ok());
  std::vector<LoadBatch> loads(9, LoadBatch(geometry()));
  std::vector<TaskId> tasks;
  std::int32_t priority = -4;
  for (LoadBatch& load : loads) {
    load.AddBlock(Id(0));
    TaskDesc desc = load.desc();
    desc.priority = priority == 4 ? INT32_MAX : priority == -4 ? INT32_MIN : priority;
    ++priority;
    tasks.emplace_back();
    ASSERT_TRUE(store().Load(desc, &tasks.back()).ok());
  }
  for (const TaskId task : tasks) EXPECT_TRUE(store().Wait(task, kPatienceMs).ok());
  for (const LoadBatch& load : loads) EXPECT_EQ(load.Problem(0), "");
}

INSTANTIATE_TEST_SUITE_P(, TaskContract, testing::ValuesIn(AllCases()), CaseName);

class TaskMisuse : public Contract {
 protected:
  void ExpectRefused(TaskDesc desc, bool dump, Code code, const char* what) {
    TaskId task = 77;
    const Status status = dump ? store().Dump(desc, &task) : store().Load(desc, &task);
    EXPECT_EQ(status.code, code) << what << ": " << status.message;
    EXPECT_NE(status.text(), "") << what;
    EXPECT_EQ(task, 0U) << what;
    if (status.ok()) (void)store().Wait(task, kPatienceMs);
  }
  void ExpectRefusedByBoth(const TaskDesc& desc, Code code, const char* what) {
    ExpectRefused(desc, true, code, what);
    ExpectRefused(desc, false, code, what);
  }
};

TEST_P(TaskMisuse, OfTheDescriptor) {
  LoadBatch batch(geometry());
  batch.AddBlock(Id(0));
  const TaskDesc good = batch.desc();
  for (std::uint32_t bit = 0; bit < 32; ++bit) {
    TaskDesc desc = good;
    desc.flags = 1U << bit;
    ExpectRefusedByBoth(desc, Code::kInvalidArgument, "an unknown flag");
  }
  for (std::size_t word = 0; word < 3; ++word) {
    TaskDesc desc = good;
    desc.reserved[word] = 1ULL << (word * 20);
    ExpectRefusedByBoth(desc, Code::kInvalidArgument, "a reserve that is not zero");
  }
  for (const std::size_t size : {std::size_t{0}, sizeof(TaskDesc) - 8}) {
    TaskDesc desc = good;
    desc.struct_size = static_cast<std::uint32_t>(size);
    ExpectRefusedByBoth(desc, Code::kInvalidArgument, "a descriptor too short");
  }
  TaskDesc desc = good;
  desc.shards = nullptr;
  ExpectRefusedByBoth(desc, Code::kInvalidArgument, "no shards at all");
  desc = good;
  desc.device = 0;
  ExpectRefusedByBoth(desc, Code::kUnsupported, "memory of a device");
  EXPECT_TRUE(batch.Untouched(0));
}

TEST_P(TaskMisuse, OfShardsAndSegments) {
  std::vector<std::byte> memory(geometry().shard_size * 2);
  const std::uint64_t size = geometry().shard_size;
  const auto refused = [&](std::vector<Segment> segments, bool dump, const char* what,
                           std::uint32_t index = 0) {
    // Behind a shard that is good: it must be refused with it.
    const Segment whole{memory.data(), size};
    const std::array<Shard, 2> two = {
        Shard{Id(0), &whole, 1, 0},
        Shard{Id(0), segments.data(), static_cast<std::uint32_t>(segments.size()), index}};
    TaskDesc desc;
    desc.shards = two.data();
    desc.shard_count = 2;
    ExpectRefused(desc, dump, Code::kInvalidArgument, what);
  };
  for (const bool dump : {false, true}) {
    refused({{memory.data(), size}}, dump, "an index beyond the block", shards());
    refused({{memory.data(), size}}, dump, "an index far beyond the block", ~0U);
    refused({{memory.data(), size + 1}}, dump, "one segment too long");
    refused({{memory.data(), size}, {memory.data(), 1}}, dump, "segments too long together");
    refused({{memory.data(), ~0ULL}, {memory.data(), 2}}, dump, "sizes that overflow");
    refused({{memory.data(), 1ULL << 32}}, dump, "4 GiB");
    const Segment at_null{memory.data(), size};
    const Shard shard{Id(0), nullptr, 3, 0};
    TaskDesc desc;
    desc.shards = &shard;
    desc.shard_count = 1;
    ExpectRefused(desc, dump, Code::kInvalidArgument, "a list of segments at null");
    (void)at_null;
  }
  refused({}, true, "a dump of nothing");
  refused({{memory.data(), 0}}, true, "a dump of no bytes");
  refused({{nullptr, size}}, true, "a dump from null");
  refused({{memory.data(), 1}, {nullptr, 1}}, true, "a dump with a hole");
  EXPECT_TRUE(std::ranges::all_of(memory, [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_FALSE(IsPresent(store(), Id(0)));
  CheckRoundTrip(store(), geometry(), Ids(1));
}

TEST_P(TaskMisuse, ALongerDescriptorIsUnderstood) {
  struct Longer {
    TaskDesc desc;
    std::uint64_t added[4] = {};
  } longer;
  ASSERT_TRUE(DumpBlock(store(), geometry(), Id(0), NextNonce()).ok());
  LoadBatch load(geometry());
  load.AddBlock(Id(0));
  longer.desc = load.desc();
  longer.desc.struct_size = sizeof(Longer);
  TaskId task = 0;
  ASSERT_TRUE(store().Load(longer.desc, &task).ok());
  ASSERT_TRUE(store().Wait(task, kPatienceMs).ok());
  EXPECT_EQ(load.Problem(0), "");
}

INSTANTIATE_TEST_SUITE_P(, TaskMisuse, testing::ValuesIn(RawCases()), CaseName);

class FullTable : public Contract {
 protected:
  FullTable() { config().max_tasks = 8; }
};

TEST_P(FullTable, IsBusyAndRecovers) {
  std::vector<TaskId> tasks;
  std::vector<LoadBatch> loads(8, LoadBatch(geometry()));
  for (int round = 0; round < 3; ++round) {
    tasks.clear();
    for (LoadBatch& load : loads) {
      load = LoadBatch(geometry());
      load.Add(Id(0), 0);
      tasks.push_back(Submit(store(), load));  // ended or not: a task counts until it is retired
    }
    LoadBatch one_more(geometry());
    one_more.Add(Id(0), 0);
    EXPECT_EQ(Finish(store(), one_more).code, Code::kBusy);
    EXPECT_TRUE(one_more.Untouched(0));
    EXPECT_EQ(store().Wait(tasks[3], kPatienceMs).code, Code::kNotFound);
    tasks[3] = Submit(store(), one_more);
    for (const TaskId task : tasks) {
      EXPECT_EQ(store().Wait(task, kPatienceMs).code, Code::kNotFound);
    }
  }
  CheckRoundTrip(store(), geometry(), Ids(2));
}

INSTANTIATE_TEST_SUITE_P(, FullTable, testing::ValuesIn(AllCases()), CaseName);

}  // namespace
}  // namespace ucmstore::test
