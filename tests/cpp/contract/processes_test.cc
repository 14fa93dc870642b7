// SPDX-License-Identifier: Apache-2.0
//
// The promises across processes: writers of the same ids at once, halves of a block, a reader
// beside a slow writer, and writers that are killed. For stacks whose blocks outlive the store.
// Each process opens a store of its own after the fork; only children that a test made are killed.
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <functional>
#include <iostream>

#include "contract/contract.h"
#include "support/checks.h"

#if defined(__SANITIZE_THREAD__)
// The children of a fork make threads of their own here, and are no worse off than any.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }
#endif

namespace ucmstore::test {
namespace {

// A child process that runs a function; true from it is success. Reaped, at the latest by the end.
class Child {
 public:
  explicit Child(const std::function<bool()>& run) {
    std::cout.flush();
    pid_ = ::fork();
    if (pid_ != 0) return;
    (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);  // never left behind
    bool good = false;
    try {
      good = run() && !testing::Test::HasFailure();
    } catch (const std::exception& error) {
      std::cerr << "child: " << error.what() << "\n";
    }
    std::cout.flush();
    ::_exit(good ? 0 : 1);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ > 0) Kill();
  }

  [[nodiscard]] bool Succeeded() {
    int status = 0;
    if (::waitpid(std::exchange(pid_, -1), &status, 0) < 0) return false;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  void Kill() {
    ::kill(pid_, SIGKILL);
    ::waitpid(std::exchange(pid_, -1), nullptr, 0);
  }

 private:
  pid_t pid_ = -1;
};

// A pipe between test and child: who Awaits goes on when another process Says, or fails in time.
class Signal {
 public:
  Signal() { EXPECT_EQ(::pipe(ends_.data()), 0); }
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;
  ~Signal() {
    for (const int end : ends_) ::close(end);
  }
  void Say() const { EXPECT_EQ(::write(ends_[1], "!", 1), 1); }
  void Await() const {
    pollfd readable{.fd = ends_[0], .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&readable, 1, kPatienceMs), 1) << "the other process never said so";
    char c = 0;
    EXPECT_EQ(::read(ends_[0], &c, 1), 1);
  }

 private:
  std::array<int, 2> ends_{};
};

class ProcessContract : public Contract {};

TEST_P(ProcessContract, B01_WritersOfTheSameIdsAtOnce) {
  constexpr std::size_t kWriters = 4;
  constexpr std::uint64_t kRounds = 3;
  constexpr std::uint64_t kBlocks = 10;
  std::array<Signal, kWriters> ready;
  std::array<Signal, kWriters> go;
  std::vector<std::unique_ptr<Child>> writers;
  for (std::size_t w = 0; w < kWriters; ++w) {
    writers.push_back(std::make_unique<Child>([&, w] {
      Random random(w);
      (void)store();
      ready[w].Say();
      go[w].Await();
      for (std::uint64_t n = 0; n < kRounds * kBlocks; ++n) {
        const std::uint64_t nonce = NextNonce();
        std::vector<std::uint32_t> order(shards());
        for (std::uint32_t i = 0; i < shards(); ++i) order[i] = i;
        std::ranges::shuffle(order, random.engine());
        DumpBatch dump(geometry());
        for (const std::uint32_t i : order) dump.Add(Id(n), i, nonce);
        const Status status = Finish(store(), dump);
        EXPECT_TRUE(status.ok()) << status.message;
        dump.Scramble();
        EXPECT_TRUE(IsPresent(store(), Id(n)));
        EXPECT_EQ(BlockProblem(store(), geometry(), Id(n)), "");
      }
      CloseStore();
      return true;
    }));
  }
  for (const Signal& signal : ready) signal.Await();
  for (const Signal& signal : go) signal.Say();
  for (const auto& writer : writers) EXPECT_TRUE(writer->Succeeded());
  const std::vector<BlockId> ids = Ids(kRounds * kBlocks);
  EXPECT_EQ(Presence(store(), ids), std::string(ids.size(), '1'));
  for (const BlockId& id : ids) EXPECT_EQ(BlockProblem(store(), geometry(), id), "");
}

TEST_P(ProcessContract, G01_WhatOneProcessStoredTheNextFinds) {
  Child writer([this] {
    CheckRoundTrip(store(), geometry(), Ids(20));
    CloseStore();
    return true;
  });
  EXPECT_TRUE(writer.Succeeded());
  EXPECT_EQ(Presence(store(), Ids(20)), std::string(20, '1'));
  for (const BlockId& id : Ids(20)) EXPECT_EQ(BlockProblem(store(), geometry(), id), "");
}

TEST_P(ProcessContract, G_WhatWaitConfirmedSurvivesAKill) {
  const std::uint64_t nonce = NextNonce();
  const Signal confirmed;
  Child writer([&] {
    for (const BlockId& id : Ids(10)) {
      if (!DumpBlock(store(), geometry(), id, nonce).ok()) return false;
    }
    confirmed.Say();
    ::pause();
    return true;
  });
  confirmed.Await();
  writer.Kill();
  EXPECT_EQ(Presence(store(), Ids(10)), std::string(10, '1'));
  for (const BlockId& id : Ids(10)) EXPECT_EQ(BlockProblem(store(), geometry(), id, nonce), "");
}

TEST_P(ProcessContract, ClosedAndOpenedAgainEverythingIsThere) {
  std::vector<std::uint64_t> nonces;
  for (std::uint64_t b = 0; b < 5; ++b) {
    nonces.push_back(NextNonce());
    ASSERT_TRUE(DumpBlock(store(), geometry(), Id(b), nonces.back()).ok());
    CloseStore();
  }
  for (std::uint64_t b = 0; b < 5; ++b) {
    EXPECT_EQ(BlockProblem(store(), geometry(), Id(b), nonces[b]), "");
  }
  EXPECT_EQ(AbsenceProblem(store(), geometry(), Id(5)), "");
}

INSTANTIATE_TEST_SUITE_P(, ProcessContract, testing::ValuesIn(SharedCases()), CaseName);

class TornBetweenProcesses : public ProcessContract {};

TEST_P(TornBetweenProcesses, HalvesOfABlockAreJoinedByCacheAlone) {
  const Signal first_half;
  const Signal looked;
  Child other([&] {
    DumpBatch dump(geometry());
    for (std::uint32_t i = 0; i < shards() / 2; ++i) dump.Add(Id(0), i, NextNonce());
    const bool good = Finish(store(), dump).ok();
    first_half.Say();
    looked.Await();
    CloseStore();
    return good;
  });
  first_half.Await();
  DumpBatch dump(geometry());
  for (std::uint32_t i = shards() / 2; i < shards(); ++i) dump.Add(Id(0), i, NextNonce());
  EXPECT_TRUE(Finish(store(), dump).ok());
  const bool joins = GetParam().stack.joins;
  const auto judge = [&] {
    EXPECT_EQ(IsPresent(store(), Id(0)), joins);
    EXPECT_EQ(joins ? BlockProblem(store(), geometry(), Id(0), std::nullopt)
                    : AbsenceProblem(store(), geometry(), Id(0)),
              "");
  };
  judge();
  looked.Say();
  EXPECT_TRUE(other.Succeeded());
  judge();
}

INSTANTIATE_TEST_SUITE_P(, TornBetweenProcesses,
                         testing::ValuesIn(BlocksOfManyShards(SharedCases())), CaseName);

class SlowWriter : public ProcessContract {};

TEST_P(SlowWriter, A02_AReaderBesideItSeesNothingOrAll) {
  const std::uint64_t nonce = NextNonce();
  const Signal begun;
  Child writer([&] {
    (void)fault().Arm("dump delay=30 when=moving shard=0");
    begun.Say();
    for (std::uint64_t b = 0; b < 4; ++b) {
      if (!DumpBlock(store(), geometry(), Id(b), nonce).ok()) return false;
    }
    CloseStore();
    return true;
  });
  begun.Await();
  const TimePoint until = std::chrono::steady_clock::now() + milliseconds(kPatienceMs);
  while (!IsPresent(store(), Id(3)) && std::chrono::steady_clock::now() < until) {
    for (std::uint64_t b = 0; b < 4; ++b) {
      LoadBatch load(geometry());
      load.AddBlock(Id(b));
      const Status status = Finish(store(), load);
      EXPECT_TRUE(status.ok() || status.code == Code::kNotFound) << status.message;
      for (std::size_t i = 0; status.ok() && i < load.size(); ++i) {
        EXPECT_EQ(load.Problem(i, nonce), "");
      }
    }
  }
  EXPECT_TRUE(writer.Succeeded());
  EXPECT_EQ(Presence(store(), Ids(4)), "1111");
}

TEST_P(SlowWriter, KilledInTheMiddleOfADumpLeavesNothingVisible) {
  const Signal in_the_middle;
  Child writer([&] {
    const std::uint64_t hold = fault().Arm("dump hold shard=0");
    DumpBatch dump(geometry());
    dump.AddBlock(Id(0), NextNonce());
    (void)Submit(store(), dump);
    fault().AwaitHeld(hold, 1);
    in_the_middle.Say();
    ::pause();
    return true;
  });
  in_the_middle.Await();
  writer.Kill();
  EXPECT_FALSE(IsPresent(store(), Id(0)));
  EXPECT_EQ(AbsenceProblem(store(), geometry(), Id(0)), "");
  const std::uint64_t nonce = NextNonce();
  ASSERT_TRUE(DumpBlock(store(), geometry(), Id(0), nonce).ok());
  EXPECT_EQ(BlockProblem(store(), geometry(), Id(0), nonce), "");
}

INSTANTIATE_TEST_SUITE_P(, SlowWriter, testing::ValuesIn(SharedFaultCases()), CaseName);

}  // namespace
}  // namespace ucmstore::test
