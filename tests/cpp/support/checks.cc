// SPDX-License-Identifier: Apache-2.0
//
// The checks that are proven able to fail.
#include "support/checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>

#include "base/mutex.h"
#include "support/eventually.h"

namespace ucmstore::test {
namespace {

// Counts calls of on_done, by task.
class Callbacks {
 public:
  void Attach(TaskDesc& desc) {
    desc.on_done = [](void* ctx, TaskId task) {
      auto& self = *static_cast<Callbacks*>(ctx);
      const MutexLock lock(self.mutex_);
      ++self.calls_[task];
    };
    desc.on_done_ctx = this;
  }
  [[nodiscard]] int Of(TaskId task) {
    const MutexLock lock(mutex_);
    return calls_[task];
  }
  [[nodiscard]] std::size_t tasks() {
    const MutexLock lock(mutex_);
    return calls_.size();
  }

 private:
  Mutex mutex_;
  std::map<TaskId, int> calls_ UCMSTORE_GUARDED_BY(mutex_);
};

}  // namespace

void CheckRoundTrip(TestStore& store, const Geometry& geometry, const std::vector<BlockId>& ids) {
  std::vector<std::uint64_t> nonces;
  for (const BlockId& id : ids) {
    nonces.push_back(NextNonce());
    EXPECT_TRUE(DumpBlock(store, geometry, id, nonces.back()).ok());
  }
  EXPECT_EQ(Presence(store, ids), std::string(ids.size(), '1'));
  for (std::size_t b = 0; b < ids.size(); ++b) {
    EXPECT_EQ(BlockProblem(store, geometry, ids[b], nonces[b]), "");
    for (std::uint32_t i = 0; i < geometry.shards_per_block; i += 7) {
      LoadBatch load(geometry);
      load.Add(ids[b], i);
      EXPECT_TRUE(Finish(store, load).ok());
      EXPECT_EQ(load.Problem(0, nonces[b]), "");
    }
  }
}

void CheckShortShards(TestStore& store, const Geometry& geometry, const BlockId& id) {
  const std::uint64_t nonce = NextNonce();
  const std::uint64_t size = geometry.shard_size;
  const auto length = [&](std::uint32_t i) { return 1 + (size / 3 + i * 37ULL) % size; };
  DumpBatch dump(geometry);
  LoadBatch load(geometry);
  for (std::uint32_t i = 0; i < geometry.shards_per_block; ++i) {
    dump.Add(id, i, nonce, length(i));
    load.Add(id, i);                 // room for a whole shard
    load.Add(id, i, {{length(i)}});  // room for exactly what there is
  }
  EXPECT_TRUE(Finish(store, dump).ok());
  for (std::uint32_t i = 0; i < geometry.shards_per_block; ++i) {
    EXPECT_EQ(dump.result(i).bytes, length(i));
  }
  EXPECT_TRUE(Finish(store, load).ok());
  for (std::size_t i = 0; i < load.size(); ++i) {
    EXPECT_EQ(load.Problem(i, nonce, length(static_cast<std::uint32_t>(i / 2))), "");
  }
}

void CheckResultsOfAMixedTask(TestStore& store, const Geometry& geometry, const BlockId& present,
                              const BlockId& absent) {
  const std::uint64_t nonce = NextNonce();
  EXPECT_TRUE(DumpBlock(store, geometry, present, nonce).ok());
  LoadBatch load(geometry);
  for (std::uint32_t i = 0; i < geometry.shards_per_block; ++i) {
    load.Add(present, i).Add(absent, i);
  }
  load.Add(present, 0);
  const Status status = Finish(store, load);
  EXPECT_EQ(status.code, Code::kNotFound) << status.message;
  EXPECT_NE(status.text(), "");
  for (std::size_t i = 0; i < load.size(); ++i) {
    if (i % 2 == 0) {
      EXPECT_EQ(load.Problem(i, nonce), "");
    } else {
      EXPECT_EQ(load.result(i).code, Code::kNotFound);
      EXPECT_TRUE(load.Untouched(i));
    }
  }
}

void CheckInvisibleUntilComplete(TestStore& store, const Geometry& geometry, const BlockId& id) {
  const std::uint64_t nonce = NextNonce();
  for (std::uint32_t i = geometry.shards_per_block; i-- > 0;) {
    EXPECT_FALSE(IsPresent(store, id)) << "visible with " << i + 1 << " shards missing";
    EXPECT_EQ(AbsenceProblem(store, geometry, id), "");
    EXPECT_TRUE(DumpShard(store, geometry, id, i, nonce).ok());
  }
  EXPECT_TRUE(IsPresent(store, id));
  EXPECT_EQ(BlockProblem(store, geometry, id, nonce), "");
}

void CheckRetirement(TestStore& store, const Geometry& geometry, const BlockId& id) {
  DumpBatch dump(geometry);
  dump.AddBlock(id, NextNonce());
  const TaskId task = Submit(store, dump);
  EXPECT_TRUE(Eventually([&] { return IsDone(store, task); }));
  for (int n = 0; n < 5; ++n) EXPECT_TRUE(IsDone(store, task)) << "a Check retired it";
  const Status first = store.Wait(task, 0);
  EXPECT_TRUE(first.ok()) << first.message;
  EXPECT_EQ(store.Wait(task, 0).code, Code::kNotFound);
  EXPECT_EQ(store.Wait(task, kPatienceMs).code, Code::kNotFound);
  bool done = false;
  EXPECT_EQ(store.Check(task, &done).code, Code::kNotFound);
  EXPECT_EQ(store.Cancel(task).code, Code::kNotFound);
}

void CheckOnDone(TestStore& store, const Geometry& geometry, const BlockId& id) {
  Callbacks callbacks;
  std::vector<TaskId> tasks;
  const auto expect_called = [&](TaskId task) {
    EXPECT_TRUE(store.Wait(task, kPatienceMs).code != Code::kPending);
    EXPECT_EQ(callbacks.Of(task), 1) << "when Wait has returned, on_done has, once";
    tasks.push_back(task);
  };
  TaskId task = 0;
  DumpBatch dump(geometry);
  dump.AddBlock(id, NextNonce());
  TaskDesc desc = dump.desc();
  callbacks.Attach(desc);
  EXPECT_TRUE(store.Dump(desc, &task).ok());
  expect_called(task);
  for (int n = 0; n < 20; ++n) {
    LoadBatch load(geometry);
    load.AddBlock(id);
    desc = load.desc();
    callbacks.Attach(desc);
    EXPECT_TRUE(store.Load(desc, &task).ok());
    expect_called(task);
  }
  TaskDesc empty;
  callbacks.Attach(empty);
  EXPECT_TRUE(store.Load(empty, &task).ok());
  expect_called(task);
  EXPECT_TRUE(store.Dump(empty, &task).ok());
  expect_called(task);
  for (const TaskId each : tasks) EXPECT_EQ(callbacks.Of(each), 1);
  EXPECT_EQ(callbacks.tasks(), tasks.size()) << "it was called for something else too";
}

void CheckRefusalLeavesNothing(TestStore& store, const Geometry& geometry, const BlockId& id) {
  Callbacks callbacks;
  const auto refused = [&](TaskDesc desc, bool dump) {
    callbacks.Attach(desc);
    TaskId task = 77;
    const Status status = dump ? store.Dump(desc, &task) : store.Load(desc, &task);
    EXPECT_EQ(status.code, Code::kInvalidArgument) << status.message;
    EXPECT_NE(status.text(), "");
    EXPECT_EQ(task, 0U);
  };
  DumpBatch good(geometry);
  good.AddBlock(id, NextNonce());
  DumpBatch out_of_range(geometry);
  out_of_range.AddBlock(id, NextNonce()).Add(id, geometry.shards_per_block, NextNonce());
  refused(out_of_range.desc(), true);
  DumpBatch too_long(geometry);
  too_long.AddBlock(id, NextNonce()).Add(id, 0, NextNonce(), geometry.shard_size + 1);
  refused(too_long.desc(), true);
  LoadBatch load(geometry);
  load.AddBlock(id).Add(id, 0, {{geometry.shard_size}, {1}});
  refused(load.desc(), false);
  for (std::size_t i = 0; i < load.size(); ++i) EXPECT_TRUE(load.Untouched(i));
  EXPECT_EQ(callbacks.tasks(), 0U) << "on_done of a task that never was";
  EXPECT_FALSE(IsPresent(store, id)) << "a part of a refused dump was stored";
  EXPECT_TRUE(Finish(store, good).ok());
  EXPECT_EQ(BlockProblem(store, geometry, id), "");
}

void CheckLookupAcrossAGap(TestStore& store, const Geometry& geometry,
                           const std::vector<BlockId>& three) {
  EXPECT_TRUE(DumpBlock(store, geometry, three[0], NextNonce()).ok());
  EXPECT_TRUE(DumpBlock(store, geometry, three[2], NextNonce()).ok());
  EXPECT_EQ(Presence(store, three), "101");
  EXPECT_EQ(Presence(store, three, kStopAtMiss), "100");
}

}  // namespace ucmstore::test
