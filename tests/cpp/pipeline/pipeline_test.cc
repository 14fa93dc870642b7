// SPDX-License-Identifier: Apache-2.0
//
// The calls of an open pipeline: lookups with gaps, prefetch, completions, waiting, figures.
#include "pipeline/pipeline.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "pipeline/probe_store.h"

namespace ucmstore::test {
namespace {

std::vector<BlockId> Ids(std::uint64_t count) {
  std::vector<BlockId> ids;
  ids.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) ids.push_back(Id(i));
  return ids;
}

std::map<std::string, double> Figures(const Pipeline& store) {
  std::map<std::string, double> figures;
  for (const StageMetric& metric : store.Stats()) {
    figures[metric.stage + "." + metric.name] = metric.value;
  }
  return figures;
}

TEST(Pipeline, LoadsWhatWasDumped) {
  const Journal journal;
  const auto store = MustOpen(Config("Wrap|Deep|Probe"));
  const BlockTask dump(1, 'd');
  ASSERT_TRUE(store->Wait(store->Dump(dump.desc).value(), 1000).ok());
  const BlockTask load(1, '?');
  const TaskId task = store->Load(load.desc).value();
  EXPECT_TRUE(store->Check(task).value());
  ASSERT_TRUE(store->Wait(task, 1000).ok());
  EXPECT_EQ(load.bytes, dump.bytes);
  EXPECT_EQ(store->Wait(task, 1000).code, Code::kNotFound);
  EXPECT_EQ(store->Check(task).error().code, Code::kNotFound);
}

TEST(Pipeline, PrefixEndsAtTheFirstGap) {
  const auto store = MustOpen(Config("Wrap|Probe"));
  DumpBlocks(*store, 0, 3);
  DumpBlocks(*store, 4, 3);
  EXPECT_EQ(store->LookupPrefix(Ids(7)).value(), 3U);
  EXPECT_EQ(store->LookupPrefix(Ids(2)).value(), 2U);
  EXPECT_EQ(store->LookupPrefix({}).value(), 0U);
  DumpBlocks(*store, 3, 1);
  EXPECT_EQ(store->LookupPrefix(Ids(9)).value(), 7U);

  const std::vector<BlockId> ids = Ids(9);
  LookupDesc desc;
  desc.blocks = ids.data();
  desc.count = 9;
  std::uint8_t found[9];
  ASSERT_TRUE(store->Lookup(desc, found).ok());
  EXPECT_EQ(std::vector<int>(found, found + 9), (std::vector<int>{1, 1, 1, 1, 1, 1, 1, 0, 0}));
}

TEST(Pipeline, PrefixOfAnyLength) {
  const auto store = MustOpen(Config("Probe"));
  DumpBlocks(*store, 0, 9'000);
  EXPECT_EQ(store->LookupPrefix(Ids(9'500)).value(), 9'000U);
  EXPECT_EQ(store->LookupPrefix(Ids(4'096)).value(), 4'096U);
  EXPECT_EQ(store->LookupPrefix(Ids(4'097), 0, 60'000).value(), 4'097U);
  EXPECT_EQ(store->LookupPrefix(Ids(3), 1U << 30).error().code, Code::kInvalidArgument);
}

TEST(Pipeline, ALookupThatTimesOutKeepsThePrefixKnownSoFar) {
  const auto late_after_one =
      MustOpen(Config("Fault|Probe", {{"fault", {{"rules", "lookup refuse=timeout nth=2"}}}}));
  DumpBlocks(*late_after_one, 0, 5'000);
  EXPECT_EQ(late_after_one->LookupPrefix(Ids(5'000)).value(), 4'096U);
  const auto late_at_once =
      MustOpen(Config("Fault|Probe", {{"fault", {{"rules", "lookup refuse=timeout"}}}}));
  EXPECT_EQ(late_at_once->LookupPrefix(Ids(5'000)).error().code, Code::kTimeout);
}

TEST(Pipeline, PrefetchTouchesNoMemoryAndIsAnnounced) {
  const auto store = MustOpen(Config("Probe"));
  DumpBlocks(*store, 0, 3);
  const TaskId task = store->Prefetch(Ids(3)).value();
  TaskId polled[4];
  ASSERT_EQ(store->Poll(polled), 1U);
  EXPECT_EQ(polled[0], task);
  EXPECT_TRUE(store->Wait(task, 1000).ok());
  EXPECT_TRUE(store->Wait(store->Prefetch({}).value(), 1000).ok());
}

TEST(Pipeline, TenThousandWaitedTasksLeaveNothingBehind) {
  const auto store = MustOpen(Config("Probe"));
  static_cast<void>(store->event_fd());
  DumpBlocks(*store, 0, 10'000);
  TaskId one[1];
  EXPECT_EQ(store->Poll(one), 0U);
  EXPECT_EQ(Figures(*store)["store.unannounced_tasks"], 0);
  EXPECT_EQ(Figures(*store)["store.running_tasks"], 0);
}

TEST(Pipeline, PollAnnouncesAndTheDescriptorTells) {
  const Journal journal;
  const auto store = MustOpen(Config("Wrap|Probe"));
  const auto readable = [fd = store->event_fd()] {
    pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
    return ::poll(&entry, 1, 0) == 1;
  };
  Valves("Probe").hold(true, false);
  const BlockTask first(1);
  const BlockTask second(2);
  const TaskId a = store->Dump(first.desc).value();
  const TaskId b = store->Dump(second.desc).value();
  TaskId polled[4];
  EXPECT_EQ(store->Poll(polled), 0U);
  EXPECT_FALSE(readable());
  EXPECT_FALSE(store->Check(a).value());
  EXPECT_EQ(Figures(*store)["store.running_tasks"], 2);
  EXPECT_EQ(Valves("Probe").release(), 2U);
  EXPECT_TRUE(readable());
  ASSERT_EQ(store->Poll(polled), 2U);
  EXPECT_EQ(polled[0], a);
  EXPECT_EQ(polled[1], b);
  EXPECT_FALSE(readable());
  EXPECT_EQ(store->Poll(polled), 0U);
  EXPECT_TRUE(store->Wait(a, 0).ok());  // announced, not retired
  EXPECT_TRUE(store->Wait(b, 0).ok());
}

TEST(Pipeline, ACallbackOfTheCallersFiresOnceAndMayWait) {
  const auto store = MustOpen(Config("Probe"));
  struct Heard {
    Pipeline* store;
    std::atomic<int> calls{0};
    TaskId task = 0;
    bool done = false;
  } heard{.store = store.get()};
  BlockTask dump(1);
  dump.desc.on_done = [](void* ctx, TaskId task) {
    auto& to = *static_cast<Heard*>(ctx);
    ++to.calls;
    to.task = task;
    to.done = to.store->Check(task).value_or(false);
  };
  dump.desc.on_done_ctx = &heard;
  const TaskId task = store->Dump(dump.desc).value();
  EXPECT_EQ(heard.calls, 1);
  EXPECT_EQ(heard.task, task);
  EXPECT_TRUE(heard.done);
  TaskId polled[1];
  EXPECT_EQ(store->Poll(polled), 0U);
  EXPECT_TRUE(store->Wait(task, 0).ok());
}

TEST(Pipeline, ARefusedTaskIsNoTask) {
  const auto store = MustOpen(Config("Wrap|Probe"));
  for (int i = 0; i < 1000; ++i) {
    BlockTask dump(1);
    dump.shards[1].index = 2;
    EXPECT_EQ(store->Dump(dump.desc).error().code, Code::kInvalidArgument);
    dump.desc.struct_size = 8;
    EXPECT_EQ(store->Load(dump.desc).error().code, Code::kInvalidArgument);
  }
  EXPECT_EQ(Figures(*store)["store.running_tasks"], 0);
  EXPECT_EQ(Figures(*store)["store.unannounced_tasks"], 0);
  DumpBlocks(*store, 0, 1);
}

TEST(Pipeline, WaitLooksWaitsAndWakes) {
  const Journal journal;
  const auto store = MustOpen(Config("Probe"));
  Valves("Probe").hold(true, false);
  const BlockTask dump(1);
  const TaskId task = store->Dump(dump.desc).value();
  EXPECT_EQ(store->Wait(task, 0).code, Code::kPending);
  EXPECT_EQ(store->Wait(task, 120).code, Code::kPending);  // longer than one slice
  std::thread waiter([&] { EXPECT_TRUE(store->Wait(task, 60'000).ok()); });
  while (Valves("Probe").release() == 0) std::this_thread::yield();
  waiter.join();
  EXPECT_EQ(store->Wait(task, 60'000).code, Code::kNotFound);
  EXPECT_EQ(store->Wait(0, 60'000).code, Code::kNotFound);
  EXPECT_EQ(store->Wait(UINT64_MAX, UINT32_MAX).code, Code::kNotFound);
}

TEST(Pipeline, CancelGoesToTheTopmostStage) {
  const Journal journal;
  const auto store = MustOpen(Config("Probe"));
  Valves("Probe").hold(true, true);
  const BlockTask dump(1);
  const TaskId task = store->Dump(dump.desc).value();
  EXPECT_TRUE(store->Cancel(task).ok());
  EXPECT_EQ(store->Wait(task, 60'000).code, Code::kCancelled);
  EXPECT_EQ(store->Cancel(task).code, Code::kNotFound);
  const Status none = MustOpen(Config("Wrap|Probe"))->Cancel(1);
  EXPECT_EQ(none.code, Code::kUnsupported);
  EXPECT_TRUE(Says(none.text(), {"Wrap"}));
}

TEST(Pipeline, StatsNameEachStage) {
  const auto store = MustOpen(Config("Wrap|Wrap|Deep|Probe"));
  EXPECT_EQ(store->LookupPrefix(Ids(1)).value(), 0U);
  EXPECT_EQ(store->LookupPrefix(Ids(1)).value(), 0U);
  const std::map<std::string, double> figures = Figures(*store);
  EXPECT_EQ(figures.at("wrap.lookups"), 2);
  EXPECT_EQ(figures.at("wrap#2.lookups"), 2);
  EXPECT_EQ(figures.at("deep.lookups"), 2);
  EXPECT_FALSE(figures.contains("probe.lookups"));  // it has no such table
}

TEST(Pipeline, TwoStoresInOneProcessAreStrangers) {
  const auto one = MustOpen(Config("Probe"));
  const auto two = MustOpen(Config("Probe"));
  DumpBlocks(*one, 0, 2);
  EXPECT_EQ(one->LookupPrefix(Ids(2)).value(), 2U);
  EXPECT_EQ(two->LookupPrefix(Ids(2)).value(), 0U);
}

TEST(PipelineLeases, M06_AreRefusedInWordsWhereTheTopmostStageHasNone) {
  const auto store = MustOpen(Config("Probe"));
  const BlockId id = Id(1);
  for (const Status& status :
       {store->Acquire({&id, 1}).error(), store->Reserve({&id, 1}, 0, 2).error(),
        store->RingMemory().error()}) {
    EXPECT_EQ(status.code, Code::kUnsupported);
    EXPECT_EQ(status.text(),
              "leases need a pipeline that begins with Cache; this one begins with Probe");
  }
  ASSERT_TRUE(store->Close(1'000).ok());
  EXPECT_EQ(store->Acquire({&id, 1}).error().code, Code::kClosed);
}

}  // namespace
}  // namespace ucmstore::test
