// SPDX-License-Identifier: Apache-2.0
//
// SlotWord: the 64 bits that say everything about the life of a slot of the ring. Every change of
// a slot's life is one compare-and-swap of this word, by the table in transitions.h.
//
//   63                    24 23     16 15       7 6      5      4     3     0
//   +-----------------------+---------+----------+--------+---------+--------+
//   | generation            | owner   | unused   | chance | draining| state  |
//   +-----------------------+---------+----------+--------+---------+--------+
//
// generation: grows by one each time the slot is claimed, so a word never comes back and a hint
//   (bucket.h) to an earlier life is recognised.
// owner: the place (process_table.h) + 1 of the process that the present state belongs to; 0: no
//   one. While `draining` is set: the evictor.
// chance: CLOCK's count; a touch adds one, the hand takes one.
// draining: an evictor looks at the pins. The content is whole and anybody may clear the flag, and
//   with it call the eviction off.
//
// A pure value; thread-safe.
#pragma once

#include <cstdint>

namespace ucmstore {

enum class SlotState : std::uint8_t {
  kEmpty = 0,       // holds nothing
  kClaimed = 1,     // being made ready by its owner; nobody else looks at it
  kProposed = 2,    // has an id and a hint, but another slot may yet get the block instead
  kFilling = 3,     // of a block that is below: some shards are here
  kAssembling = 4,  // of a block that is not visible yet: some shards have been dumped
  kClean = 5,       // whole, and below as well
  kDirty = 6,       // whole and visible, not yet below; its owner sees to that
  kFlushing = 7,    // as dirty, on its way below
};
inline constexpr std::uint32_t kSlotStates = 8;

class SlotWord {
 public:
  static constexpr std::uint32_t kMaxChance = 3;
  static constexpr std::uint8_t kNobody = 0;

  constexpr SlotWord() = default;
  constexpr explicit SlotWord(std::uint64_t bits) noexcept : bits_(bits) {}
  constexpr SlotWord(std::uint64_t generation, SlotState state, std::uint8_t owner) noexcept
      : bits_((generation << kGenerationShift) | (std::uint64_t{owner} << kOwnerShift) |
              static_cast<std::uint64_t>(state)) {}

  [[nodiscard]] constexpr std::uint64_t bits() const noexcept { return bits_; }
  [[nodiscard]] constexpr std::uint64_t generation() const noexcept {
    return bits_ >> kGenerationShift;
  }
  [[nodiscard]] constexpr SlotState state() const noexcept {
    return static_cast<SlotState>(bits_ & kStateMask);
  }
  [[nodiscard]] constexpr std::uint8_t owner() const noexcept {
    return static_cast<std::uint8_t>(bits_ >> kOwnerShift);
  }
  [[nodiscard]] constexpr std::uint32_t chance() const noexcept {
    return static_cast<std::uint32_t>((bits_ & kChanceMask) >> kChanceShift);
  }
  [[nodiscard]] constexpr bool draining() const noexcept { return (bits_ & kDrainingBit) != 0; }

  // Whole: a load finds every shard here. A draining slot is whole, too: see ClearDraining.
  [[nodiscard]] constexpr bool complete() const noexcept { return state() >= SlotState::kClean; }
  // Holds a block that some process has decided to keep here.
  [[nodiscard]] constexpr bool decided() const noexcept { return state() >= SlotState::kFilling; }
  [[nodiscard]] constexpr bool evictable() const noexcept {
    return state() == SlotState::kClean || state() == SlotState::kFilling;
  }

  [[nodiscard]] constexpr SlotWord WithState(SlotState state, std::uint8_t owner) const noexcept {
    return SlotWord((bits_ & ~(kStateMask | kOwnerMask | kDrainingBit)) |
                    static_cast<std::uint64_t>(state) | (std::uint64_t{owner} << kOwnerShift));
  }
  [[nodiscard]] constexpr SlotWord WithChance(std::uint32_t chance) const noexcept {
    return SlotWord((bits_ & ~kChanceMask) | (std::uint64_t{chance} << kChanceShift));
  }
  [[nodiscard]] constexpr SlotWord Draining(std::uint8_t evictor) const noexcept {
    return SlotWord((bits_ & ~kOwnerMask) | kDrainingBit | (std::uint64_t{evictor} << kOwnerShift));
  }
  [[nodiscard]] constexpr SlotWord NotDraining() const noexcept {
    return SlotWord(bits_ & ~(kDrainingBit | kOwnerMask));
  }
  // The next life, in the hands of `owner`.
  [[nodiscard]] constexpr SlotWord NextLife(std::uint8_t owner) const noexcept {
    return {generation() + 1, SlotState::kClaimed, owner};
  }

  friend constexpr bool operator==(SlotWord, SlotWord) = default;

 private:
  static constexpr std::uint64_t kStateMask = 0xF;
  static constexpr std::uint64_t kDrainingBit = 1ULL << 4;
  static constexpr int kChanceShift = 5;
  static constexpr std::uint64_t kChanceMask = 3ULL << kChanceShift;
  static constexpr int kOwnerShift = 16;
  static constexpr std::uint64_t kOwnerMask = 0xFFULL << kOwnerShift;
  static constexpr int kGenerationShift = 24;  // 40 bits

  std::uint64_t bits_ = 0;
};

static_assert(sizeof(SlotWord) == 8);

}  // namespace ucmstore
