// SPDX-License-Identifier: Apache-2.0
//
// HintIndex: from a block id to the slots that may hold it. An entry is a hint and nothing more:
// whoever follows it looks at the slot. So no lock is needed that a paused or dead process could
// hold: entries change by compare-and-swap alone, and one that has become stale (its slot lives
// another life) is dropped by whoever needs its place. Thread-safe, across processes.
//
//   hint, 0 if there is none:
//   63           32 31        17  16 15            0
//   +--------------+------------+---+---------------+
//   | slot         | tag        | 1 | generation    |
//   +--------------+------------+---+---------------+
//
// A block's home is one bucket (a cache line of 7 hints). Where that is full, its hint lies in one
// of the kReach - 1 buckets behind, and the home counts it (layout.h: overflow). The count is
// raised before the hint is there and lowered after it is gone, by whoever takes the slot's note of
// it: who ends that life of the slot, or, if he died, or another dropped the hint, who begins the
// next. Only a death between count and note leaves the count too high.
//
// A hint never comes back: its generation was used up. So a compare-and-swap that drops a stale
// one cannot hit a new one. (16 bits of it are kept; the same slot would have to be claimed 65,536
// times for blocks of the same home and tag, while one swap waits.)
#pragma once

#include <bit>
#include <cstring>

#include "shm/ring_memory.h"
#include "shm/slot_word.h"
#include "ucmstore/types.h"

namespace ucmstore {

class Hint {
 public:
  constexpr explicit Hint(std::uint64_t bits) noexcept : bits_(bits) {}
  constexpr Hint(std::uint32_t slot, std::uint64_t hash, std::uint64_t generation) noexcept
      : bits_((std::uint64_t{slot} << 32) | (TagOf(hash) << 17) | (1ULL << 16) |
              (generation & 0xFFFF)) {}

  [[nodiscard]] constexpr std::uint64_t bits() const noexcept { return bits_; }
  [[nodiscard]] constexpr std::uint32_t slot() const noexcept {
    return static_cast<std::uint32_t>(bits_ >> 32);
  }
  [[nodiscard]] constexpr bool Matches(std::uint64_t hash) const noexcept {
    return ((bits_ >> 16) & 0xFFFF) == (TagOf(hash) << 1 | 1);
  }
  // The slot still lives the life that the hint is about.
  [[nodiscard]] constexpr bool IsOf(SlotWord word) const noexcept {
    return (word.generation() & 0xFFFF) == (bits_ & 0xFFFF);
  }

 private:
  static constexpr std::uint64_t TagOf(std::uint64_t hash) noexcept { return hash >> 49; }
  std::uint64_t bits_;
};

class HintIndex {
 public:
  static constexpr std::uint32_t kReach = 8;  // buckets, home included

  explicit HintIndex(const RingMemory& memory) noexcept
      : memory_(memory),
        mask_(memory.header->bucket_count - 1),
        reach_(memory.header->bucket_count < kReach ? memory.header->bucket_count : kReach) {}

  // Ids are hashes already, but an embedder's may be plain numbers. (The mixer is the finaliser of
  // SplitMix64, https://doi.org/10.1145/2714064.2660195)
  [[nodiscard]] static std::uint64_t Hash(const BlockId& block) noexcept {
    std::uint64_t words[2];
    std::memcpy(words, block.bytes.data(), sizeof(words));
    std::uint64_t mixed = words[0] ^ std::rotl(words[1], 29) * 0x9E3779B97F4A7C15ULL;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9ULL;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBULL;
    return mixed ^ (mixed >> 31);
  }

  [[nodiscard]] Bucket& Home(std::uint64_t hash) const noexcept {
    return memory_.buckets[hash & mask_];
  }

  // Calls visit(hint) for each hint that may be about the block, until it returns true; returns
  // that.
  template <typename Visit>
  bool ForEach(std::uint64_t hash, Visit&& visit) const noexcept(noexcept(visit(Hint(0)))) {
    const std::uint64_t home = hash & mask_;
    for (std::uint32_t i = 0; i < reach_; ++i) {
      Bucket& bucket = memory_.buckets[(home + i) & mask_];
      for (std::atomic<std::uint64_t>& entry : bucket.hints) {
        const Hint hint(entry.load(std::memory_order_seq_cst));
        if (hint.Matches(hash) && visit(hint)) return true;
      }
      if (i == 0 && bucket.overflow.load(std::memory_order_seq_cst) == 0) return false;
    }
    return false;
  }

  // False: there is no room within reach, which takes very unequal ids.
  [[nodiscard]] bool Insert(std::uint64_t hash, std::uint32_t slot, std::uint64_t generation);
  void Remove(std::uint64_t hash, std::uint32_t slot, std::uint64_t generation) noexcept;
  // Lowers the count of the slot's last life, whose block it was, if nobody has. For the claimer.
  void Settle(std::uint32_t slot, const BlockId& last) noexcept;

 private:
  [[nodiscard]] bool Place(Bucket& bucket, Hint hint) noexcept;
  [[nodiscard]] bool IsStale(Hint hint) const noexcept;
  void LowerOverflow(std::uint64_t hash, std::uint32_t slot, std::uint64_t generation) noexcept;

  RingMemory memory_;
  std::uint64_t mask_;
  std::uint32_t reach_;
};

}  // namespace ucmstore
