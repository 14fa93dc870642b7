// SPDX-License-Identifier: Apache-2.0
//
// The kill suite, over Posix and over Cache|Posix: processes use one root at full rate while one
// after another is killed with SIGKILL in the middle of a dump or with a lease in its hands, or
// stopped and continued. Nobody ever loads a wrong byte, no survivor stands still, and what the
// dead leave behind goes (rows G01, G06, B01, S09).
//
// UCMSTORE_TEST_KILLS says how many (`make soak` sets more); unless set, 200 kills of processes
// with a Cache, and 20 of all else.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <thread>

#include "kill/arena.h"
#include "kill/workload.h"
#include "shm/layout.h"
#include "shm/slot_word.h"
#include "support/random.h"
#include "support/temp_dir.h"

extern char** environ;

namespace ucmstore::test {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t kWorkers = 4;
constexpr auto kPatience = std::chrono::seconds(60);  // far above what any of this takes

std::uint64_t KillsWanted(std::uint64_t unless_said) {
  const char* text = std::getenv("UCMSTORE_TEST_KILLS");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : unless_said;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kManyKills = 20;  // a process takes long to start there
#else
constexpr std::uint64_t kManyKills = 200;
#endif

// Looks again and again, a millisecond apart, until `reached` or out of patience.
bool Await(const std::function<bool()>& reached) {
  const auto until = steady_clock::now() + kPatience;
  while (!reached()) {
    if (steady_clock::now() > until) return false;
    ::poll(nullptr, 0, 1);
  }
  return true;
}

class KillWriters : public testing::TestWithParam<const char*> {
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
    std::vector<std::string> arguments = {program,
                                          arena_path_,
                                          GetParam(),
                                          root_,
                                          ring_,
                                          std::to_string(i),
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
    const auto store = OpenPipeline(KillConfig(GetParam(), root_, ring_));
    ASSERT_NE(store, nullptr);
    EXPECT_TRUE(Await([&] { return CountActivated() == 0; }))
        << CountActivated() << " files of dead writers are left";
    std::vector<std::byte> bytes(kGeometry.shard_size * kGeometry.shards_per_block);
    for (std::uint64_t i = 0; i < kBlocks; ++i) {
      EXPECT_EQ(LoadAndJudge(*store, MakeId(kFamily, i), bytes), "");
    }
    ExpectKept(*store);
    EXPECT_TRUE(store->Close(20'000));
    if (IsCache()) ExpectRingAtRest();
    // What was confirmed is below by now.
    const auto below = OpenPipeline(KillConfig("Posix", root_, ring_));
    ASSERT_NE(below, nullptr);
    ExpectKept(*below);
  }

  [[nodiscard]] static bool IsCache() { return std::string(GetParam()).starts_with("Cache"); }

  void ExpectKept(TestStore& store) {
    std::vector<std::byte> bytes(kGeometry.shard_size * kGeometry.shards_per_block);
    for (std::size_t w = 0; w < kWorkers; ++w) {
      for (std::uint64_t n = 0; n < arena_->kept[w].load(); ++n) {
        ASSERT_TRUE(IsPresent(store, KeptId(w, n))) << "lost: block " << n << " of worker " << w;
        ASSERT_EQ(LoadAndJudge(store, KeptId(w, n), bytes), "");
      }
    }
  }

  // Everybody has left: no slot is claimed, being copied into, dirty or pinned, no lease counted.
  void ExpectRingAtRest() {
    for (const auto& entry : std::filesystem::directory_iterator(ring_)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with("ucmstore.")) continue;
      const UniqueFd file(::open(entry.path().c_str(), O_RDWR | O_CLOEXEC));
      const auto size = std::filesystem::file_size(entry.path());
      void* base = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
      ASSERT_NE(base, MAP_FAILED);
      const auto* header = static_cast<const RingHeader*>(base);
      const auto* slots =
          reinterpret_cast<const Slot*>(static_cast<std::byte*>(base) + header->slots_at);
      for (std::uint32_t slot = 0; slot < header->slot_count; ++slot) {
        const SlotWord word(slots[slot].word.load());
        EXPECT_TRUE(word.state() == SlotState::kEmpty || word.evictable() ||
                    word.state() == SlotState::kAssembling)
            << "slot " << slot << " is in state " << static_cast<int>(word.state());
        EXPECT_FALSE(word.draining()) << "slot " << slot;
        EXPECT_EQ(slots[slot].pins[0].load() | slots[slot].pins[1].load(), 0U) << "slot " << slot;
      }
      const auto* processes =
          reinterpret_cast<const ProcessEntry*>(static_cast<std::byte*>(base) + kProcessesAt);
      for (std::uint32_t place = 0; place < kMaxProcesses; ++place) {
        EXPECT_EQ(processes[place].leases.load(), 0U) << "of place " << place;
      }
      ::munmap(base, size);
    }
  }

  Random random_;
  TempDir dir_;
  TempDir ring_dir_{TempDir::Memory()};
  const std::string root_ = (dir_.path() / "root").string();
  const std::string ring_ = ring_dir_.string();
  const std::string arena_path_ = (dir_.path() / "arena").string();
  ArenaFile arena_{arena_path_};
  std::array<pid_t, kWorkers> pids_{};
};

TEST_P(KillWriters, KilledInTheMiddleOfADumpNothingIsWrongOrLeft) {
  const std::uint64_t kills = KillsWanted(IsCache() ? kManyKills : 20);
  for (std::uint64_t n = 0; n < kills && !HasFailure(); ++n) {
    const std::size_t victim = AwaitVictim();
    Kill(victim);
    ExpectProgress(victim);
    Start(victim);
  }
  StopAll();
  ExpectCleanAndWhole();
}

TEST_P(KillWriters, S09_StoppedInTheMiddleOfADumpNobodyElseStandsStill) {
  const std::uint64_t stops = KillsWanted(20);
  for (std::uint64_t n = 0; n < stops && !HasFailure(); ++n) {
    const std::size_t victim = AwaitVictim();
    ASSERT_EQ(::kill(pids_[victim], SIGSTOP), 0);
    ExpectProgress(victim);
    ASSERT_EQ(::kill(pids_[victim], SIGCONT), 0);
  }
  StopAll();
  ExpectCleanAndWhole();
}

INSTANTIATE_TEST_SUITE_P(, KillWriters, testing::Values("Posix", "Cache|Posix"),
                         [](const auto& param) {
                           return std::string(param.param).starts_with("Cache") ? "Cache" : "Posix";
                         });

}  // namespace
}  // namespace ucmstore::test
