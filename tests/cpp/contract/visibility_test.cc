// SPDX-License-Identifier: Apache-2.0
//
// Promise 2: a block becomes visible only after all its shards have landed, and then at once; in
// whatever order, tasks and numbers they come. Halves of two stores are never joined. A visible
// block that is dumped again stays whole. An incomplete block that was given up says so, and begins
// anew.
#include <algorithm>
#include <numeric>
#include <set>

#include "contract/contract.h"
#include "support/eventually.h"

namespace ucmstore::test {
namespace {

class VisibilityContract : public Contract {
 protected:
  void ExpectInvisible(const BlockId& id) {
    EXPECT_FALSE(IsPresent(store(), id)) << "an incomplete block is visible";
    EXPECT_EQ(AbsenceProblem(store(), geometry(), id), "");
  }
  void ExpectWhole(const BlockId& id, std::optional<std::uint64_t> nonce = std::nullopt) {
    EXPECT_TRUE(IsPresent(store(), id));
    EXPECT_EQ(BlockProblem(store(), geometry(), id, nonce), "");
  }
  // Dumps the shards one task each, in the given order, and looks before each.
  void DumpInOrder(const BlockId& id, const std::vector<std::uint32_t>& order) {
    const std::uint64_t nonce = NextNonce();
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (i == 0 || i + 1 == order.size() || i % 13 == 0) ExpectInvisible(id);
      ASSERT_TRUE(DumpShard(store(), geometry(), id, order[i], nonce).ok()) << "shard " << order[i];
    }
    ExpectWhole(id, nonce);
  }
  [[nodiscard]] std::vector<std::uint32_t> Ascending() const {
    std::vector<std::uint32_t> order(shards());
    std::iota(order.begin(), order.end(), 0U);
    return order;
  }
};

TEST_P(VisibilityContract, OneTaskOneBlock) {
  const std::uint64_t nonce = NextNonce();
  ExpectInvisible(Id(0));
  ASSERT_TRUE(DumpBlock(store(), geometry(), Id(0), nonce).ok());
  ExpectWhole(Id(0), nonce);
}

TEST_P(VisibilityContract, ShardsInAnyOrder) {
  std::vector<std::uint32_t> order = Ascending();
  DumpInOrder(Id(0), order);
  std::ranges::reverse(order);  // the last index first
  DumpInOrder(Id(1), order);
  Random random;
  std::ranges::shuffle(order, random.engine());
  DumpInOrder(Id(2), order);
}

TEST_P(VisibilityContract, EvenThenOddShards) {
  const std::uint64_t nonce = NextNonce();
  for (const std::uint32_t parity : {1U, 0U}) {
    DumpBatch dump(geometry());
    for (std::uint32_t i = parity; i < shards(); i += 2) dump.Add(Id(0), i, nonce);
    if (dump.size() == 0) continue;
    ASSERT_TRUE(Finish(store(), dump).ok());
    if (parity == 1) ExpectInvisible(Id(0));
  }
  ExpectWhole(Id(0), nonce);
}

TEST_P(VisibilityContract, ManyBlocksInterleavedInOneTask) {
  const std::vector<BlockId> ids = Ids(7);
  DumpBatch dump(geometry());
  std::vector<std::uint64_t> nonces;
  for (std::size_t b = 0; b < ids.size(); ++b) nonces.push_back(NextNonce());
  for (std::uint32_t i = shards(); i-- > 0;) {
    for (std::size_t b = 0; b < ids.size(); ++b) dump.Add(ids[b], i, nonces[b]);
  }
  ASSERT_TRUE(Finish(store(), dump).ok());
  for (std::size_t b = 0; b < ids.size(); ++b) ExpectWhole(ids[b], nonces[b]);
}

TEST_P(VisibilityContract, AllShardsInFlightAtOnce) {
  const std::uint64_t nonce = NextNonce();
  std::vector<DumpBatch> dumps(shards(), DumpBatch(geometry()));
  std::vector<TaskId> tasks;
  for (std::uint32_t i = shards(); i-- > 0;) {
    dumps[i].Add(Id(0), i, nonce);
    tasks.push_back(Submit(store(), dumps[i]));
  }
  for (const TaskId task : tasks) EXPECT_TRUE(store().Wait(task, kPatienceMs).ok());
  ExpectWhole(Id(0), nonce);
}

TEST_P(VisibilityContract, AVisibleBlockDumpedAgainIsACheapSuccess) {
  const std::uint64_t first = NextNonce();
  ASSERT_TRUE(DumpBlock(store(), geometry(), Id(0), first).ok());
  for (int round = 0; round < 3; ++round) {
    DumpBatch again(geometry());
    again.AddBlock(Id(0), NextNonce());
    EXPECT_TRUE(Finish(store(), again).ok());
    for (std::size_t i = 0; i < again.size(); ++i) EXPECT_EQ(again.result(i).code, Code::kOk);
    ExpectWhole(Id(0));
  }
  // One shard of it alone, and then nothing may be missing.
  ASSERT_TRUE(DumpShard(store(), geometry(), Id(0), shards() - 1, NextNonce()).ok());
  ExpectWhole(Id(0));
}

TEST_P(VisibilityContract, TheSameShardTwiceInOneTask) {
  const std::uint64_t one = NextNonce();
  const std::uint64_t two = NextNonce();
  DumpBatch dump(geometry());
  dump.AddBlock(Id(0), one);
  dump.AddBlock(Id(0), two);
  const Status status = Finish(store(), dump);
  EXPECT_TRUE(status.ok()) << status.message;
  LoadBatch load(geometry());
  load.AddBlock(Id(0));
  ASSERT_TRUE(Finish(store(), load).ok());
  for (std::size_t i = 0; i < load.size(); ++i) {
    EXPECT_EQ(load.Problem(i), "");
    EXPECT_TRUE(load.NonceOf(i) == one || load.NonceOf(i) == two);
  }
}

// Until the block is complete the store may keep either dump of a shard, but never a mixture.
TEST_P(VisibilityContract, AShardDumpedAgainWhileIncomplete) {
  std::set<std::uint64_t> nonces;
  for (int round = 0; round < 3; ++round) {
    nonces.insert(NextNonce());
    DumpBatch dump(geometry());
    for (std::uint32_t i = 1; i < shards(); ++i) dump.Add(Id(0), i, *nonces.rbegin());
    if (dump.size() > 0) {
      ASSERT_TRUE(Finish(store(), dump).ok());
    }
    ExpectInvisible(Id(0));
  }
  nonces.insert(NextNonce());
  ASSERT_TRUE(DumpShard(store(), geometry(), Id(0), 0, *nonces.rbegin()).ok());
  LoadBatch load(geometry());
  load.AddBlock(Id(0));
  ASSERT_TRUE(Finish(store(), load).ok());
  for (std::size_t i = 0; i < load.size(); ++i) {
    EXPECT_EQ(load.Problem(i), "");
    EXPECT_TRUE(nonces.contains(load.NonceOf(i))) << "bytes of no dump at all";
  }
}

TEST_P(VisibilityContract, PresenceAndLoadAgreeWhileBlocksComplete) {
  const std::vector<BlockId> ids = Ids(5);
  for (std::size_t done = 0; done < ids.size(); ++done) {
    DumpBatch dump(geometry());
    for (std::size_t b = done; b < ids.size(); ++b) {
      if (shards() > 1) dump.Add(ids[b], static_cast<std::uint32_t>(done % (shards() - 1)), 1);
    }
    if (dump.size() > 0) {
      ASSERT_TRUE(Finish(store(), dump).ok());
    }
    ASSERT_TRUE(DumpBlock(store(), geometry(), ids[done], NextNonce()).ok());
    EXPECT_EQ(Presence(store(), ids),
              std::string(done + 1, '1') + std::string(ids.size() - done - 1, '0'));
  }
}

INSTANTIATE_TEST_SUITE_P(, VisibilityContract, testing::ValuesIn(AllCases()), CaseName);

class HalvesContract : public VisibilityContract {};

// Promise 2: a terminal stage assembles within one open store; Cache in front of it, across them.
TEST_P(HalvesContract, OfTwoStoresAreJoinedByCacheAlone) {
  const std::unique_ptr<TestStore> other = OpenAnother();
  const std::uint64_t mine = NextNonce();
  const std::uint64_t theirs = NextNonce();
  DumpBatch first(geometry());
  DumpBatch second(geometry());
  for (std::uint32_t i = 0; i < shards(); ++i) {
    if (i < shards() / 2) {
      first.Add(Id(0), i, mine);
    } else {
      second.Add(Id(0), i, theirs);
    }
  }
  ASSERT_TRUE(Finish(store(), first).ok());
  ASSERT_TRUE(Finish(*other, second).ok());
  if (GetParam().stack.joins) {
    ExpectWhole(Id(0));
    EXPECT_EQ(BlockProblem(*other, geometry(), Id(0), std::nullopt), "");
    return;
  }
  ExpectInvisible(Id(0));
  EXPECT_FALSE(IsPresent(*other, Id(0)));
  EXPECT_EQ(AbsenceProblem(*other, geometry(), Id(0)), "");
  DumpBatch rest(geometry());
  for (std::uint32_t i = shards() / 2; i < shards(); ++i) rest.Add(Id(0), i, mine);
  ASSERT_TRUE(Finish(store(), rest).ok());
  ExpectWhole(Id(0), mine);
}

TEST_P(HalvesContract, OfTheStoreBeforeAreNeverJoined) {
  DumpBatch first(geometry());
  for (std::uint32_t i = 1; i < shards(); ++i) first.Add(Id(0), i, NextNonce());
  ASSERT_TRUE(Finish(store(), first).ok());
  CloseStore();
  ExpectInvisible(Id(0));  // in a store opened anew
  ASSERT_TRUE(DumpShard(store(), geometry(), Id(0), 0, NextNonce()).ok());
  ExpectInvisible(Id(0));
  const std::uint64_t nonce = NextNonce();
  DumpBatch rest(geometry());
  for (std::uint32_t i = 1; i < shards(); ++i) rest.Add(Id(0), i, nonce);
  ASSERT_TRUE(Finish(store(), rest).ok());
  ExpectWhole(Id(0));
}

INSTANTIATE_TEST_SUITE_P(, HalvesContract, testing::ValuesIn(BlocksOfManyShards(AllCases())),
                         CaseName);

// Incomplete blocks are bounded in number and age (S10).
class IncompleteContract : public VisibilityContract {
 protected:
  IncompleteContract() {
    config().max_incomplete_blocks = kLimit;
    config().workers = 2;  // a block that a worker is at is not given up
  }
  static constexpr std::uint32_t kLimit = 4;

  Status DumpFirstOf(std::uint64_t block) {
    return DumpShard(store(), geometry(), Id(block), 0, NextNonce());
  }
};

TEST_P(IncompleteContract, S10_LateShardsOfAnAbortedBlockSaySoAndTheNextBeginAnew) {
  for (std::uint64_t b = 0; b < kLimit + 1; ++b) ASSERT_TRUE(DumpFirstOf(b).ok()) << b;
  // The oldest was given up. Its other shards are late.
  const Status late = DumpShard(store(), geometry(), Id(0), 1, NextNonce());
  EXPECT_EQ(late.code, Code::kAborted) << late.message;
  ExpectInvisible(Id(0));
  // Whoever dumps a shard again begins anew: all of it must be dumped.
  const std::uint64_t nonce = NextNonce();
  for (std::uint32_t i = 0; i < shards(); ++i) {
    ExpectInvisible(Id(0));
    const Status status = DumpShard(store(), geometry(), Id(0), i, nonce);
    ASSERT_TRUE(status.ok()) << "shard " << i << ": " << status.message;
  }
  ExpectWhole(Id(0), nonce);
}

TEST_P(IncompleteContract, S10_AWholeDumpOfAnAbortedBlockSimplyWorks) {
  for (std::uint64_t b = 0; b < kLimit + 3; ++b) ASSERT_TRUE(DumpFirstOf(b).ok()) << b;
  const std::uint64_t nonce = NextNonce();
  const Status status = DumpBlock(store(), geometry(), Id(0), nonce);
  ASSERT_TRUE(status.ok()) << status.message;
  ExpectWhole(Id(0), nonce);
}

INSTANTIATE_TEST_SUITE_P(, IncompleteContract, testing::ValuesIn(BlocksOfManyShards(AllCases())),
                         CaseName);

class AbandonedContract : public IncompleteContract {};

TEST_P(AbandonedContract, S10_ThousandsOfAbandonedBlocksHarmNobody) {
  const std::uint64_t nonce = NextNonce();
  ASSERT_TRUE(DumpBlock(store(), geometry(), Id(9999), nonce).ok());
  for (std::uint64_t b = 0; b < 2000; ++b) ASSERT_TRUE(DumpFirstOf(b).ok()) << b;
  for (const auto& [name, value] : store().Stats()) {
    if (name.ends_with(".incomplete_blocks")) {
      EXPECT_LE(value, kLimit) << name;
    }
  }
  ExpectWhole(Id(9999), nonce);
  EXPECT_EQ(Presence(store(), Ids(2000)), std::string(2000, '0'));
  // A block that is worked on is the last to be given up.
  std::vector<std::uint32_t> order = Ascending();
  std::ranges::reverse(order);
  DumpInOrder(Id(5000), order);
}

INSTANTIATE_TEST_SUITE_P(, AbandonedContract, testing::ValuesIn(RawCases()), CaseName);

class AgeContract : public VisibilityContract {
 protected:
  AgeContract() { config().incomplete_age = milliseconds(30); }
};

TEST_P(AgeContract, S10_AnIncompleteBlockIsGivenUpInTime) {
  ASSERT_TRUE(DumpShard(store(), geometry(), Id(0), 0, NextNonce()).ok());
  EXPECT_TRUE(Eventually([this] {
    double incomplete = 0;
    for (const auto& [name, value] : store().Stats()) {
      if (name.ends_with(".incomplete_blocks")) incomplete += value;
    }
    return incomplete == 0;
  })) << "it is never given up";
  EXPECT_EQ(DumpShard(store(), geometry(), Id(0), 1, NextNonce()).code, Code::kAborted);
  ExpectInvisible(Id(0));
  const std::uint64_t nonce = NextNonce();
  ASSERT_TRUE(DumpBlock(store(), geometry(), Id(0), nonce).ok());
  ExpectWhole(Id(0), nonce);
}

INSTANTIATE_TEST_SUITE_P(, AgeContract, testing::ValuesIn(RawCases()), CaseName);

}  // namespace
}  // namespace ucmstore::test
