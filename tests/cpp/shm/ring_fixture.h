// SPDX-License-Identifier: Apache-2.0
//
// What tests of the ring share: its memory without a segment, and what must hold in any ring. Not
// synchronised.
#pragma once

#include <cstring>
#include <memory>
#include <new>
#include <set>
#include <vector>

#include "shm/ring.h"
#include "shm/ring_memory.h"

namespace ucmstore::test {

inline constexpr milliseconds kLongAge{3'600'000};

[[nodiscard]] inline SlotWord WordIn(const RingMemory& memory, std::uint32_t slot) noexcept {
  return SlotWord(memory.slots[slot].word.load());
}
[[nodiscard]] inline BlockId IdIn(const RingMemory& memory, std::uint32_t slot) noexcept {
  BlockId block{};
  for (std::size_t i = 0; i < 2; ++i) {
    const std::uint64_t word = memory.slots[slot].id[i].load();
    std::memcpy(block.bytes.data() + i * sizeof(word), &word, sizeof(word));
  }
  return block;
}
[[nodiscard]] inline bool IsPinnedIn(const RingMemory& memory, std::uint32_t slot) noexcept {
  const auto& pins = memory.slots[slot].pins;
  return (pins[0].load() | pins[1].load()) != 0;
}

// What must hold whenever all live processes are at rest and the dead are reaped. Empty: it does.
[[nodiscard]] inline std::string WhatIsLeft(const RingMemory& memory) {
  std::set<BlockId> decided;
  for (std::uint32_t slot = 0; slot < memory.slot_count(); ++slot) {
    const SlotWord word = WordIn(memory, slot);
    const std::string where = "slot " + std::to_string(slot) + " ";
    if (IsPinnedIn(memory, slot)) return where + "is still pinned";
    if (word.draining()) return where + "is still draining";
    if (word.state() == SlotState::kClaimed || word.state() == SlotState::kProposed) {
      return where + "is still claimed";
    }
    if (!word.decided()) continue;
    if (!decided.insert(IdIn(memory, slot)).second) return where + "holds a block twice";
    bool all = true;
    for (const auto& state : memory.StatesOf(slot)) {
      if (state != kShardEmpty && state != kShardLanded) return where + "has a shard in the air";
      all = all && state == kShardLanded;
    }
    if (all != word.complete()) return where + (all ? "was never made whole" : "lacks a shard");
  }
  return {};
}

// A ring's memory: aligned, as new, in this process. Several Ring objects with different places
// over it are several processes; one that is given up without being asked to leave is a dead one.
// What it hands out is thread-safe.
class RingArena {
 public:
  explicit RingArena(const RingGeometry& geometry)
      : header_(PlanRing(geometry)),
        base_(static_cast<std::byte*>(
            ::operator new(header_.segment_bytes, std::align_val_t{kAlignment}))) {
    std::memset(base_.get(), 0, header_.segment_bytes);
  }

  // Everything but the shards' bytes is as new.
  void Reset() noexcept {
    std::memset(base_.get() + kSharedAt, 0, sizeof(RingShared));
    std::memset(base_.get() + header_.buckets_at, 0, header_.data_at - header_.buckets_at);
  }

  [[nodiscard]] RingMemory memory() const noexcept {
    std::byte* base = base_.get();
    return {.header = &header_,
            .shared = reinterpret_cast<RingShared*>(base + kSharedAt),
            .buckets = reinterpret_cast<Bucket*>(base + header_.buckets_at),
            .slots = reinterpret_cast<Slot*>(base + header_.slots_at),
            .states = reinterpret_cast<std::atomic<std::uint8_t>*>(base + header_.states_at),
            .lengths = reinterpret_cast<std::atomic<std::uint32_t>*>(base + header_.lengths_at),
            .data = base + header_.data_at};
  }
  [[nodiscard]] std::unique_ptr<Ring> Join(std::uint32_t place, milliseconds age = kLongAge) const {
    return std::make_unique<Ring>(memory(), place, age);
  }

  [[nodiscard]] SlotWord Word(std::uint32_t slot) const noexcept { return WordIn(memory(), slot); }
  [[nodiscard]] BlockId IdOf(std::uint32_t slot) const noexcept { return IdIn(memory(), slot); }
  [[nodiscard]] bool IsPinned(std::uint32_t slot) const noexcept {
    return IsPinnedIn(memory(), slot);
  }
  [[nodiscard]] std::string WhatIsLeft() const { return test::WhatIsLeft(memory()); }

 private:
  static constexpr std::size_t kAlignment = 4096;
  struct Free {
    void operator()(std::byte* memory) const noexcept {
      ::operator delete(memory, std::align_val_t{kAlignment});
    }
  };
  RingHeader header_;
  std::unique_ptr<std::byte, Free> base_;
};

// An id with a number in it, as an embedder may make it: no hash at all.
[[nodiscard]] inline BlockId PlainId(std::uint64_t number) noexcept {
  BlockId block{};
  std::memcpy(block.bytes.data(), &number, sizeof(number));
  return block;
}

// The first `count` plain ids whose home is the same bucket.
[[nodiscard]] inline std::vector<BlockId> Neighbours(const RingMemory& memory, std::size_t count) {
  const HintIndex index(memory);
  const Bucket* home = &index.Home(HintIndex::Hash(PlainId(1)));
  std::vector<BlockId> blocks;
  for (std::uint64_t number = 1; blocks.size() < count; ++number) {
    const BlockId block = PlainId(number);
    if (&index.Home(HintIndex::Hash(block)) == home) blocks.push_back(block);
  }
  return blocks;
}

// Copies in what nobody has begun.
inline void BringAll(Ring& ring, const Pin& pin) {
  for (std::uint32_t shard = 0; shard < ring.memory().shards(); ++shard) {
    if (ring.BeginShard(pin, shard)) (void)ring.LandShard(pin, shard, 1);
  }
}

// Whole and clean, or whole and dirty and of that ring. Gives the slot.
inline std::uint32_t PutClean(Ring& ring, const BlockId& block) {
  const Ring::Claim claim = ring.ClaimFor(block, Ring::Purpose::kFill);
  BringAll(ring, claim.pin);
  return claim.pin.slot();
}
inline std::uint32_t PutDirty(Ring& ring, const BlockId& block) {
  const Ring::Claim claim = ring.ClaimFor(block, Ring::Purpose::kAssemble);
  BringAll(ring, claim.pin);
  return claim.pin.slot();
}

[[nodiscard]] inline bool IsHere(Ring& ring, const BlockId& block) {
  std::uint8_t here = 2;
  ring.Probe({&block, 1}, false, &here);
  return here == 1;
}

// What a process has in its hands when it dies: never destroyed.
template <typename T>
class Abandoned {
 public:
  explicit Abandoned(T value) noexcept { new (memory_) T(std::move(value)); }

 private:
  alignas(T) std::byte memory_[sizeof(T)];
};

}  // namespace ucmstore::test
