// SPDX-License-Identifier: Apache-2.0
//
// Leases: blocks read and filled in place, who may do what with which handle, and what is left of
// them when their store is closed.
#include "cache/leases_fixture.h"
#include "support/scarce_threads.h"

namespace ucmstore::test {
namespace {

TEST_F(CacheLeases, ABlockIsReadInPlace) {
  const std::uint64_t nonce = NextNonce();
  ASSERT_TRUE(Dump(0, nonce).ok());
  const auto client = Client();
  const auto got = client->Acquire({Id(0), Id(1), Id(0)});
  EXPECT_TRUE(got.status.ok()) << got.status.message;
  EXPECT_EQ(InPlace(*client, got.leases[0], 0, nonce), "");
  EXPECT_EQ(got.leases[0].base, got.leases[2].base);
  EXPECT_NE(got.leases[0].lease, got.leases[2].lease) << "each is released by itself";
  EXPECT_EQ(got.leases[1].code, Code::kNotFound);
  EXPECT_EQ(got.leases[1].lease, 0U);
  EXPECT_EQ(got.lengths, (std::vector<std::uint32_t>{4096, 4096, 4096, 4096, 0, 0, 0, 0, 4096, 4096,
                                                     4096, 4096}));
  const LeaseMemoryV1& memory = client->memory();
  EXPECT_GE(got.leases[0].base, memory.base);
  EXPECT_LE(client->Memory(got.leases[0], 3).data() + 4096,
            static_cast<std::byte*>(memory.base) + memory.bytes);
  EXPECT_EQ(Figure("cache.ring_leases"), 2);
  EXPECT_TRUE(client->Release(got.leases[0]).ok());
  EXPECT_TRUE(client->Release(got.leases[2]).ok());
  EXPECT_EQ(Figure("cache.ring_leases"), 0);
}

TEST_F(CacheLeases, C06_AnAcquiredBlockOutlivesAnyPressure) {
  config_.options["cache.capacity"] = CapacityOf(8);
  const std::uint64_t nonce = NextNonce();
  ASSERT_TRUE(Dump(0, nonce).ok());
  const auto client = Client();
  const auto got = client->Acquire({Id(0)});
  Press(store(), 100, 64);
  EXPECT_EQ(InPlace(*client, got.leases[0], 0, nonce), "");
  EXPECT_EQ(Where(0), kInMemory);
  ASSERT_TRUE(client->Release(got.leases[0]).ok());
  Press(store(), 200, 64);
  EXPECT_EQ(Where(0), kBelow);
}

TEST_F(CacheLeases, WhatIsBelowOrIncompleteIsNotAcquired) {
  DumpedLongAgo(1, NextNonce());
  ASSERT_TRUE(DumpShard(store(), kGeometry, Id(1), 0, NextNonce()).ok());
  const auto got = Client()->Acquire({Id(0), Id(1)});
  EXPECT_TRUE(got.status.ok());
  EXPECT_EQ(got.leases[0].code, Code::kNotFound);
  EXPECT_EQ(got.leases[1].code, Code::kNotFound);
}

TEST_F(CacheLeases, D18_LeasesAreBoundedForAllProcessesTogether) {
  std::vector<BlockId> blocks;
  for (std::uint64_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(Dump(i, NextNonce()).ok());
    blocks.push_back(Id(i));
  }
  const auto limit = static_cast<std::size_t>(Figure("cache.max_leases"));
  EXPECT_EQ(limit, static_cast<std::size_t>(Figure("cache.ring_slots")) / 4);
  ASSERT_LT(limit, blocks.size());
  const auto client = Client();
  const auto got = client->Acquire(blocks);
  EXPECT_EQ(got.status.code, Code::kBusy);
  EXPECT_NE(got.status.text().find("max_leases"), std::string_view::npos) << got.status.message;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_EQ(got.leases[i].code, i < limit ? Code::kOk : Code::kBusy);
  }
  EXPECT_EQ(client->Reserve({Id(50)}).leases[0].code, Code::kBusy);
  const auto other = OpenAnother();
  const LeaseClient others(*other, kGeometry);
  EXPECT_EQ(others.Acquire({Id(0)}).leases[0].code, Code::kBusy);
  ASSERT_TRUE(client->Release(got.leases[0]).ok());
  EXPECT_EQ(others.Acquire({Id(0)}).leases[0].code, Code::kOk);
}

TEST_F(CacheLeases, D18_LoadsAndDumpsGoOnHoweverManyAreLeased) {
  for (const std::uint32_t slots : {1U, 4U}) {
    config_.options["cache.name"] = "slots-" + std::to_string(slots);
    config_.options["cache.capacity"] = CapacityOf(slots);
    config_.options["cache.max_leases"] = "1000";
    const auto client = Client();
    const auto most = static_cast<std::uint64_t>(Figure("cache.max_leases"));
    EXPECT_EQ(most, slots == 1 ? 1 : Figure("cache.ring_slots") - 1);
    std::vector<BlockId> blocks;
    for (std::uint64_t i = 0; i < most; ++i) blocks.push_back(Id(1000ULL * slots + i));
    const auto got = client->Reserve(blocks);
    EXPECT_TRUE(got.status.ok()) << got.status.message;
    const std::uint64_t nonce = NextNonce();
    for (std::uint64_t i = 0; i < 10; ++i) {
      ASSERT_TRUE(Dump(100ULL * slots + i, nonce).ok());
      EXPECT_EQ(Problem(100ULL * slots + i, nonce), "");
    }
    for (std::uint64_t i = 0; i < 10; ++i) EXPECT_EQ(Problem(100ULL * slots + i, nonce), "");
    store_.reset();
  }
}

TEST_F(CacheLeases, A02_AReservedBlockIsVisibleWithItsLastCommitAndThenAsDumped) {
  const auto client = Client();
  const auto got = client->Reserve({Id(0)});
  ASSERT_EQ(got.leases[0].code, Code::kOk) << got.status.message;
  const std::uint64_t nonce = NextNonce();
  for (const std::uint32_t shard : {2U, 0U, 3U}) {
    FillShard(*client, got.leases[0], 0, shard, nonce);
    EXPECT_EQ(Where(0), kAbsent);
    EXPECT_EQ(AbsenceProblem(store(), kGeometry, Id(0)), "");
  }
  Fill(client->Memory(got.leases[0], 1).first(100), Id(0), 1, nonce);
  ASSERT_TRUE(client->Commit(got.leases[0], 1, 100).ok());
  EXPECT_EQ(Where(0), kInMemory);
  EXPECT_TRUE(Reaches("cache.write_back_blocks", 1));
  EXPECT_EQ(FilesBelow(), 1U);
  EXPECT_EQ(client->Acquire({Id(0)}).lengths, (std::vector<std::uint32_t>{4096, 100, 4096, 4096}));
  LoadBatch load(kGeometry);
  ASSERT_TRUE(Finish(store(), load.AddBlock(Id(0))).ok());
  EXPECT_EQ(load.Problem(1, nonce, 100), "");
  EXPECT_EQ(load.Problem(2, nonce), "");
}

// Neither a worker nor the timer's thread is to be had, so no try below can begin or be put off.
TEST_F(CacheLeases, WithoutAThreadACommitReturnsAndNothingIsGivenUp) {
  ScarceThreads threads(0);
  config_.start_thread = threads.starter();
  config_.options["cache.write_back_give_up_ms"] = "0";
  const auto client = Client();
  const auto got = client->Reserve({Id(0)});
  ASSERT_EQ(got.leases[0].code, Code::kOk) << got.status.message;
  const std::uint64_t nonce = NextNonce();
  for (std::uint32_t shard = 0; shard < 4; ++shard) {
    FillShard(*client, got.leases[0], 0, shard, nonce);
  }
  EXPECT_EQ(Where(0), kInMemory);
  EXPECT_EQ(Figure("cache.write_back_waiting_blocks"), 1);
  EXPECT_EQ(FilesBelow(), 0U);
  threads.SetLeft(100);
  ASSERT_TRUE(Dump(1, nonce).ok());
  EXPECT_TRUE(Reaches("cache.write_back_blocks", 2));
  EXPECT_EQ(Figure("cache.write_back_lost_blocks"), 0);
  EXPECT_EQ(FilesBelow(), 2U);
}

TEST_F(CacheLeases, WhatIsVisibleOrOnItsWayIsNotReserved) {
  DumpedLongAgo(1, NextNonce());
  ASSERT_TRUE(Dump(1, NextNonce()).ok());
  const auto client = Client();
  const auto got = client->Reserve({Id(0), Id(1), Id(2), Id(2)});
  EXPECT_TRUE(got.status.ok()) << got.status.message;
  for (const std::size_t visible : {0U, 1U}) {
    EXPECT_EQ(got.leases[visible].code, Code::kOk);
    EXPECT_EQ(got.leases[visible].lease, 0U);
  }
  EXPECT_NE(got.leases[2].lease, 0U);
  EXPECT_EQ(got.leases[3].code, Code::kPending);
  EXPECT_EQ(Figure("cache.ring_leases"), 1);
  ASSERT_TRUE(DumpShard(store(), kGeometry, Id(3), 1, NextNonce()).ok());
  EXPECT_EQ(client->Reserve({Id(3)}).leases[0].code, Code::kPending);
  EXPECT_EQ(client->Reserve({Id(3)}, 2, 2).leases[0].code, Code::kOk);
}

TEST_F(CacheLeases, AReservationThatIsReleasedLeavesNothing) {
  const auto client = Client();
  const auto got = client->Reserve({Id(0)});
  ASSERT_TRUE(client->Release(got.leases[0]).ok());
  EXPECT_EQ(Figure("cache.ring_leases"), 0);
  const std::uint64_t nonce = NextNonce();
  ASSERT_TRUE(Dump(0, nonce).ok());
  EXPECT_EQ(Problem(0, nonce), "");
  // Of another one some shards had come: they stay, as those of a dump do.
  const auto half = client->Reserve({Id(1)});
  FillShard(*client, half.leases[0], 1, 0, nonce);
  ASSERT_TRUE(client->Release(half.leases[0]).ok());
  EXPECT_EQ(Figure("cache.incomplete_blocks"), 1);
  ASSERT_TRUE(Dump(1, nonce).ok());
  EXPECT_EQ(Problem(1, nonce), "");
  EXPECT_EQ(Figure("cache.incomplete_blocks"), 0);
}

TEST_F(CacheLeases, D04_ADumpOfWhatThisProcessHasReservedIsBusyAtOnceInWords) {
  const auto client = Client();
  const auto got = client->Reserve({Id(0)}, 1, 2);
  DumpBatch late(kGeometry);
  late.AddBlock(Id(0), NextNonce()).AddBlock(Id(1), NextNonce());
  const TaskId task = Submit(store(), late);
  const Status status = store().Wait(task, 5'000);  // half of what a dump waits for another
  EXPECT_EQ(status.code, Code::kBusy);
  EXPECT_NE(status.text().find("reserved by a lease of this process"), std::string::npos)
      << status.message;
  for (std::size_t i = 0; i < late.size(); ++i) {
    EXPECT_EQ(late.result(i).code, i == 1 || i == 2 ? Code::kBusy : Code::kOk) << i;
  }
  ASSERT_TRUE(client->Release(got.leases[0]).ok());
  const std::uint64_t nonce = NextNonce();
  DumpBatch rest(kGeometry);
  EXPECT_TRUE(Finish(store(), rest.Add(Id(0), 1, nonce).Add(Id(0), 2, nonce)).ok());
  EXPECT_EQ(Where(0), kInMemory);
}

TEST_F(CacheLeases, AnotherStoreOfTheProcessKnowsWhatIsReserved) {
  const auto client = Client();
  const auto got = client->Reserve({Id(0)});
  const auto other = OpenAnother();
  DumpBatch dump(kGeometry);
  const TaskId task = Submit(*other, dump.AddBlock(Id(0), NextNonce()));
  EXPECT_EQ(other->Wait(task, 5'000).code, Code::kBusy);
  ASSERT_TRUE(client->Release(got.leases[0]).ok());
  EXPECT_TRUE(other->Close(kPatienceMs));
}

TEST_F(CacheLeases, D18_ACallTakesAsManyAsAreLeft) {
  config_.options["cache.max_leases"] = "10";
  const auto client = Client();
  std::vector<BlockId> ids;
  for (std::uint64_t i = 0; i < 100; ++i) ids.push_back(Id(i));
  const auto got = client->Reserve(ids);
  EXPECT_EQ(got.status.code, Code::kBusy);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(got.leases[i].code, i < 10 ? Code::kOk : Code::kBusy) << i;
    EXPECT_EQ(got.leases[i].lease != 0, i < 10) << i;
  }
  EXPECT_EQ(Figure("cache.ring_leases"), 10);
  for (std::size_t i = 0; i < 10; ++i) EXPECT_TRUE(client->Release(got.leases[i]).ok());
  EXPECT_EQ(Figure("cache.ring_leases"), 0);
  // Of what it took and did not need it keeps none.
  for (std::uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(Dump(i, NextNonce()).ok());
  EXPECT_EQ(client->Reserve(ids).status.code, Code::kBusy);
  EXPECT_EQ(Figure("cache.ring_leases"), 10);
}

TEST_F(CacheLeases, M06_MisuseIsRefusedInWords) {
  const auto client = Client();
  const LeaseClient other(store(), kGeometry);
  ASSERT_TRUE(Dump(9, NextNonce()).ok());
  const LeaseV1 lease = client->Reserve({Id(0)}).leases[0];
  const LeaseV1 half = client->Reserve({Id(1)}, 1, 2).leases[0];
  const LeaseV1 read = client->Acquire({Id(9)}).leases[0];
  const auto refuses = [](const Status& status, Code code) {
    EXPECT_EQ(status.code, code);
    EXPECT_TRUE(status.text().starts_with("Cache: ")) << status.message;
  };
  refuses(client->Commit(lease, 0, 4097), Code::kInvalidArgument);
  refuses(client->Commit(lease, 0, 0), Code::kInvalidArgument);
  refuses(client->Commit(lease, 4, 1), Code::kInvalidArgument);
  refuses(client->Commit(half, 0, 1), Code::kInvalidArgument);
  refuses(client->Commit(half, 3, 1), Code::kInvalidArgument);
  refuses(client->Commit(read, 0, 1), Code::kInvalidArgument);
  refuses(other.Commit(lease, 0, 1), Code::kNotFound);
  refuses(other.Release(lease), Code::kNotFound);
  EXPECT_TRUE(client->Commit(lease, 0, 1).ok());
  refuses(client->Commit(lease, 0, 1), Code::kInvalidArgument);
  EXPECT_TRUE(client->Release(lease).ok());
  refuses(client->Release(lease), Code::kNotFound);
  refuses(client->Commit(lease, 1, 1), Code::kNotFound);
  refuses(client->Release({}), Code::kNotFound);
  refuses(client->Reserve({Id(2)}, 3, 2).status, Code::kInvalidArgument);
  refuses(client->Reserve({Id(2)}, 0, 0).status, Code::kInvalidArgument);
  refuses(client->Reserve({Id(2)}, UINT32_MAX, 2).status, Code::kInvalidArgument);
  EXPECT_TRUE(client->Acquire({}).status.ok());
  EXPECT_TRUE(client->Reserve({}).status.ok());
  EXPECT_TRUE(client->table().release(client->book(), nullptr, 0).ok());
  refuses(client->table().acquire(client->book(), nullptr, 1, nullptr, nullptr),
          Code::kInvalidArgument);
  refuses(client->table().release(client->book(), nullptr, 1), Code::kInvalidArgument);
}

TEST_F(CacheLeases, LeasesOutliveTheCloseOfTheirStore) {
  config_.options["cache.capacity"] = CapacityOf(8);
  const std::uint64_t nonce = NextNonce();
  ASSERT_TRUE(Dump(0, nonce).ok());
  auto client = Client();
  const auto got = client->Acquire({Id(0)});
  const auto room = client->Reserve({Id(1)});
  ASSERT_EQ(room.leases[0].code, Code::kOk) << room.status.message;
  EXPECT_TRUE(store().Close(1'000));
  store_.reset();
  EXPECT_EQ(client->Acquire({Id(0)}).status.code, Code::kClosed);
  EXPECT_EQ(client->Reserve({Id(2)}).status.code, Code::kClosed);
  EXPECT_EQ(client->Commit(room.leases[0], 0, 1).code, Code::kClosed);
  // Another store of the ring gives the memory to nobody else.
  Press(store(), 100, 64);
  EXPECT_EQ(InPlace(*client, got.leases[0], 0, nonce), "");
  EXPECT_EQ(Figure("cache.ring_leases"), 2);
  EXPECT_TRUE(client->Release(got.leases[0]).ok());
  client.reset();  // with the other one in it
  EXPECT_EQ(Figure("cache.ring_leases"), 0);
  ASSERT_TRUE(Dump(1, nonce).ok());
  EXPECT_EQ(Problem(1, nonce), "");
}

TEST_F(CacheLeases, ThroughDoesNotHoldACommitUp) {
  config_.options["cache.write"] = "through";
  const std::uint64_t hold = fault().Arm("dump hold");
  const auto client = Client();
  const auto got = client->Reserve({Id(0)});
  FillBlock(*client, got.leases[0], 0, NextNonce());
  EXPECT_EQ(Where(0), kInMemory);
  EXPECT_EQ(FilesBelow(), 0U);
  // Visible, but a dump of it is confirmed no sooner than it is below.
  DumpBatch dump(kGeometry);
  const TaskId task = Submit(store(), dump.AddBlock(Id(0), NextNonce()));
  EXPECT_EQ(store().Wait(task, 50).code, Code::kPending);
  fault().Release(hold);
  EXPECT_TRUE(store().Wait(task, kPatienceMs).ok());
  EXPECT_EQ(FilesBelow(), 1U);
}

}  // namespace
}  // namespace ucmstore::test
