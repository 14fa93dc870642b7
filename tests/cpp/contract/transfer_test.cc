// SPDX-License-Identifier: Apache-2.0
//
// Promises 3 and 7: a load gives exactly what was dumped, into exactly the memory that was named,
// whatever the lists of segments look like; short shards keep their length; what breaks the rules
// is refused whole.
#include <algorithm>

#include "contract/contract.h"
#include "support/checks.h"

namespace ucmstore::test {
namespace {

class TransferContract : public Contract {};

TEST_P(TransferContract, A11_TheDestinationIsOverwrittenWithWhatWasDumped) {
  CheckRoundTrip(store(), geometry(), Ids(3));
}

TEST_P(TransferContract, SourceMemoryIsFreeRightAfterWait) {
  std::vector<std::uint64_t> nonces;
  for (std::uint64_t b = 0; b < 20; ++b) {
    nonces.push_back(NextNonce());
    DumpBatch dump(geometry());
    dump.AddBlock(Id(b), nonces.back());
    const TaskId task = Submit(store(), dump);
    ASSERT_TRUE(store().Wait(task, kPatienceMs).ok());
    dump.Scramble();
  }
  for (std::uint64_t b = 0; b < 20; ++b) {
    EXPECT_EQ(BlockProblem(store(), geometry(), Id(b), nonces[b]), "");
  }
}

TEST_P(TransferContract, ArraysAreCopied) {
  const std::uint64_t nonce = NextNonce();
  DumpBatch dump(geometry());
  dump.AddBlock(Id(0), nonce);
  const TaskId dumping = Submit(store(), dump);
  dump.ScrambleArrays();
  ASSERT_TRUE(store().Wait(dumping, kPatienceMs).ok());
  LoadBatch load(geometry());
  load.AddBlock(Id(0));
  const TaskId loading = Submit(store(), load);
  load.ScrambleArrays();
  ASSERT_TRUE(store().Wait(loading, kPatienceMs).ok());
  for (std::size_t i = 0; i < load.size(); ++i) EXPECT_EQ(load.Problem(i, nonce), "");
}

TEST_P(TransferContract, AnyCutOfSegments) {
  Random random;
  const std::uint64_t size = geometry().shard_size;
  std::vector<std::uint64_t> nonces;
  for (std::uint64_t b = 0; b < 6; ++b) {
    nonces.push_back(NextNonce());
    DumpBatch dump(geometry());
    for (std::uint32_t i = 0; i < shards(); ++i) {
      dump.Add(Id(b), i, nonces.back(), size, CutAtRandom(size, 9, random));
    }
    ASSERT_TRUE(Finish(store(), dump).ok());
    dump.Scramble();
  }
  for (std::uint64_t b = 0; b < 6; ++b) {
    LoadBatch load(geometry());
    for (std::uint32_t i = 0; i < shards(); ++i) {
      load.Add(Id(b), i, CutAtRandom(size, 9, random));
    }
    ASSERT_TRUE(Finish(store(), load).ok());
    for (std::size_t i = 0; i < load.size(); ++i) EXPECT_EQ(load.Problem(i, nonces[b]), "");
  }
}

TEST_P(TransferContract, OneByteSegments) {
  const std::uint64_t nonce = NextNonce();
  const std::uint64_t size = geometry().shard_size;
  std::vector<Piece> bytes(500, Piece{1});
  bytes.push_back({size - 500});
  DumpBatch dump(geometry());
  dump.Add(Id(0), 0, nonce, size, bytes);
  for (std::uint32_t i = 1; i < shards(); ++i) dump.Add(Id(0), i, nonce);
  ASSERT_TRUE(Finish(store(), dump).ok());
  LoadBatch load(geometry());
  load.Add(Id(0), 0, bytes);
  ASSERT_TRUE(Finish(store(), load).ok());
  EXPECT_EQ(load.Problem(0, nonce), "");
}

TEST_P(TransferContract, SkippedBytesAreSkipped) {
  const std::uint64_t nonce = NextNonce();
  const std::uint64_t size = geometry().shard_size;
  ASSERT_TRUE(DumpBlock(store(), geometry(), Id(0), nonce).ok());
  const std::vector<std::vector<Piece>> lists = {
      {{10, true}, {size - 10}},
      {{size - 10}, {10, true}},
      {{1}, {size - 2, true}, {1}},
      {{100}, {1, true}, {0}, {0, true}, {200}, {size - 301, true}},
      {{size, true}},
  };
  LoadBatch load(geometry());
  for (const auto& pieces : lists) load.Add(Id(0), shards() - 1, pieces);
  ASSERT_TRUE(Finish(store(), load).ok());
  for (std::size_t i = 0; i < lists.size(); ++i) EXPECT_EQ(load.Problem(i, nonce), "") << i;
}

TEST_P(TransferContract, RandomSkipsAndCuts) {
  Random random;
  const std::uint64_t nonce = NextNonce();
  const std::uint64_t size = geometry().shard_size;
  ASSERT_TRUE(DumpBlock(store(), geometry(), Id(0), nonce).ok());
  LoadBatch load(geometry());
  for (std::size_t n = 0; n < 40; ++n) {
    std::vector<Piece> pieces = CutAtRandom(size, 12, random);
    for (Piece& piece : pieces) piece.skip = random.OneIn(3);
    load.Add(Id(0), static_cast<std::uint32_t>(n % shards()), pieces);
  }
  ASSERT_TRUE(Finish(store(), load).ok());
  for (std::size_t i = 0; i < load.size(); ++i) EXPECT_EQ(load.Problem(i, nonce), "") << i;
}

TEST_P(TransferContract, OneShardIntoManyPlacesAtOnce) {
  const std::uint64_t nonce = NextNonce();
  ASSERT_TRUE(DumpBlock(store(), geometry(), Id(0), nonce).ok());
  LoadBatch load(geometry());
  for (int n = 0; n < 32; ++n) load.Add(Id(0), shards() - 1);
  ASSERT_TRUE(Finish(store(), load).ok());
  for (std::size_t i = 0; i < load.size(); ++i) EXPECT_EQ(load.Problem(i, nonce), "");
}

// Promise 7: each shard keeps its own length.
TEST_P(TransferContract, ShortShardsKeepTheirLength) {
  CheckShortShards(store(), geometry(), Id(0));
}

TEST_P(TransferContract, AnyLengthOfAnyShard) {
  Random random;
  const std::uint64_t size = geometry().shard_size;
  std::vector<std::uint64_t> lengths = {1, 7, 63, 64, 65, 511, size - 1, size};
  if (size > 4097) lengths.insert(lengths.end(), {4095, 4096, 4097});
  while (lengths.size() < 16) lengths.push_back(random.Between(1, size));
  for (std::size_t n = 0; n < lengths.size(); ++n) {
    const std::uint64_t nonce = NextNonce();
    const std::uint32_t short_one = static_cast<std::uint32_t>(random.Between(0, shards() - 1));
    DumpBatch dump(geometry());
    LoadBatch load(geometry());
    for (std::uint32_t i = 0; i < shards(); ++i) {
      dump.Add(Id(n), i, nonce, i == short_one ? lengths[n] : size);
      load.Add(Id(n), i);
    }
    ASSERT_TRUE(Finish(store(), dump).ok());
    EXPECT_EQ(dump.result(short_one).bytes, lengths[n]);
    ASSERT_TRUE(Finish(store(), load).ok());
    for (std::uint32_t i = 0; i < shards(); ++i) {
      EXPECT_EQ(load.Problem(i, nonce, i == short_one ? lengths[n] : size), "") << lengths[n];
    }
  }
}

TEST_P(TransferContract, TooSmallADestinationIsToldTheLength) {
  const std::uint64_t nonce = NextNonce();
  const std::uint64_t size = geometry().shard_size;
  DumpBatch dump(geometry());
  for (std::uint32_t i = 0; i < shards(); ++i) dump.Add(Id(0), i, nonce, i == 0 ? 100 : size);
  ASSERT_TRUE(Finish(store(), dump).ok());
  LoadBatch load(geometry());
  load.Add(Id(0), 0, {{99}});
  load.Add(Id(0), 0, {{100}});
  load.Add(Id(0), 0, {{40}, {60}});
  load.Add(Id(0), 0, {{60, true}, {39}});
  const Status status = Finish(store(), load);
  EXPECT_EQ(status.code, Code::kInvalidArgument) << status.message;
  for (const std::size_t i : {0U, 3U}) {
    EXPECT_EQ(load.result(i).code, Code::kInvalidArgument);
    EXPECT_EQ(load.result(i).bytes, 100U) << "the length needed";
    EXPECT_TRUE(load.GuardsIntact(i));
  }
  EXPECT_EQ(load.Problem(1, nonce, 100), "");
  EXPECT_EQ(load.Problem(2, nonce, 100), "");
}

TEST_P(TransferContract, PrefetchDeliversNothingAndFindsOut) {
  ASSERT_TRUE(DumpBlock(store(), geometry(), Id(0), NextNonce()).ok());
  LoadBatch load(geometry());
  for (std::uint32_t i = 0; i < shards(); ++i) load.AddPrefetch(Id(0), i);
  EXPECT_TRUE(Finish(store(), load).ok());
  for (std::size_t i = 0; i < load.size(); ++i) EXPECT_EQ(load.Problem(i), "");
  LoadBatch absent(geometry());
  absent.AddPrefetch(Id(1), 0);
  EXPECT_EQ(Finish(store(), absent).code, Code::kNotFound);
  EXPECT_EQ(BlockProblem(store(), geometry(), Id(0)), "");
}

TEST_P(TransferContract, PrefetchAndLoadInOneTask) {
  const std::uint64_t nonce = NextNonce();
  ASSERT_TRUE(DumpBlock(store(), geometry(), Id(0), nonce).ok());
  LoadBatch load(geometry());
  load.AddPrefetch(Id(0), 0);
  load.Add(Id(0), shards() - 1);
  load.AddPrefetch(Id(0), shards() - 1);
  load.Add(Id(0), 0);
  ASSERT_TRUE(Finish(store(), load).ok());
  EXPECT_EQ(load.Problem(1, nonce), "");
  EXPECT_EQ(load.Problem(3, nonce), "");
}

INSTANTIATE_TEST_SUITE_P(, TransferContract, testing::ValuesIn(AllCases()), CaseName);

}  // namespace
}  // namespace ucmstore::test
