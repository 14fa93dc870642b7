// SPDX-License-Identifier: Apache-2.0
//
// Out of memory, even for words, in the places where nothing may throw: destructors, jobs of the
// workers, callbacks. The process goes on, every task ends, and what was lost is a log line.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "io/hooked_fs.h"
#include "memory/scarce_memory.h"
#include "posix/posix_store.h"
#include "store/posix/block_writer.h"
#include "support/eventually.h"
#include "support/temp_dir.h"
#include "task/gate_stage.h"

namespace ucmstore::test {
namespace {

constexpr Geometry kTwo = {100, 2};
const BlockId kA = MakeId(1, 1);
const std::string kLong(200, 'x');  // no text of this length fits into the string itself

// Keeps the last line, without memory of its own.
class LastLine final : public LogSink {
 public:
  void Write(LogLevel /*level*/, std::string_view text) noexcept override {
    size_ = std::min(text.size(), text_.size());
    std::ranges::copy(text.substr(0, size_), text_.begin());
  }
  [[nodiscard]] std::string_view text() const { return {text_.data(), size_}; }

 private:
  std::array<char, 400> text_{};
  std::size_t size_ = 0;
};

TEST(NoMemory, ALineWithoutMemoryIsDroppedAndCounted) {
  LastLine sink;
  {
    Log log(&sink, "test");
    {
      const NoMemory none;
      log.Error([] { return kLong + "!"; });
      EXPECT_GT(ScarceMemory::Failures(), 0U);
      EXPECT_EQ(sink.text(), "");
    }
    log.Error([] { return std::string("later"); });
    EXPECT_EQ(sink.text(), "test: later (1 lines before this one were dropped)");
    const NoMemory none;
    log.Error(kLong);
    EXPECT_EQ(sink.text(), kLong) << "words that are there need no memory";
  }
}

TEST(NoMemory, AnErrorKeepsItsBareWords) {
  const NoMemory none;
  const Status status = ErrorInWords(Code::kIoError, "bare", [] { return kLong + "!"; }, 5);
  EXPECT_EQ(status.text(), "bare");
  EXPECT_EQ(status.code, Code::kIoError);
  EXPECT_EQ(status.sys_errno, 5);
}

TEST(NoMemory, WithoutAThreadItSaysSoInFewerWords) {
  const NoMemory none;
  const Status status = NoThreadStatus("worker thread", EAGAIN);
  EXPECT_EQ(status.code, Code::kLimit);
  EXPECT_NE(status.text().find("ulimit -u"), std::string_view::npos);
}

// Every call of the medium is where memory runs out, on that thread, for good or for one call.
class NoMemoryInJobs : public ::testing::TestWithParam<bool> {
 protected:
  // Memory runs out here, and the medium says what a test wants.
  static GateStage::Hook RunsOut(bool throws) {
    return [throws](const BlockId&) -> Status {
      ScarceMemory::Begin();
      if (throws) throw std::bad_alloc();
      return Status::Error(Code::kIoError, "the medium failed", 5);
    };
  }
};

TEST_P(NoMemoryInJobs, EveryShardEndsAndTheStoreGoesOn) {
  GateStore store(kTwo, {.workers = 1});
  const auto all = {&GateStage::Hooks::find, &GateStage::Hooks::create, &GateStage::Hooks::write,
                    &GateStage::Hooks::commit, &GateStage::Hooks::read};
  for (const auto hook : all) {
    store.stage().hooks = {};
    store.stage().hooks.*hook = RunsOut(GetParam());
    DumpBatch dump(kTwo);
    LoadBatch load(kTwo);
    const bool loads = hook == &GateStage::Hooks::read;
    const TaskId task =
        loads ? Submit(store, load.AddBlock(kA)) : Submit(store, dump.AddBlock(kA, 1));
    const Status status = store.Wait(task, kPatienceMs);
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.code, Code::kPending);
    ScarceMemory::EndAll();
    EXPECT_EQ(store.Stats()["tasks_in_flight"], 0);
  }
  store.stage().hooks = {};
  ASSERT_TRUE(DumpBlock(store, kTwo, kA, 2).ok());
  EXPECT_EQ(BlockProblem(store, kTwo, kA, 2), "");
}

INSTANTIATE_TEST_SUITE_P(, NoMemoryInJobs, ::testing::Bool());

class NoMemoryInPosix : public ::testing::Test {
 protected:
  PosixConfig Config() {
    PosixConfig config;
    config.roots = {dir_.string()};
    config.fs = &fs_;
    return config;
  }
  [[nodiscard]] std::size_t Leftovers() const {
    return FilesBelow(dir_.path(), ".activated").size();
  }
  TempDir dir_;
  HookedFs fs_;
};
constexpr Geometry kSmall{.shard_size = 8192, .shards_per_block = 4};

// The writer of an aborted block whose file cannot be removed wants to say so.
TEST_F(NoMemoryInPosix, AWriterEndsWithoutWords) {
  RootOptions options;
  options.path = dir_.string();
  options.label = PosixConfig().label;
  options.wanted.layout = {kSmall.shard_size, kSmall.shards_per_block};
  options.wanted.content = "raw";
  options.wanted.prefix_digits = 3;
  auto opened = Root::Open(fs_, options);
  ASSERT_TRUE(opened) << opened.error().message;
  const std::shared_ptr<Root> root = *std::move(opened);
  PosixCounters counters;
  KeepingSink sink;
  Log log(&sink, "test");
  auto writer = std::make_unique<PosixWriter>(root, kA, counters, log);
  DumpBatch dump(kSmall);
  const TaskDesc desc = dump.Add(kA, 0, 1).desc();
  std::vector<ShardIo> shards;
  shards.emplace_back(0, std::span(desc.shards[0].segments, desc.shards[0].segment_count));
  writer->Write(shards, false);
  ASSERT_TRUE(shards[0].status().ok()) << shards[0].status().message;
  fs_.Set([](const Call& call) { return call.op == Op::kUnlink ? -EIO : HookedFs::kGoOn; });
  {
    const NoMemory none;
    writer.reset();
    EXPECT_GT(ScarceMemory::Failures(), 0U);
  }
  fs_.Clear();
  EXPECT_EQ(counters.leftovers.Get(), 1U);
}

// The sweep over what dead writers left: memory runs out at its first removal.
TEST_F(NoMemoryInPosix, AReaperGivesUpAndTheNextOneGoesOn) {
  const auto leave = [&] {
    const auto store = PosixStore::Open(Config());
    for (std::uint64_t b = 0; b < 20; ++b) {
      ASSERT_TRUE(DumpShard(*store, kSmall, MakeId(1, b), 0, 1).ok());
    }
    fs_.Set([](const Call& call) { return call.op == Op::kUnlink ? -EIO : HookedFs::kGoOn; });
    EXPECT_TRUE(store->Close(kPatienceMs));
    fs_.Clear();
  };
  leave();
  ASSERT_EQ(Leftovers(), 20U);
  std::atomic<bool> ran_out{false};
  fs_.Set([&](const Call& call) {
    if (call.op == Op::kUnlink && call.path.ends_with(".activated") && !ran_out.exchange(true)) {
      ScarceMemory::Begin();
      ran_out.notify_all();
    }
    return HookedFs::kGoOn;
  });
  {
    const auto store = PosixStore::Open(Config());
    ran_out.wait(false);
    EXPECT_TRUE(store->Close(kPatienceMs));
  }
  ScarceMemory::EndAll();
  fs_.Clear();
  const auto next = PosixStore::Open(Config());
  EXPECT_TRUE(Eventually([&] { return Leftovers() == 0; }));
}

}  // namespace
}  // namespace ucmstore::test
