// SPDX-License-Identifier: Apache-2.0
//
// Close: under traffic, with waiters, with stuck calls and with tasks that never end. Afterwards
// every call says so, and no memory is touched that the caller was told is his.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "pipeline/pipeline.h"
#include "pipeline/probe_store.h"

namespace ucmstore::test {
namespace {

void ExpectClosed(Pipeline& store) {
  const BlockTask task(1);
  const BlockId id = Id(1);
  std::uint8_t found = 7;
  TaskId polled[1];
  LookupDesc lookup;
  lookup.blocks = &id;
  lookup.count = 1;
  const Status status = store.Lookup(lookup, &found);
  EXPECT_EQ(status.code, Code::kClosed);
  EXPECT_EQ(found, kAbsent);
  EXPECT_TRUE(Says(status.text(), {"closed"}));
  EXPECT_EQ(store.LookupPrefix({&id, 1}).error().code, Code::kClosed);
  EXPECT_EQ(store.Load(task.desc).error().code, Code::kClosed);
  EXPECT_EQ(store.Dump(task.desc).error().code, Code::kClosed);
  EXPECT_EQ(store.Prefetch({&id, 1}).error().code, Code::kClosed);
  EXPECT_EQ(store.Check(1).error().code, Code::kClosed);
  EXPECT_EQ(store.Wait(1, 60'000).code, Code::kClosed);
  EXPECT_EQ(store.Cancel(1).code, Code::kClosed);
  EXPECT_EQ(store.Poll(polled), 0U);
  EXPECT_EQ(store.event_fd(), -1);
  EXPECT_TRUE(store.Stats().empty());
  EXPECT_EQ(store.block_size(), 128U);
}

TEST(Close, EveryCallAfterwardsSaysSo) {
  const auto store = MustOpen(Config("Wrap|Probe"));
  DumpBlocks(*store, 0, 2);
  EXPECT_TRUE(store->Close(1000).ok());
  ExpectClosed(*store);
  EXPECT_TRUE(store->Close(0).ok());
}

TEST(Close, AnIdleStoreClosesWithoutWaiting) {
  const auto store = MustOpen(Config("Dram", {{"dram", {{"capacity", "1MiB"}}}}));
  DumpBlocks(*store, 0, 20);
  const Status status = store->Close(0);
  EXPECT_TRUE(status.ok()) << status.text();
}

TEST(Close, WaiterIsWokenAndItsTaskCancelled) {
  const Journal journal;
  const std::uint32_t alive_before = Valves("Probe").alive();
  const auto store = MustOpen(Config("Probe"));
  Valves("Probe").hold(true, true);
  const BlockTask dump(1);
  const TaskId task = store->Dump(dump.desc).value();
  std::thread waiter([&] {
    const Status status = store->Wait(task, 600'000);
    EXPECT_EQ(status.code, Code::kClosed) << status.text();
  });
  while (Valves("Probe").waiters() == 0) std::this_thread::yield();
  EXPECT_TRUE(store->Close(60'000).ok());
  waiter.join();
  EXPECT_EQ(Valves("Probe").alive(), alive_before);
}

TEST(Close, TasksNobodyWaitsForAreCancelled) {
  const Journal journal;
  const std::uint32_t alive_before = Valves("Probe").alive();
  const auto store = MustOpen(Config("Probe"));
  Valves("Probe").hold(true, true);
  {
    const BlockTask dump(1);
    ASSERT_TRUE(store->Dump(dump.desc));
    EXPECT_TRUE(store->Close(60'000).ok());
  }  // the memory is the caller's again
  EXPECT_EQ(Valves("Probe").alive(), alive_before);
}

// D04: what never ends is left alone, in bounded time, and told so; its late end harms nobody.
TEST(CloseFaults, D04_TaskThatStillMovesKeepsItsMemory) {
  const Journal journal;
  const std::uint32_t alive_before = Valves("Probe").alive();
  auto dump = std::make_unique<BlockTask>(1, 'm');
  {
    const auto store =
        MustOpen(Config("Probe", {{"store", {{"close_timeout_ms", std::int64_t{0}}}}}));
    Valves("Probe").hold(true, false);
    const TaskId task = store->Dump(dump->desc).value();
    std::thread waiter([&] {
      const Status status = store->Wait(task, 600'000);
      EXPECT_EQ(status.code, Code::kClosed);
      EXPECT_TRUE(Says(status.text(), {"still moves", "memory must stay"}));
    });
    while (Valves("Probe").waiters() == 0) std::this_thread::yield();
    const Status status = store->Close(100);
    EXPECT_EQ(status.code, Code::kBusy);
    EXPECT_TRUE(Says(status.text(), {"still moves", "must stay"}));
    waiter.join();
    ExpectClosed(*store);
    EXPECT_EQ(store->Close(0).code, Code::kBusy);
  }
  EXPECT_EQ(Valves("Probe").alive(), alive_before + 1);  // left alone on purpose
  EXPECT_EQ(Valves("Probe").release(), 1U);              // ends into a store that is still there
}

TEST(CloseFaults, D04_WhatIsBelowAHungStageStaysAlive) {
  const Journal journal;
  const BlockTask dump(1);
  {
    const auto store =
        MustOpen(Config("Wrap|Probe", {{"store", {{"close_timeout_ms", std::int64_t{0}}}}}));
    Valves("Probe").hold(true, false);
    ASSERT_TRUE(store->Dump(dump.desc));
  }
  // Wrap has no way to wait for its task, but the pipeline knows that it runs.
  EXPECT_EQ(journal.Lines().back(), "destroy Wrap");
  EXPECT_EQ(Valves("Probe").release(), 1U);
}

// What a stage says of itself is believed, at once: it may be asked to end with no task about.
TEST(CloseFaults, D04_AStageThatSaysItStillMovesIsLeftAloneWithAllBelow) {
  for (const std::string stage : {"Wrap", "Probe"}) {
    const Journal journal;
    const std::uint32_t wraps = Valves("Wrap").alive();
    const std::uint32_t probes = Valves("Probe").alive();
    const auto store = MustOpen(Config("Wrap|Probe"));
    DumpBlocks(*store, 0, 2);
    Valves(stage).end_as(true, false);
    const Status status = store->Close(60'000);
    EXPECT_EQ(status.code, Code::kBusy) << stage;
    EXPECT_TRUE(Says(status.text(), {"still moves"}));
    const bool wrap_moves = stage == "Wrap";
    EXPECT_EQ(Valves("Wrap").alive(), wraps + (wrap_moves ? 1 : 0));
    EXPECT_EQ(Valves("Probe").alive(), probes + 1) << "what is below is still there";
    EXPECT_EQ(journal.Lines().back(), wrap_moves ? "destroy Wrap" : "destroy probe");
  }
}

// Slow is not stuck: a stage that came to rest in the last moment has come to rest.
TEST(Close, AStageThatTakesAllItsTimeIsFreed) {
  const Journal journal;
  const std::uint32_t alive_before = Valves("Probe").alive();
  const auto store = MustOpen(Config("Wrap|Probe"));
  DumpBlocks(*store, 0, 2);
  Valves("Probe").end_as(false, true);
  const Status status = store->Close(0);
  EXPECT_TRUE(status.ok()) << status.text();
  EXPECT_EQ(Valves("Probe").alive(), alive_before);
}

TEST(Close, ACallThatIsStuckMakesItBusyAndItMayBeTriedAgain) {
  const std::uint32_t alive_before = Valves("Probe").alive();
  const Journal journal;
  const auto store = MustOpen(Config("Wrap|Probe"));
  Valves("Probe").hold_lookups(true);
  std::thread caller([&] {
    const BlockId id = Id(1);
    EXPECT_EQ(store->LookupPrefix({&id, 1}).value_or(9), 0U);
  });
  while (Valves("Probe").held_lookups() == 0) std::this_thread::yield();
  EXPECT_EQ(store->Close(1).code, Code::kBusy);
  Valves("Probe").hold_lookups(false);
  caller.join();
  EXPECT_TRUE(store->Close(60'000).ok());
  EXPECT_EQ(Valves("Probe").alive(), alive_before);
}

TEST(Close, FromManyThreadsEndsOnce) {
  const Journal journal;
  {
    const auto store = MustOpen(Config("Wrap|Probe"));
    std::vector<std::thread> threads;
    threads.reserve(8);
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&] { EXPECT_TRUE(store->Close(60'000).ok()); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(journal.Lines().size(), 4U);  // two set-ups, two ends
}

// Threads load, dump, look up and wait until the store says it is closed. Their memory is freed as
// soon as it may be; a sanitizer would see a late touch.
TEST(Close, UnderTraffic) {
  for (int round = 0; round < 5; ++round) {
    const auto store =
        MustOpen(Config("Dram", {{"dram", {{"capacity", "1MiB"}}},
                                 {"store",
                                  {{"workers", std::int64_t{4}},
                                   {"plugin_path", std::string(UCMSTORE_TEST_STAGES_DIR)}}}}));
    std::atomic<std::uint64_t> ended{0};
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (std::uint64_t i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        for (std::uint64_t n = 0;; ++n) {
          const auto task = std::make_unique<BlockTask>(n % 50, static_cast<char>('a' + i));
          const Result<TaskId> id = n % 2 == 0 ? store->Dump(task->desc) : store->Load(task->desc);
          if (!id) {
            EXPECT_EQ(id.error().code, Code::kClosed) << id.error().text();
            return;
          }
          const Status status = store->Wait(*id, 60'000);
          if (status.code == Code::kClosed) {
            // Says nothing about the task: its memory is free when Close has returned.
            EXPECT_TRUE(store->Close(60'000).ok());
            return;
          }
          EXPECT_TRUE(status.ok() || status.code == Code::kNotFound) << status.text();
          TaskId polled[2];
          static_cast<void>(store->Poll(polled));
          const BlockId block = Id(n % 50);
          std::ignore = store->LookupPrefix({&block, 1});
          ended.fetch_add(1);
        }
      });
    }
    while (ended.load() < 200) std::this_thread::yield();
    const Status status = store->Close(60'000);
    EXPECT_TRUE(status.ok()) << status.text();
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace ucmstore::test
