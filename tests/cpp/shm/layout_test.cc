// SPDX-License-Identifier: Apache-2.0
//
// Tests of a segment's layout: parts in order, aligned, none overlapping, and as many slots as fit.
#include "shm/layout.h"

#include <gtest/gtest.h>

#include "support/random.h"

namespace ucmstore::test {
namespace {

RingHeader Plan(std::uint64_t shard_size, std::uint32_t shards, std::uint32_t slots) {
  return PlanRing({.shard_size = shard_size, .shards_per_block = shards, .slot_count = slots});
}

void ExpectSound(const RingHeader& header) {
  const std::uint64_t slots = header.slot_count;
  const std::uint64_t padded = (header.shards_per_block + 7ULL) / 8 * 8;
  EXPECT_EQ(header.buckets_at, kBucketsAt);
  EXPECT_EQ(header.slots_at, header.buckets_at + header.bucket_count * sizeof(Bucket));
  EXPECT_EQ(header.states_at, header.slots_at + slots * sizeof(Slot));
  EXPECT_GE(header.lengths_at, header.states_at + slots * padded);
  EXPECT_GE(header.data_at, header.lengths_at + slots * header.shards_per_block * 4);
  EXPECT_EQ(header.segment_bytes,
            header.data_at + slots * header.shards_per_block * header.shard_stride);
  EXPECT_EQ(header.slots_at % 64, 0U);
  EXPECT_EQ(header.states_at % 8, 0U);
  EXPECT_EQ(header.lengths_at % 4, 0U);
  EXPECT_EQ(header.data_at % 4096, 0U);
  EXPECT_GE(header.shard_stride, header.shard_size);
  EXPECT_EQ(header.bucket_count & (header.bucket_count - 1), 0U);
  EXPECT_GE(std::uint64_t{header.bucket_count} * kHintsPerBucket, slots);
}

TEST(LayoutTest, PartsLieInOrderAndAligned) {
  for (const std::uint32_t shards : {1U, 2U, 7U, 8U, 9U, 128U}) {
    for (const std::uint32_t slots : {1U, 2U, 6U, 7U, 8U, 1000U, 65'536U, 1U << 20}) {
      for (const std::uint64_t size : {1ULL, 63ULL, 64ULL, 4095ULL, 4096ULL, 4097ULL, 1ULL << 20}) {
        SCOPED_TRACE(testing::Message() << shards << " x " << size << ", " << slots << " slots");
        ExpectSound(Plan(size, shards, slots));
      }
    }
  }
}

TEST(LayoutTest, ShardsOfAPageAndMoreBeginOnPages) {
  EXPECT_EQ(ShardStride(1), 64U);
  EXPECT_EQ(ShardStride(4095), 4096U);
  EXPECT_EQ(ShardStride(4096), 4096U);
  EXPECT_EQ(ShardStride(4097), 8192U);
}

TEST(LayoutTest, AsManySlotsAsFitAndNotOneMore) {
  Random random;
  for (int round = 0; round < 2000; ++round) {
    const std::uint64_t size = random.Between(1, 1U << 21);
    const auto shards = static_cast<std::uint32_t>(random.Between(1, 128));
    const std::uint64_t capacity = random.Between(1, 1ULL << random.Between(14, 44));
    SCOPED_TRACE(testing::Message() << shards << " x " << size << " in " << capacity);
    const std::uint32_t slots = SlotsFor(capacity, size, shards);
    if (slots > 0) {
      EXPECT_LE(Plan(size, shards, slots).segment_bytes, capacity);
    }
    if (slots < 1U << 31) {
      EXPECT_GT(Plan(size, shards, slots + 1).segment_bytes, capacity);
    }
  }
}

TEST(LayoutTest, WhatCannotBeComputedHasNoSlots) {
  EXPECT_EQ(SlotsFor(1ULL << 40, 0, 4), 0U);
  EXPECT_EQ(SlotsFor(1ULL << 40, 4096, 0), 0U);
  EXPECT_EQ(SlotsFor(UINT64_MAX, UINT64_MAX, 1), 0U);
  EXPECT_EQ(SlotsFor(UINT64_MAX, 1ULL << 62, 128), 0U);
  EXPECT_EQ(SlotsFor(0, 4096, 4), 0U);
  EXPECT_EQ(SlotsFor(UINT64_MAX, 1, 1), 1U << 31);
}

TEST(LayoutTest, MetadataIsSmall) {
  for (const std::uint32_t shards : {1U, 8U, 128U}) {
    for (const std::uint32_t slots : {4096U, 9000U, 65'536U, 150'000U, 1U << 20}) {
      const RingHeader header = Plan(4096, shards, slots);
      const std::uint64_t fixed = kBucketsAt + 4096;
      EXPECT_LE(header.data_at - fixed, std::uint64_t{slots} * (128 + 5ULL * shards))
          << shards << " shards, " << slots << " slots";
    }
  }
}

}  // namespace
}  // namespace ucmstore::test
