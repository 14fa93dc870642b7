// SPDX-License-Identifier: Apache-2.0
//
// Ring: slots of shared memory in a circle, each holding one block, used by many processes at once.
// One Ring is one process's hold on it. No operation waits for another process: where one has
// stopped or died in the middle of something, the others see that in the slot and go on without
// that slot. What the dead leave behind is erased by EraseTraces.
//
// The rules, and what makes each hold:
//  - A slot's life changes by one compare-and-swap of its word, by transitions.h.
//  - Nobody moves bytes in or out of a slot without a pin. A pin is a bit in the slot for each
//    process (so that the dead can be unpinned) and a count inside the process. To pin: set the
//    bit, then read the word again. To evict: swap the word to draining, then read the pins, then
//    swap it to the next life. Either the reader sees the swap or the evictor sees the bit: all
//    four accesses are sequentially consistent (acquire and release would pass on x86, not on Arm).
//    A reader that meets a draining slot swaps it back, and then the evictor's last swap fails.
//    Four are enough: whichever of the two swaps (bit, draining) is first in the one order of all
//    such accesses is seen by the other side's load after its own; and if it was the draining, the
//    last swaps of both are of the same word, so one of them fails. Fewer are not: see
//    ring_memory_order_test.cc, which tries.
//  - A hint is followed to a word, an id and the word again. The id of the next life is stored with
//    release, so whoever sees it also sees that the word's life is over.
//  - A block is decided to be in at most one slot. A claimer first proposes its slot (id written,
//    hint inserted), then looks at all hints for the block: a slot that is decided already wins,
//    and one that is only proposed is beaten, after which its claimer cannot decide. Of two slots,
//    the one whose hint came second sees the other, so not both are decided.
//  - A block is whole when every shard's state says landed; that is looked at after each landing,
//    and by whoever erases the traces of a process that died after its landing. (States are
//    sequentially consistent, so of two last landings at least one sees both.)
//  - One thread of a process at a time looks for a slot to evict: so a draining slot with this
//    process as evictor belongs to one attempt.
//
// Thread-safe, across threads and processes, except where noted.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "shm/hint_index.h"
#include "shm/ring_memory.h"
#include "shm/transitions.h"

namespace ucmstore {

class Ring;

// A pinned slot: the block in it stays, and so does its memory, until the pin goes.
class Pin {
 public:
  Pin() = default;
  Pin(Pin&& other) noexcept
      : ring_(std::exchange(other.ring_, nullptr)),
        slot_(other.slot_),
        generation_(other.generation_) {}
  Pin& operator=(Pin&& other) noexcept;
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;
  ~Pin() { Release(); }

  [[nodiscard]] explicit operator bool() const noexcept { return ring_ != nullptr; }
  [[nodiscard]] std::uint32_t slot() const noexcept { return slot_; }
  [[nodiscard]] std::uint64_t generation() const noexcept { return generation_; }
  [[nodiscard]] Pin Another() const;  // of the same slot
  void Release() noexcept;

 private:
  friend class Ring;
  Pin(Ring* ring, std::uint32_t slot, std::uint64_t generation) noexcept
      : ring_(ring), slot_(slot), generation_(generation) {}
  Ring* ring_ = nullptr;
  std::uint32_t slot_ = 0;
  std::uint64_t generation_ = 0;
};

class Ring {
 public:
  // `place`: the process's, which lives. An incomplete block of dumps that nobody has touched for
  // `incomplete_age` may be given up. The memory outlives the ring, the ring its pins.
  Ring(const RingMemory& memory, std::uint32_t place, milliseconds incomplete_age);
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // ---- finding ----
  // For each block: 1 if it is whole and here, else 0. A touch makes it hotter.
  void Probe(std::span<const BlockId> blocks, bool touch, std::uint8_t* here) noexcept;
  // Pins the slot that has been decided to hold the block, whole or not. Null: there is none.
  [[nodiscard]] Pin Find(const BlockId& block);
  void Touch(const Pin& pin) noexcept;

  // ---- bringing a block ----
  enum class Purpose : std::uint8_t { kFill, kAssemble };
  struct Claim {
    Pin pin;            // null: every slot is in use, nothing can be evicted
    bool made = false;  // false: the block was decided to be elsewhere meanwhile
  };
  [[nodiscard]] Claim ClaimFor(const BlockId& block, Purpose purpose);

  // ---- a pinned slot ----
  [[nodiscard]] SlotWord WordOf(const Pin& pin) const noexcept { return Load(pin.slot()); }
  [[nodiscard]] SlotWord WordAt(std::uint32_t slot) const noexcept { return Load(slot); }
  [[nodiscard]] BlockId BlockOf(const Pin& pin) const noexcept { return IdOf(pin.slot()); }
  [[nodiscard]] std::uint8_t ShardState(const Pin& pin, std::uint32_t shard) const noexcept {
    return memory_.StatesOf(pin.slot())[shard].load(std::memory_order_seq_cst);
  }
  [[nodiscard]] bool IsMine(std::uint8_t shard_state) const noexcept { return shard_state == me_; }
  // Empty -> being copied in by this process. True for exactly one of all callers.
  [[nodiscard]] bool BeginShard(const Pin& pin, std::uint32_t shard) noexcept;
  // The bytes are there. Requires: BeginShard returned true. Returns true if that made the block
  // whole and this call made it so: filled blocks are clean then, assembled ones dirty, and ours to
  // flush.
  bool LandShard(const Pin& pin, std::uint32_t shard, std::uint32_t length) noexcept;
  // If every shard has landed, but whoever landed the last has not made the block whole (it
  // stopped, or died): this call does, and if it was assembled it is dirty and ours now. True: it
  // did.
  bool CompleteIfWhole(const Pin& pin) noexcept { return Complete(pin.slot()); }
  // They will not come. Requires: BeginShard returned true, and nothing moves any more.
  void AbandonShard(const Pin& pin, std::uint32_t shard) noexcept;
  [[nodiscard]] std::uint32_t LengthOf(const Pin& pin, std::uint32_t shard) const noexcept {
    return memory_.LengthOf(pin.slot(), shard).load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::byte* DataOf(const Pin& pin, std::uint32_t shard) const noexcept {
    return memory_.DataOf(pin.slot(), shard);
  }
  // True: no shard has landed, and none is being copied in.
  [[nodiscard]] bool IsBare(const Pin& pin) const noexcept;
  // Empties the slot at once if it holds an incomplete block that nobody else has pinned.
  void Discard(Pin pin) noexcept;

  // ---- writing back ----
  // Dirty and ours, or nobody's -> flushing. Null: it is not, any more.
  [[nodiscard]] std::optional<BlockId> BeginFlush(std::uint32_t slot) noexcept;
  enum class Flush : std::uint8_t { kArrived, kFailed, kForsaken };
  // Requires: BeginFlush gave a block, and EndFlush has not followed.
  void EndFlush(std::uint32_t slot, Flush how) noexcept;
  // A whole block that is clean, but gone below: dirty again, and ours. False: it is not clean.
  [[nodiscard]] bool Rewrite(const Pin& pin) noexcept;
  // Takes over the dirty blocks that no living process sees to. Calls flush(slot) for each of ours.
  template <typename Each>
  void AdoptDirty(Each&& flush);

  // A dirty block of ours is nobody's: any store of any process may adopt it.
  void Disown(std::uint32_t slot) noexcept;
  // Grows whenever a block becomes nobody's.
  [[nodiscard]] std::uint64_t Orphans() const noexcept {
    return memory_.shared->orphans.load(std::memory_order_relaxed);
  }

  // ---- the dead, and leaving ----
  // Erases what the dead process of that place has left. May be called again, and by several, if
  // a place is erased by one at a time. With this process's own place: for leaving; its pins are
  // gone by then, and dirty blocks are left for others.
  void EraseTraces(std::uint32_t place) noexcept;

  // ---- sleeping until a shard has landed, or will not, or a slot has become free ----
  // Begins to watch and returns the event's number: look at what you wait for *after* that. Then
  // sleep: returns when the number is another, or at `until`, or for no reason. Then end the watch.
  // Several threads may watch at once.
  [[nodiscard]] std::uint32_t BeginWatch() noexcept;
  void Sleep(std::uint32_t number, TimePoint until) noexcept;
  void EndWatch() noexcept;
  // Wakes all who watch, in all processes. Every change that they may wait for does this itself.
  void Announce() noexcept;

  [[nodiscard]] std::uint32_t slot_count() const noexcept { return memory_.slot_count(); }
  [[nodiscard]] std::uint32_t place() const noexcept { return place_; }
  [[nodiscard]] const RingMemory& memory() const noexcept { return memory_; }

  // How many slots are in each state. A walk over all slots: for people.
  [[nodiscard]] std::array<std::uint32_t, kSlotStates> CountStates() const noexcept;

 private:
  friend class Pin;

  [[nodiscard]] SlotWord Load(std::uint32_t slot) const noexcept {
    return SlotWord(memory_.slots[slot].word.load(std::memory_order_seq_cst));
  }
  // The one place where a word changes. False: it is no longer `from`, which then says what it is.
  bool Swap(std::uint32_t slot, SlotWord& from, SlotWord to, Transition transition) noexcept;
  [[nodiscard]] BlockId IdOf(std::uint32_t slot) const noexcept;
  // Follows a hint. True: the slot holds the block, or is proposed for it, in a life with that
  // word.
  [[nodiscard]] bool Holds(Hint hint, const BlockId& block, SlotWord* word) const noexcept;

  [[nodiscard]] Pin TryPin(std::uint32_t slot, SlotWord word) noexcept;
  void PinOwn(std::uint32_t slot) noexcept;
  void Unpin(std::uint32_t slot) noexcept;
  [[nodiscard]] bool IsPinned(std::uint32_t slot) const noexcept;
  void SetBit(std::uint32_t slot) noexcept;
  void ClearBit(std::uint32_t slot, std::uint32_t place) noexcept;

  // A slot in a new life, claimed by us; its old block's hint is gone.
  [[nodiscard]] std::optional<std::uint32_t> TakeSlot() noexcept;
  [[nodiscard]] bool TryTake(std::uint32_t slot, bool desperate) noexcept;
  [[nodiscard]] bool Evict(std::uint32_t slot, SlotWord word) noexcept;
  void Empty(std::uint32_t slot) noexcept;
  // Looks for the block elsewhere; beats what is only proposed. Null: nobody else has decided.
  [[nodiscard]] std::optional<std::pair<std::uint32_t, SlotWord>> FindRival(
      const BlockId& block, std::uint64_t hash, std::uint32_t mine) noexcept;
  // If every shard has landed, makes the block whole. True: this call did.
  bool Complete(std::uint32_t slot) noexcept;
  void EraseShards(std::uint32_t slot, std::uint8_t owner) noexcept;

  static constexpr std::size_t kStripes = 64;
  struct alignas(64) Stripe {
    Mutex mutex;
  };

  const RingMemory memory_;
  HintIndex index_;
  const std::uint32_t place_;
  const std::uint8_t me_;  // place + 1: owner of slots and shards
  const std::uint64_t incomplete_age_ns_;
  Mutex taking_;
  // A sweep that found nothing is not repeated before something has changed, or a while has passed.
  std::uint32_t fruitless_event_ UCMSTORE_GUARDED_BY(taking_) = 0;
  TimePoint fruitless_until_ UCMSTORE_GUARDED_BY(taking_);
  Mutex watching_;
  std::uint32_t watches_ UCMSTORE_GUARDED_BY(watching_) = 0;
  std::array<Stripe, kStripes> stripes_;
  std::unique_ptr<std::uint32_t[]> pins_;  // this process's, by slot; guarded by its stripe
};

template <typename Each>
void Ring::AdoptDirty(Each&& flush) {
  for (std::uint32_t slot = 0; slot < slot_count(); ++slot) {
    SlotWord word = Load(slot);
    if (word.state() == SlotState::kDirty && word.owner() == SlotWord::kNobody) {
      (void)Swap(slot, word, word.WithState(SlotState::kDirty, me_), Transition::kAdopt);
      word = Load(slot);
    }
    if (word.state() == SlotState::kDirty && word.owner() == me_) flush(slot);
  }
}

}  // namespace ucmstore
