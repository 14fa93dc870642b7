// SPDX-License-Identifier: Apache-2.0
//
// What lies where in a ring's segment. It is shared by processes of different builds, so it is a
// format like one on disk: little-endian, versioned (kRingVersion is in the segment's name, too:
// two releases run side by side), every size and offset held by static_assert. All of it is plain
// memory that any process may die in the middle of writing; who may write what is in ring.h.
//
//   0         +--------------------------------------------------------------------+
//             | RingHeader: constant once the segment has a name                   |
//   4096      | RingShared: the hand, the event, who watches, counters             |
//   8192      | ProcessEntry x 128                                                 |
//   16384     | Bucket x bucket_count      the index: id -> slot, as hints          |
//             | Slot x slot_count                                                  |
//             | shard states, 1 byte each, shards_per_block (rounded up to 8) a slot |
//             | shard lengths, u32 each, shards_per_block a slot                    |
//   data at   | slot_count x shards_per_block x shard_stride                       |
//             +--------------------------------------------------------------------+
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ucmstore {

inline constexpr std::uint32_t kRingVersion = 1;
inline constexpr std::uint64_t kRingMagic = 0x31474E524D435531ULL;  // "1UCMRNG1"
inline constexpr std::uint32_t kMaxProcesses = 128;
inline constexpr std::size_t kIdentityRoom = 3072;

// Never changes once the segment has a name. `identity` says in words whose blocks these are:
// namespace, fingerprint, content, what lies below; another text is another store's segment.
struct RingHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t header_crc32c;  // of this struct with this field 0
  std::uint64_t segment_bytes;
  std::uint64_t shard_size;
  std::uint64_t shard_stride;  // distance of shards in a slot's memory
  std::uint32_t shards_per_block;
  std::uint32_t slot_count;
  std::uint32_t bucket_count;  // a power of two
  std::uint32_t identity_bytes;
  std::uint64_t buckets_at;  // offsets from the segment's start
  std::uint64_t slots_at;
  std::uint64_t states_at;
  std::uint64_t lengths_at;
  std::uint64_t data_at;  // a multiple of 4096
  char identity[kIdentityRoom];
};
static_assert(sizeof(RingHeader) == 96 + kIdentityRoom && sizeof(RingHeader) <= 4096);
static_assert(offsetof(RingHeader, identity) == 96);

struct RingShared {
  alignas(64) std::atomic<std::uint64_t> hand;  // slots passed by; modulo slot_count
  alignas(
      64) std::atomic<std::uint32_t> event;  // a futex: grows when a shard landed or a slot fell
  std::array<std::atomic<std::uint64_t>, 2> watchers;  // bit of each process that sleeps on it
  // Counters of all processes together, as long as the segment lives.
  alignas(64) std::atomic<std::uint64_t> evictions;
  std::atomic<std::uint64_t> reaped_processes;
  std::atomic<std::uint64_t> orphans;  // dirty blocks that became nobody's
};
static_assert(sizeof(RingShared) == 192);

// A place that a process takes. It lives as long as it holds the kernel's lock of its byte
// (process_table.h); what is in here is for people, but for `taken` and `leases`.
struct ProcessEntry {
  std::atomic<std::uint32_t> taken;  // 1 from before the first trace in the ring until all are gone
  std::atomic<std::uint32_t> pid;    // as the process itself sees it
  std::atomic<std::uint64_t> since_ns;  // CLOCK_BOOTTIME
  std::atomic<std::uint64_t> leases;    // out in this process; counts towards a limit of all
  std::array<std::atomic<std::uint64_t>, 5> reserved;
};
static_assert(sizeof(ProcessEntry) == 64);

// A cache line of the index.
inline constexpr std::uint32_t kHintsPerBucket = 7;
struct Bucket {
  std::array<std::atomic<std::uint64_t>, kHintsPerBucket> hints;
  // At least the number of blocks whose home this is and whose hint found no room in it. Too high
  // after a death: then a miss looks further than it must, nothing else.
  std::atomic<std::uint64_t> overflow;
};
static_assert(sizeof(Bucket) == 64);

struct Slot {
  std::atomic<std::uint64_t> word;                 // SlotWord
  std::array<std::atomic<std::uint64_t>, 2> id;    // changes only while claimed
  std::array<std::atomic<std::uint64_t>, 2> pins;  // a bit for each process, by place
  std::atomic<std::uint64_t> touched_ns;           // assembling: when it last was (CLOCK_BOOTTIME)
  // The generation whose hint the home bucket counts as overflow; 0: none.
  std::atomic<std::uint64_t> overflow_of;
  std::atomic<std::uint64_t> reserved;
};
static_assert(sizeof(Slot) == 64);

// Shard states. Anything else: being copied in by the process with place (state - 1).
inline constexpr std::uint8_t kShardEmpty = 0;
inline constexpr std::uint8_t kShardLanded = 0xFF;
static_assert(kMaxProcesses < kShardLanded);

static_assert(std::atomic<std::uint8_t>::is_always_lock_free &&
              std::atomic<std::uint32_t>::is_always_lock_free &&
              std::atomic<std::uint64_t>::is_always_lock_free);

inline constexpr std::uint64_t kSharedAt = 4096;
inline constexpr std::uint64_t kProcessesAt = 8192;
inline constexpr std::uint64_t kBucketsAt = 16384;

struct RingGeometry {
  std::uint64_t shard_size = 0;
  std::uint32_t shards_per_block = 0;
  std::uint32_t slot_count = 0;
};

// The distance of shards in memory. Shards of a page and more begin on pages, so that direct I/O
// reaches them without a copy.
[[nodiscard]] constexpr std::uint64_t ShardStride(std::uint64_t shard_size) noexcept {
  const std::uint64_t unit = shard_size >= 4096 ? 4096 : 64;
  return (shard_size + unit - 1) / unit * unit;
}

// Fills in everything but identity and checksum. Requires: all of `geometry` >= 1 and the product
// far from overflow (SlotsFor saw to it).
[[nodiscard]] RingHeader PlanRing(const RingGeometry& geometry) noexcept;

// The most slots that fit into `capacity_bytes`, metadata included; at most 2^31. 0: not even one,
// or a size that cannot be computed.
[[nodiscard]] std::uint32_t SlotsFor(std::uint64_t capacity_bytes, std::uint64_t shard_size,
                                     std::uint32_t shards_per_block) noexcept;

}  // namespace ucmstore
