// SPDX-License-Identifier: Apache-2.0
//
// Who tests the tests: each check of checks.h is run over stores that break one promise on purpose,
// and must report it; and over the same stores without the defect, where it must not. A check
// that cannot fail proves nothing about the stacks that pass it.
#include <gtest/gtest-spi.h>

#include <algorithm>
#include <functional>

#include "support/checks.h"
#include "support/eventually.h"
#include "support/fault_control.h"
#include "support/test_store.h"

namespace ucmstore::test {
namespace {

constexpr Geometry kGeometry = {1000, 6};
const BlockId kOne = MakeId(8, 1);
const BlockId kTwo = MakeId(8, 2);
const BlockId kThree = MakeId(8, 3);

// A store that passes everything on to another. The defective ones below override one method.
class Honest : public TestStore {
 public:
  explicit Honest(std::unique_ptr<TestStore> below) : below_(std::move(below)) {}
  Status Lookup(const LookupDesc& desc, std::uint8_t* found) override {
    return below_->Lookup(desc, found);
  }
  Status Load(const TaskDesc& desc, TaskId* task) override { return below_->Load(desc, task); }
  Status Dump(const TaskDesc& desc, TaskId* task) override { return below_->Dump(desc, task); }
  Status Check(TaskId task, bool* done) override { return below_->Check(task, done); }
  Status Wait(TaskId task, std::uint32_t ms) override { return below_->Wait(task, ms); }
  Status Cancel(TaskId task) override { return below_->Cancel(task); }
  bool Close(std::uint32_t timeout_ms) override { return below_->Close(timeout_ms); }
  std::map<std::string, double> Stats() override { return below_->Stats(); }

 protected:
  TestStore& below() { return *below_; }

 private:
  std::unique_ptr<TestStore> below_;
};

// A05: the failure of a task is dropped on its way up.
class DropsFailures final : public Honest {
  using Honest::Honest;
  Status Wait(TaskId task, std::uint32_t ms) override {
    Status status = below().Wait(task, ms);
    return status.code == Code::kNotFound && status.text().find("task") == std::string_view::npos
               ? Status::Ok()
               : status;
  }
};

// B, C: a block is announced as soon as one shard of it has come.
class AnnouncesEarly final : public Honest {
  using Honest::Honest;
  Status Dump(const TaskDesc& desc, TaskId* task) override {
    for (std::uint32_t i = 0; i < desc.shard_count; ++i) seen_.push_back(desc.shards[i].block);
    return below().Dump(desc, task);
  }
  Status Lookup(const LookupDesc& desc, std::uint8_t* found) override {
    const Status status = below().Lookup(desc, found);
    for (std::uint32_t i = 0; i < desc.count; ++i) {
      if (std::ranges::count(seen_, desc.blocks[i]) > 0) found[i] = kInMemory;
    }
    return status;
  }
  std::vector<BlockId> seen_;
};

class StopsAtEveryMiss final : public Honest {
  using Honest::Honest;
  Status Lookup(const LookupDesc& desc, std::uint8_t* found) override {
    LookupDesc stopping = desc;
    stopping.flags |= kStopAtMiss;
    return below().Lookup(stopping, found);
  }
};

class IgnoresStopAtMiss final : public Honest {
  using Honest::Honest;
  Status Lookup(const LookupDesc& desc, std::uint8_t* found) override {
    LookupDesc going_on = desc;
    going_on.flags &= ~kStopAtMiss;
    return below().Lookup(going_on, found);
  }
};

class CheckRetires final : public Honest {
  using Honest::Honest;
  Status Check(TaskId task, bool* done) override {
    const Status status = below().Check(task, done);
    if (status.ok() && *done) (void)below().Wait(task, 0);
    return status;
  }
};

class WaitsTwice final : public Honest {  // the second Wait of a task is ok too
  using Honest::Honest;
  Status Wait(TaskId task, std::uint32_t ms) override {
    const Status status = below().Wait(task, ms);
    if (status.ok()) last_ = task;
    return task == last_ ? Status::Ok() : status;
  }
  TaskId last_ = 0;
};

class CallsTwice final : public Honest {
  using Honest::Honest;
  Status Load(const TaskDesc& desc, TaskId* task) override {
    const Status status = below().Load(desc, task);
    if (status.ok() && desc.on_done != nullptr) desc.on_done(desc.on_done_ctx, *task);
    return status;
  }
};

class ForgetsToCall final : public Honest {
  using Honest::Honest;
  Status Load(const TaskDesc& desc, TaskId* task) override {
    TaskDesc silent = desc;
    if (desc.shard_count == 0) silent.on_done = nullptr;
    return below().Load(silent, task);
  }
};

class CallsForRefusals final : public Honest {
  using Honest::Honest;
  Status Dump(const TaskDesc& desc, TaskId* task) override {
    const Status status = below().Dump(desc, task);
    if (!status.ok() && desc.on_done != nullptr) desc.on_done(desc.on_done_ctx, 1);
    return status;
  }
};

// Stores the good part of a task that is refused.
class StoresHalfOfARefusal final : public Honest {
  using Honest::Honest;
  Status Dump(const TaskDesc& desc, TaskId* task) override {
    const Status status = below().Dump(desc, task);
    if (status.ok() || desc.shard_count == 0) return status;
    TaskDesc part = desc;
    part.shard_count = kGeometry.shards_per_block;
    part.on_done = nullptr;
    TaskId hidden = 0;
    if (below().Dump(part, &hidden).ok()) (void)below().Wait(hidden, kPatienceMs);
    return status;
  }
};

// Writes past the length of a short shard, as a copy of whole slots would.
class FillsTheTail final : public Honest {
  using Honest::Honest;
  Status Load(const TaskDesc& desc, TaskId* task) override {
    for (std::uint32_t i = 0; i < desc.shard_count; ++i) {
      const Segment& last = desc.shards[i].segments[desc.shards[i].segment_count - 1];
      static_cast<std::byte*>(last.data)[last.size - 1] = std::byte{0};
    }
    return below().Load(desc, task);
  }
};

// Forgets one shard of a load: it is reported as loaded, and was not touched.
class SkipsAShard final : public Honest {
  using Honest::Honest;
  Status Load(const TaskDesc& desc, TaskId* task) override {
    TaskDesc fewer = desc;
    if (desc.shard_count > 1 && desc.results != nullptr) {
      --fewer.shard_count;
      desc.results[fewer.shard_count] = {Code::kOk, 0,
                                         static_cast<std::uint32_t>(kGeometry.shard_size)};
    }
    return below().Load(fewer, task);
  }
};

// Stale bytes: somebody else's dump of the block is found instead of the one that was confirmed.
class Stale final : public Honest {
  using Honest::Honest;
  Status Dump(const TaskDesc& desc, TaskId* task) override {
    for (std::uint32_t i = 0; i < desc.shard_count; ++i) {
      (void)DumpShard(below(), kGeometry, desc.shards[i].block, desc.shards[i].index, 4711);
    }
    return below().Dump(desc, task);
  }
};

using CheckFunction = std::function<void(TestStore&)>;

struct CheckLine {
  const char* name;
  CheckFunction run;
};

const CheckLine kRoundTrip = {"round trip",
                              [](TestStore& s) { CheckRoundTrip(s, kGeometry, {kOne, kTwo}); }};
const CheckLine kShort = {"short shards",
                          [](TestStore& s) { CheckShortShards(s, kGeometry, kOne); }};
const CheckLine kMixed = {"mixed task",
                          [](TestStore& s) { CheckResultsOfAMixedTask(s, kGeometry, kOne, kTwo); }};
const CheckLine kInvisible = {"invisible until complete", [](TestStore& s) {
                                CheckInvisibleUntilComplete(s, kGeometry, kOne);
                              }};
const CheckLine kRetirement = {"retirement",
                               [](TestStore& s) { CheckRetirement(s, kGeometry, kOne); }};
const CheckLine kOnDone = {"on_done", [](TestStore& s) { CheckOnDone(s, kGeometry, kOne); }};
const CheckLine kRefusal = {"refusal",
                            [](TestStore& s) { CheckRefusalLeavesNothing(s, kGeometry, kOne); }};
const CheckLine kGap = {
    "gap", [](TestStore& s) { CheckLookupAcrossAGap(s, kGeometry, {kOne, kTwo, kThree}); }};

// How often a check finds fault with a store.
int FailuresOf(const CheckLine& check, TestStore& store) {
  testing::TestPartResultArray results;
  {
    const testing::ScopedFakeTestPartResultReporter intercept(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &results);
    check.run(store);
  }
  int failures = 0;
  for (int i = 0; i < results.size(); ++i) {
    if (results.GetTestPartResult(i).failed()) ++failures;
  }
  return failures;
}

std::unique_ptr<TestStore> OpenDram(const std::string& rules = "") {
  StackConfig config;
  config.spec = "Fault|Dram";
  config.geometry = kGeometry;
  if (!rules.empty()) config.options["fault.rules"] = rules;
  return OpenRaw(config);
}

template <typename Store>
std::unique_ptr<TestStore> Make() {
  return std::make_unique<Store>(OpenDram());
}

TEST(Sensitivity, NoCheckFindsFaultWithAnHonestStore) {
  for (const CheckLine& check :
       {kRoundTrip, kShort, kMixed, kInvisible, kRetirement, kOnDone, kRefusal, kGap}) {
    const auto store = Make<Honest>();
    EXPECT_EQ(FailuresOf(check, *store), 0) << check.name;
  }
}

TEST(Sensitivity, EveryDefectIsFound) {
  struct Line {
    const char* defect;
    std::function<std::unique_ptr<TestStore>()> open;
    CheckLine check;
  };
  const Line lines[] = {
      {"failures are dropped", Make<DropsFailures>, kMixed},
      {"blocks are announced early", Make<AnnouncesEarly>, kInvisible},
      {"Lookup stops at every miss", Make<StopsAtEveryMiss>, kGap},
      {"Lookup ignores kStopAtMiss", Make<IgnoresStopAtMiss>, kGap},
      {"Check retires", Make<CheckRetires>, kRetirement},
      {"Wait retires nothing", Make<WaitsTwice>, kRetirement},
      {"on_done comes twice", Make<CallsTwice>, kOnDone},
      {"on_done never comes for an empty task", Make<ForgetsToCall>, kOnDone},
      {"on_done comes for a refusal", Make<CallsForRefusals>, kRefusal},
      {"a refused dump is stored in part", Make<StoresHalfOfARefusal>, kRefusal},
      {"the tail of a short shard is written", Make<FillsTheTail>, kShort},
      {"a shard is reported but not loaded", Make<SkipsAShard>, kRoundTrip},
      {"stale bytes", Make<Stale>, kRoundTrip},
  };
  for (const Line& line : lines) {
    const auto store = line.open();
    EXPECT_GT(FailuresOf(line.check, *store), 0) << "nobody saw: " << line.defect;
  }
}

TEST(Sensitivity, EveryFaultOfTheFaultStageIsFound) {
  struct Line {
    const char* rule;
    CheckLine check;
  };
  const Line lines[] = {
      {"load flip", kRoundTrip},
      {"load flip nth=3", kRoundTrip},
      {"load flip every=5", kShort},
      {"load short=1", kRoundTrip},
      {"load short=10 nth=4", kShort},
      {"load scribble", kRoundTrip},
      {"load scribble nth=2", kMixed},
      {"load throw nth=1", kRoundTrip},
      {"load fail=not_found nth=5", kRoundTrip},
      {"load refuse nth=2", kRoundTrip},
      {"dump fail=io_error nth=2", kRoundTrip},
      {"dump fail=io_error when=after nth=6", kRoundTrip},
      {"dump throw nth=1", kInvisible},
      {"dump refuse", kOnDone},
      {"lookup refuse=io_error nth=1", kGap},
  };
  for (const Line& line : lines) {
    const auto store = OpenDram(line.rule);
    EXPECT_GT(FailuresOf(line.check, *store), 0) << "nobody saw: " << line.rule;
  }
}

// A scribble after the task's end, in a moment of its own choosing, into memory that is in use
// again.
TEST(Sensitivity, ALateScribbleIsFound) {
  const auto store = OpenDram("load scribble=5");
  ASSERT_TRUE(DumpBlock(*store, kGeometry, kOne, 1).ok());
  LoadBatch load(kGeometry);
  load.AddBlock(kOne);
  ASSERT_TRUE(Finish(*store, load).ok());
  EXPECT_TRUE(Eventually(
      [&] { return store->Stats()["fault.late_scribbles"] >= kGeometry.shards_per_block; }));
  EXPECT_NE(load.Problem(0, 1), "");
  EXPECT_TRUE(store->Close(kPatienceMs));
}

}  // namespace
}  // namespace ucmstore::test
