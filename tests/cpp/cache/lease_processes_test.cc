// SPDX-License-Identifier: Apache-2.0
//
// Leases of several processes and threads at once: who fills what, and what is left of the dead.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "cache/leases_fixture.h"
#include "posix/children.h"

namespace ucmstore::test {
namespace {

// ---- several processes ----

TEST_F(CacheLeases, TwoProcessesFillOneBlock) {
  const std::uint64_t nonce = NextNonce();
  Children children;
  children.Start([&]() -> std::string {
    const auto client = Client();
    const auto got = client->Reserve({Id(0)}, 0, 2);
    if (got.leases[0].code != Code::kOk) return got.status.message;
    FillShard(*client, got.leases[0], 0, 0, nonce);
    FillShard(*client, got.leases[0], 0, 1, nonce);
    ::kill(::getpid(), SIGKILL);
    return "";
  });
  EXPECT_EQ(children.Finish(), std::vector<int>{128 + SIGKILL});
  const auto client = Client();
  const auto got = client->Reserve({Id(0)}, 2, 2);
  ASSERT_EQ(got.leases[0].code, Code::kOk);
  FillShard(*client, got.leases[0], 0, 2, nonce);
  FillShard(*client, got.leases[0], 0, 3, nonce);
  EXPECT_EQ(Problem(0, nonce), "");
}

TEST_F(CacheLeases, E01_LeasesDieWithTheirProcess) {
  config_.options["cache.capacity"] = CapacityOf(16);
  config_.options["cache.max_leases"] = "8";
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  Children children;
  const pid_t pid = children.Start([&]() -> std::string {
    for (std::uint64_t i = 0; i < 4; ++i) {
      if (!Dump(i, NextNonce()).ok()) return "no dump";
    }
    const auto client = Client();
    const auto read = client->Acquire({Id(0), Id(1), Id(2), Id(3)});
    const auto room = client->Reserve({Id(4), Id(5), Id(6), Id(7)});
    if (!read.status.ok() || !room.status.ok()) return "no leases";
    FillShard(*client, room.leases[0], 4, 0, NextNonce());
    (void)!::write(ready[1], "x", 1);
    for (;;) ::pause();
  });
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const auto client = Client();
  EXPECT_EQ(client->Reserve({Id(4)}).leases[0].code, Code::kBusy) << "its are all there may be";
  // Others neither wait for it for long nor see what it has not committed.
  EXPECT_EQ(Dump(5, NextNonce()).code, Code::kBusy);
  EXPECT_EQ(AbsenceProblem(store(), kGeometry, Id(5)), "");
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  EXPECT_EQ(children.Finish(), std::vector<int>{128 + SIGKILL});
  // At once, though it has shards of it: who gives up waiting looks whether the other one is dead.
  EXPECT_TRUE(Dump(4, NextNonce()).ok());
  const auto got = client->Reserve({Id(5), Id(6), Id(7), Id(8), Id(9), Id(10), Id(11), Id(12)});
  EXPECT_TRUE(got.status.ok()) << got.status.message;
  const std::uint64_t nonce = NextNonce();
  for (std::size_t i = 0; i < 8; ++i) {
    ASSERT_EQ(got.leases[i].code, Code::kOk);
    FillBlock(*client, got.leases[i], 5 + i, nonce);
    EXPECT_EQ(Problem(5 + i, nonce), "");
  }
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(CacheLeases, P01_AForkedChildCannotHarmItsParentsLeases) {
  config_.options["cache.capacity"] = CapacityOf(8);
  const std::uint64_t nonce = NextNonce();
  ASSERT_TRUE(Dump(0, nonce).ok());
  const auto client = Client();
  const auto got = client->Acquire({Id(0)});
  Children children;
  children.Start([&]() -> std::string {
    if (client->Acquire({Id(0)}).status.code != Code::kClosed) return "acquired";
    if (client->Release(got.leases[0]).code != Code::kClosed) return "released";
    client->table().close(client->book());
    return InPlace(*client, got.leases[0], 0, nonce);
  });
  EXPECT_EQ(children.Finish(), std::vector<int>{0});
  Press(store(), 100, 64);
  EXPECT_EQ(InPlace(*client, got.leases[0], 0, nonce), "");
}

// ---- many threads ----

TEST_F(CacheLeases, F08_AfterAnyMixOfUsesNoneIsOut) {
  config_.options["cache.capacity"] = CapacityOf(12);
  config_.options["cache.max_leases"] = "6";
  const auto client = Client();
  constexpr std::uint64_t kBlocks = 20;
  constexpr int kRounds = 300;
  Random seed;
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, random = seed.Fork()]() mutable {
      for (int round = 0; round < kRounds; ++round) {
        const std::uint64_t i = random.Between(0, kBlocks - 1);
        const std::uint64_t what = random.Between(0, 3);
        if (what == 0) {
          (void)Dump(i, NextNonce());
        } else if (what == 1) {
          const auto got = client->Acquire({Id(i)});
          if (got.leases[0].lease == 0) continue;
          for (std::uint32_t shard = 0; shard < 4; ++shard) {
            const auto memory = client->Memory(got.leases[0], shard).first(got.lengths[shard]);
            EXPECT_EQ(Inspect(memory, Id(i), shard).why, "");
          }
          EXPECT_TRUE(client->Release(got.leases[0]).ok());
        } else {
          const auto got = client->Reserve({Id(i)});
          if (got.leases[0].lease == 0) continue;
          const std::uint64_t nonce = NextNonce();
          const std::uint64_t shards = random.Between(0, 4);
          for (std::uint32_t shard = 0; shard < shards; ++shard) {
            FillShard(*client, got.leases[0], i, shard, nonce);
          }
          EXPECT_TRUE(client->Release(got.leases[0]).ok());
        }
      }
    });
  }
  threads.clear();
  EXPECT_EQ(Figure("cache.ring_leases"), 0);
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    if (Where(i) == kAbsent) continue;
    EXPECT_EQ(Problem(i), "");
  }
}

}  // namespace
}  // namespace ucmstore::test
