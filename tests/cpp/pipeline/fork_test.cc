// SPDX-License-Identifier: Apache-2.0
//
// Fork: a child may not use its parent's store, and is told so at once, whatever the parent's
// threads were doing. Each child has an alarm, so one that hangs dies of it and fails the test.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include "pipeline/log_sink.h"
#include "pipeline/pipeline.h"
#include "pipeline/probe_store.h"

namespace ucmstore::test {
namespace {

constexpr unsigned kHang_s = 20;

// AddressSanitizer's allocator, unlike the C library's, does not survive a fork in the middle of
// it.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kMallocMayHang = true;
#else
constexpr bool kMallocMayHang = false;
#endif

// Runs `body` in a forked child; true if it returned true there, in time.
template <typename Body>
bool InChild(Body body) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(kHang_s);
    ::_exit(body() ? 0 : 1);
  }
  int status = 0;
  return child > 0 && ::waitpid(child, &status, 0) == child && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

bool EveryCallIsRefused(Pipeline& store, const BlockTask& task) {
  const BlockId id = Id(1);
  std::uint8_t found = 0;
  LookupDesc lookup;
  lookup.blocks = &id;
  lookup.count = 1;
  TaskId polled[1];
  const Status status = store.Lookup(lookup, &found);
  return status.code == Code::kClosed && status.text().find("forked") != std::string_view::npos &&
         store.LookupPrefix({&id, 1}).error().code == Code::kClosed &&
         store.Load(task.desc).error().code == Code::kClosed &&
         store.Dump(task.desc).error().code == Code::kClosed &&
         store.Check(1).error().code == Code::kClosed &&
         store.Wait(1, 60'000).code == Code::kClosed && store.Cancel(1).code == Code::kClosed &&
         store.Poll(polled) == 0 && store.Stats().empty() && store.Close(60'000).ok();
}

std::unique_ptr<Pipeline> OpenDram() {
  return MustOpen(
      Config("Dram", {{"dram", {{"capacity", "1MiB"}}},
                      {"store", {{"plugin_path", std::string(UCMSTORE_TEST_STAGES_DIR)}}}}));
}

TEST(ForkFaults, P01_ForkUnderTrafficChildIsToldAndNeverHangs) {
  auto store = OpenDram();
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> ended{0};
  std::vector<std::thread> threads;
  threads.reserve(3);
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      for (std::uint64_t n = 0; !stop.load(); ++n) {
        const BlockTask task(n % 20);
        const Result<TaskId> id = n % 2 == 0 ? store->Dump(task.desc) : store->Load(task.desc);
        if (id) static_cast<void>(store->Wait(*id, 60'000));
        ended.fetch_add(1);
      }
    });
  }
  while (ended.load() < 50) std::this_thread::yield();
  const BlockTask unborn(1);
  for (int round = 0; round < 20; ++round) {
    EXPECT_TRUE(InChild([&] {
      if (!EveryCallIsRefused(*store, unborn)) return false;
      if (!kMallocMayHang) store.reset();  // does nothing but return
      return true;
    }));
  }
  stop.store(true);
  for (std::thread& thread : threads) thread.join();
  DumpBlocks(*store, 100, 5);  // the parent's store never noticed
  EXPECT_TRUE(store->Close(60'000).ok());
}

TEST(ForkFaults, P01_ChildLogsThroughALockOfItsOwn) {
  LogSink* const of_parent = StderrLogSink("error");
  EXPECT_EQ(StderrLogSink("error"), of_parent);
  EXPECT_TRUE(InChild([&] {
    LogSink* const own = StderrLogSink("error");
    return own != of_parent && StderrLogSink("error") == own;
  }));
}

// A forked child that starts threads: TSan ends it, and ASan may stop it in malloc.
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
TEST(ForkFaults, P01_ChildMayOpenItsOwn) {
  auto store = OpenDram();
  DumpBlocks(*store, 0, 5);
  EXPECT_TRUE(InChild([] {
    auto own = OpenDram();
    DumpBlocks(*own, 0, 3);
    const BlockId id = Id(2);
    return own->LookupPrefix({&id, 1}).value_or(0) == 1 && own->Close(10'000).ok();
  }));
  DumpBlocks(*store, 5, 5);
}
#endif

#if !defined(__SANITIZE_THREAD__)
TEST(ForkFaults, P02_ExitDoesNotWaitForAChild) {
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  std::fflush(nullptr);
  const pid_t parent = ::fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    ::alarm(kHang_s);
    auto store = OpenDram();
    DumpBlocks(*store, 0, 5);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(10 * kHang_s);
      while (true) ::pause();
    }
    if (::write(pipe_ends[1], &child, sizeof(child)) != sizeof(child)) ::_exit(2);
    store.reset();
    ::_exit(0);
  }
  pid_t child = 0;
  const bool told = ::read(pipe_ends[0], &child, sizeof(child)) == sizeof(child);
  int status = 0;
  EXPECT_EQ(::waitpid(parent, &status, 0), parent);
  EXPECT_TRUE(told && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  if (told && child > 0) ::kill(child, SIGKILL);  // an orphan by now
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
}
#endif

}  // namespace
}  // namespace ucmstore::test
