// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of a segment.
#include "shm/layout.h"

#include <algorithm>
#include <bit>

namespace ucmstore {
namespace {

constexpr std::uint64_t RoundUp(std::uint64_t value, std::uint64_t unit) noexcept {
  return (value + unit - 1) / unit * unit;
}

// Between 1.75 and 3.5 blocks for the 7 places of a bucket: overflow is rare.
constexpr std::uint32_t BucketsFor(std::uint32_t slots) noexcept {
  return std::bit_ceil(slots / 7 * 2 + 1);
}

}  // namespace

RingHeader PlanRing(const RingGeometry& geometry) noexcept {
  RingHeader header{};
  header.magic = kRingMagic;
  header.version = kRingVersion;
  header.shard_size = geometry.shard_size;
  header.shard_stride = ShardStride(geometry.shard_size);
  header.shards_per_block = geometry.shards_per_block;
  header.slot_count = geometry.slot_count;
  header.bucket_count = BucketsFor(geometry.slot_count);
  header.buckets_at = kBucketsAt;
  header.slots_at = header.buckets_at + std::uint64_t{header.bucket_count} * sizeof(Bucket);
  header.states_at = header.slots_at + std::uint64_t{header.slot_count} * sizeof(Slot);
  header.lengths_at = header.states_at + header.slot_count * RoundUp(geometry.shards_per_block, 8);
  header.data_at = RoundUp(
      header.lengths_at + std::uint64_t{header.slot_count} * geometry.shards_per_block * 4, 4096);
  header.segment_bytes = header.data_at + std::uint64_t{header.slot_count} *
                                              geometry.shards_per_block * header.shard_stride;
  return header;
}

std::uint32_t SlotsFor(std::uint64_t capacity_bytes, std::uint64_t shard_size,
                       std::uint32_t shards_per_block) noexcept {
  constexpr std::uint64_t kMaxSlots = 1ULL << 31;
  constexpr std::uint64_t kMaxBlock = 1ULL << 46;
  if (shard_size == 0 || shards_per_block == 0 || shard_size > kMaxBlock / shards_per_block) {
    return 0;
  }
  const std::uint64_t block = ShardStride(shard_size) * shards_per_block;
  std::uint64_t low = 0;                                                 // fits
  std::uint64_t high = std::min(kMaxSlots, capacity_bytes / block) + 1;  // does not
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    const RingHeader plan = PlanRing({.shard_size = shard_size,
                                      .shards_per_block = shards_per_block,
                                      .slot_count = static_cast<std::uint32_t>(middle)});
    (plan.segment_bytes <= capacity_bytes ? low : high) = middle;
  }
  return static_cast<std::uint32_t>(low);
}

}  // namespace ucmstore
