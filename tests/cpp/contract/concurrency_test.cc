// SPDX-License-Identifier: Apache-2.0
//
// Promises 2 and 3 under load: many blocks of many shards on many workers, writers of the same ids
// at once, readers meanwhile. Every byte that any load delivers is checked.
#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

#include "base/mutex.h"
#include "contract/contract.h"
#include "support/checks.h"

namespace ucmstore::test {
namespace {

// 64 shards a block, whatever the geometry of the case: it is the worst that the field has seen.
class CrowdContract : public Contract {
 protected:
  CrowdContract() {
    config().geometry = {520, 64};
    config().workers = 16;
  }
  static constexpr std::uint64_t kBlocks = 200;

  void ExpectAllWhole(const std::vector<std::uint64_t>& nonces) {
    const std::vector<BlockId> ids = Ids(nonces.size());
    EXPECT_EQ(Presence(store(), ids), std::string(ids.size(), '1'));
    for (std::size_t b = 0; b < ids.size(); ++b) {
      ASSERT_EQ(BlockProblem(store(), geometry(), ids[b], nonces[b]), "") << "block " << b;
    }
  }
};

TEST_P(CrowdContract, OneTaskABlock) {
  std::vector<std::uint64_t> nonces;
  std::vector<DumpBatch> dumps(kBlocks, DumpBatch(geometry()));
  std::vector<TaskId> tasks;
  for (std::uint64_t b = 0; b < kBlocks; ++b) {
    nonces.push_back(NextNonce());
    dumps[b].AddBlock(Id(b), nonces[b]);
    tasks.push_back(Submit(store(), dumps[b]));
  }
  for (std::uint64_t b = 0; b < kBlocks; ++b) {
    EXPECT_TRUE(store().Wait(tasks[b], kPatienceMs).ok());
    dumps[b].Scramble();
  }
  ExpectAllWhole(nonces);
}

TEST_P(CrowdContract, OneTaskAShardInRandomOrder) {
  struct Piece {
    std::uint64_t block;
    std::uint32_t shard;
  };
  std::vector<Piece> pieces;
  std::vector<std::uint64_t> nonces;
  for (std::uint64_t b = 0; b < kBlocks; ++b) {
    nonces.push_back(NextNonce());
    for (std::uint32_t i = 0; i < shards(); ++i) pieces.push_back({b, i});
  }
  Random random;
  std::ranges::shuffle(pieces, random.engine());
  std::atomic<std::size_t> next{0};
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (;;) {
        const std::size_t first = next.fetch_add(50);
        if (first >= pieces.size()) return;
        const std::size_t last = std::min(first + 50, pieces.size());
        std::vector<DumpBatch> dumps(last - first, DumpBatch(geometry()));
        std::vector<TaskId> tasks;
        for (std::size_t n = first; n < last; ++n) {
          const auto [block, shard] = pieces[n];
          dumps[n - first].Add(Id(block), shard, nonces[block]);
          tasks.push_back(Submit(store(), dumps[n - first]));
        }
        for (std::size_t n = 0; n < tasks.size(); ++n) {
          EXPECT_TRUE(store().Wait(tasks[n], kPatienceMs).ok());
          dumps[n].Scramble();
        }
      }
    });
  }
  threads.clear();
  ExpectAllWhole(nonces);
}

// Several engines of one process compute the same prefix and dump it at once, with bytes of their
// own.
TEST_P(CrowdContract, WritersOfTheSameIdsWhileOthersRead) {
  constexpr std::uint64_t kSame = 12;
  Mutex mutex;
  std::set<std::uint64_t> nonces;
  std::atomic<bool> stop{false};
  const auto check = [&](LoadBatch& load) {
    for (std::size_t i = 0; i < load.size(); ++i) {
      if (load.result(i).code == Code::kNotFound) continue;
      EXPECT_EQ(load.Problem(i), "");
      const MutexLock lock(mutex);
      EXPECT_TRUE(nonces.contains(load.NonceOf(i))) << "bytes of no dump at all";
    }
  };
  std::vector<std::jthread> readers;
  for (int t = 0; t < 2; ++t) {
    readers.emplace_back([&, t] {
      for (std::uint64_t n = 0; !stop || n < kSame; ++n) {
        LoadBatch load(geometry());
        load.AddBlock(Id((n + static_cast<std::uint64_t>(t)) % kSame));
        (void)Finish(store(), load);
        check(load);
      }
    });
  }
  std::vector<std::jthread> writers;
  for (std::uint64_t t = 0; t < 4; ++t) {
    writers.emplace_back([&, t] {
      for (std::uint64_t b = 0; b < kSame; ++b) {
        const std::uint64_t nonce = NextNonce();
        {
          const MutexLock lock(mutex);
          nonces.insert(nonce);
        }
        DumpBatch whole(geometry());
        DumpBatch halves[2] = {DumpBatch(geometry()), DumpBatch(geometry())};
        for (std::uint32_t i = 0; i < shards(); ++i) {
          whole.Add(Id(b), i, nonce);
          halves[i % 2].Add(Id(b), i, nonce);
        }
        if (t % 2 == 0) {
          const Status status = Finish(store(), whole);
          EXPECT_TRUE(status.ok()) << status.message;
        } else {
          const TaskId odd = Submit(store(), halves[1]);
          const TaskId even = Submit(store(), halves[0]);
          EXPECT_TRUE(store().Wait(odd, kPatienceMs).ok());
          EXPECT_TRUE(store().Wait(even, kPatienceMs).ok());
        }
        for (DumpBatch* dump : {&whole, &halves[0], &halves[1]}) dump->Scramble();
        // Ok for all its shards: whoever wrote them, the block is there.
        EXPECT_TRUE(IsPresent(store(), Id(b)));
      }
    });
  }
  writers.clear();
  stop = true;
  readers.clear();
  for (std::uint64_t b = 0; b < kSame; ++b) {
    LoadBatch load(geometry());
    load.AddBlock(Id(b));
    EXPECT_TRUE(Finish(store(), load).ok());
    check(load);
  }
}

TEST_P(CrowdContract, ManyWaitersAndCheckersOfManyTasks) {
  ASSERT_TRUE(DumpBlock(store(), geometry(), Id(0), NextNonce()).ok());
  for (int round = 0; round < 10; ++round) {
    std::vector<LoadBatch> loads(16, LoadBatch(geometry()));
    std::vector<TaskId> tasks;
    std::vector<std::atomic<int>> retired(loads.size());
    for (LoadBatch& load : loads) tasks.push_back(Submit(store(), load.AddBlock(Id(0))));
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (std::size_t n = 0; n < tasks.size(); ++n) {
          const std::size_t at = (n + t * 5) % tasks.size();
          bool done = false;
          (void)store().Check(tasks[at], &done);
          if (store().Wait(tasks[at], kPatienceMs).ok()) ++retired[at];
        }
      });
    }
    threads.clear();
    for (const auto& count : retired) EXPECT_EQ(count, 1);
    for (const LoadBatch& load : loads) EXPECT_EQ(load.Problem(0), "");
  }
}

INSTANTIATE_TEST_SUITE_P(, CrowdContract, testing::ValuesIn(RawCases()), CaseName);

class SlowShardContract : public Contract {};

TEST_P(SlowShardContract, BlocksWithOneSlowShardAreWholeOrInvisible) {
  (void)fault().Arm("dump delay=15 when=moving shard=" + std::to_string(shards() / 2));
  constexpr std::uint64_t kBlocks = 10;
  std::vector<DumpBatch> dumps(kBlocks, DumpBatch(geometry()));
  std::vector<std::uint64_t> nonces;
  std::vector<TaskId> tasks;
  for (std::uint64_t b = 0; b < kBlocks; ++b) {
    nonces.push_back(NextNonce());
    tasks.push_back(Submit(store(), dumps[b].AddBlock(Id(b), nonces[b])));
  }
  for (bool all = false; !all;) {
    all = true;
    for (const TaskId task : tasks) all = all && IsDone(store(), task);
    const std::string present = Presence(store(), Ids(kBlocks));
    for (std::uint64_t b = 0; b < kBlocks; ++b) {
      if (present[b] == '0') continue;
      ASSERT_EQ(BlockProblem(store(), geometry(), Id(b), nonces[b]), "");
    }
  }
  for (const TaskId task : tasks) EXPECT_TRUE(store().Wait(task, kPatienceMs).ok());
  EXPECT_EQ(Presence(store(), Ids(kBlocks)), std::string(kBlocks, '1'));
}

INSTANTIATE_TEST_SUITE_P(, SlowShardContract, testing::ValuesIn(FaultCases()), CaseName);

}  // namespace
}  // namespace ucmstore::test
