// SPDX-License-Identifier: Apache-2.0
//
// The kill suite over Posix: processes use one root at full rate while one after another is killed
// with SIGKILL in the middle of a dump, or stopped and continued. Nobody ever loads a wrong byte,
// no survivor stands still, and what the dead leave behind goes (rows G01, G06, B01, S09).
//
// UCMSTORE_TEST_KILLS says how many (20 unless set; `make soak` sets more).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <thread>

#include "kill/arena.h"
#include "kill/workload.h"
#include "support/random.h"
#include "support/temp_dir.h"

extern char** environ;

namespace ucmstore::test {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t kWorkers = 4;
constexpr auto kPatience = std::chrono::seconds(60);  // far above what any of this takes

std::uint64_t KillsWanted() {
  const char* text = std::getenv("UCMSTORE_TEST_KILLS");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 20;
}

// Looks again and again, a millisecond apart, until `reached` or out of patience.
bool Await(const std::function<bool()>& reached) {
  const auto until = steady_clock::now() + kPatience;
  while (!reached()) {
    if (steady_clock::now() > until) return false;
    ::poll(nullptr, 0, 1);
  }
  return true;
}

class KillWriters : public testing::Test {
 protected:
  void SetUp() override {
    for (std::size_t i = 0; i < kWorkers; ++i) Start(i);
  }
  void TearDown() override {
    for (const pid_t pid : pids_) {
      if (pid <= 0) continue;
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }

  void Start(std::size_t i) {
    arena_->writing[i].store(0);
    const std::string program =
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "kill_worker";
    std::vector<std::string> arguments = {program, arena_path_, root_, std::to_string(i),
                                          std::to_string(random_.Fork().seed())};
    std::vector<char*> raw;
    for (std::string& argument : arguments) raw.push_back(argument.data());
    raw.push_back(nullptr);
    ASSERT_EQ(::posix_spawn(&pids_[i], program.c_str(), nullptr, nullptr, raw.data(), environ), 0);
  }

  // Ends the worker by its id; it must have died of the signal, not before.
  void Kill(std::size_t i) {
    int status = 0;
    ASSERT_EQ(::kill(pids_[i], SIGKILL), 0);
    ASSERT_EQ(::waitpid(pids_[i], &status, 0), pids_[i]);
    pids_[i] = 0;
    EXPECT_TRUE(WIFSIGNALED(status)) << "worker " << i << " ended by itself: " << status;
  }

  // Every worker but one gets something done from here on.
  void ExpectProgress(std::size_t except) {
    for (std::size_t i = 0; i < kWorkers; ++i) {
      if (i == except) continue;
      const std::uint64_t before = arena_->operations[i].load();
      EXPECT_TRUE(Await([&] { return arena_->operations[i].load() > before; }))
          << "worker " << i << " stands still";
    }
  }

  // A victim counts only with a dump in flight and some work behind it.
  std::size_t AwaitVictim() {
    const std::size_t victim = random_.Between(0, kWorkers - 1);
    const std::uint64_t before = arena_->operations[victim].load();
    const std::uint64_t more = random_.Between(1, 100);
    EXPECT_TRUE(Await([&] {
      return arena_->operations[victim].load() >= before + more &&
             arena_->writing[victim].load() == 1;
    })) << "worker "
        << victim << " stands still";
    return victim;
  }

  void StopAll() {
    arena_->stop.store(1);
    for (std::size_t i = 0; i < kWorkers; ++i) {
      int status = 0;
      ASSERT_EQ(::waitpid(pids_[i], &status, 0), pids_[i]);
      pids_[i] = 0;
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "worker " << i;
    }
  }

  [[nodiscard]] std::size_t CountActivated() const {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root_)) {
      if (entry.path().extension() == ".activated") ++count;
    }
    return count;
  }

  // Opened once more, the root holds whole blocks and nothing of the dead.
  void ExpectCleanAndWhole() {
    EXPECT_EQ(arena_->wrong.load(), 0U);
    EXPECT_EQ(arena_->failed.load(), 0U);
    const auto store = OpenPipeline(KillConfig(root_));
    ASSERT_NE(store, nullptr);
    EXPECT_TRUE(Await([&] { return CountActivated() == 0; }))
        << CountActivated() << " files of dead writers are left";
    std::vector<std::byte> bytes(kGeometry.shard_size * kGeometry.shards_per_block);
    for (std::uint64_t i = 0; i < kBlocks; ++i) {
      EXPECT_EQ(LoadAndJudge(*store, MakeId(kFamily, i), bytes), "");
    }
    EXPECT_TRUE(store->Close(5'000));
  }

  Random random_;
  TempDir dir_;
  const std::string root_ = (dir_.path() / "root").string();
  const std::string arena_path_ = (dir_.path() / "arena").string();
  ArenaFile arena_{arena_path_};
  std::array<pid_t, kWorkers> pids_{};
};

TEST_F(KillWriters, KilledInTheMiddleOfADumpNothingIsWrongOrLeft) {
  const std::uint64_t kills = KillsWanted();
  for (std::uint64_t n = 0; n < kills && !HasFailure(); ++n) {
    const std::size_t victim = AwaitVictim();
    Kill(victim);
    ExpectProgress(victim);
    Start(victim);
  }
  StopAll();
  ExpectCleanAndWhole();
}

TEST_F(KillWriters, S09_StoppedInTheMiddleOfADumpNobodyElseStandsStill) {
  const std::uint64_t stops = KillsWanted();
  for (std::uint64_t n = 0; n < stops && !HasFailure(); ++n) {
    const std::size_t victim = AwaitVictim();
    ASSERT_EQ(::kill(pids_[victim], SIGSTOP), 0);
    ExpectProgress(victim);
    ASSERT_EQ(::kill(pids_[victim], SIGCONT), 0);
  }
  StopAll();
  ExpectCleanAndWhole();
}

}  // namespace
}  // namespace ucmstore::test
