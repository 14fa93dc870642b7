// SPDX-License-Identifier: Apache-2.0
//
// Every change of a slot's life that is legal, as data: ring.cc swaps a slot's word only by a row
// of this table, DESIGN.md draws it, and tests walk it. Before and after each swap there is a pause
// point where a test can stop an actor, or let its process die.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "shm/slot_word.h"

namespace ucmstore {

enum class Transition : std::uint8_t {
  kClaim,             // an empty slot becomes somebody's
  kPass,              // the hand takes a chance
  kTouch,             // a use gives one
  kDrain,             // the hand wants the slot: who has pinned it?
  kCallOff,           // it is pinned, or somebody wants it: it stays
  kEvict,             // nobody has: the next life begins
  kPropose,           // the slot has an id and is about to be seen
  kBeat,              // another slot gets the block
  kGiveUp,            // the claimer has no use for it
  kDecideFilling,     // the block is kept here, to be filled from below
  kDecideAssembling,  // the block is kept here, to be assembled from dumps
  kFilled,            // the last shard came from below
  kAssembled,         // the last shard was dumped: the block is visible
  kFlush,             // on its way below
  kFlushed,           // it has arrived
  kFlushFailed,       // it has not: again later
  kForsake,           // given up: it will not arrive
  kRewrite,           // it is gone below, and dumped again
  kAdopt,             // the owner is dead, or has left: its dirty block is somebody else's duty
  kLeave,             // the owner leaves before it could flush
  kErase,             // a dead claimer's slot is empty again
};
inline constexpr std::size_t kTransitions = 21;

// Who makes it. (The claimer is whoever brings a block: a filler or a dumper.)
enum class Actor : std::uint8_t { kClaimer, kEvictor, kUser, kFlusher, kReaper };

struct TransitionRow {
  Transition transition;
  std::string_view name;
  Actor actor;
  std::uint32_t from;  // a bit for each state that it may begin in
  bool from_draining;
  bool to_draining;
  // The state it ends in; kSameState: the one it began in.
  std::uint8_t to;
};
inline constexpr std::uint8_t kSameState = 0xFF;

namespace transition_detail {
constexpr std::uint32_t In(auto... states) { return (... | (1U << static_cast<unsigned>(states))); }
constexpr std::uint8_t To(SlotState state) { return static_cast<std::uint8_t>(state); }
}  // namespace transition_detail

inline constexpr std::array<TransitionRow, kTransitions> kTransitionTable = [] {
  using enum Transition;
  using enum SlotState;
  using transition_detail::In;
  using transition_detail::To;
  const std::uint32_t drainable = In(kClean, kFilling, kAssembling);
  const std::uint32_t decided = In(kFilling, kAssembling, kClean, kDirty, kFlushing);
  return std::array<TransitionRow, kTransitions>{{
      {kClaim, "claim", Actor::kClaimer, In(kEmpty), false, false, To(kClaimed)},
      {kPass, "pass", Actor::kEvictor, decided, false, false, kSameState},
      {kTouch, "touch", Actor::kUser, decided, false, false, kSameState},
      {kDrain, "drain", Actor::kEvictor, drainable, false, true, kSameState},
      {kCallOff, "call off", Actor::kUser, drainable, true, false, kSameState},
      {kEvict, "evict", Actor::kEvictor, drainable, true, false, To(kClaimed)},
      {kPropose, "propose", Actor::kClaimer, In(kClaimed), false, false, To(kProposed)},
      {kBeat, "beat", Actor::kClaimer, In(kProposed), false, false, To(kEmpty)},
      {kGiveUp, "give up", Actor::kClaimer, In(kClaimed, kProposed), false, false, To(kEmpty)},
      {kDecideFilling, "decide filling", Actor::kClaimer, In(kProposed), false, false,
       To(kFilling)},
      {kDecideAssembling, "decide assembling", Actor::kClaimer, In(kProposed), false, false,
       To(kAssembling)},
      {kFilled, "filled", Actor::kUser, In(kFilling), false, false, To(kClean)},
      {kAssembled, "assembled", Actor::kUser, In(kAssembling), false, false, To(kDirty)},
      {kFlush, "flush", Actor::kFlusher, In(kDirty), false, false, To(kFlushing)},
      {kFlushed, "flushed", Actor::kFlusher, In(kFlushing), false, false, To(kClean)},
      {kFlushFailed, "flush failed", Actor::kFlusher, In(kFlushing), false, false, To(kDirty)},
      {kForsake, "forsake", Actor::kFlusher, In(kFlushing), false, false, To(kClean)},
      {kRewrite, "rewrite", Actor::kUser, In(kClean), false, false, To(kDirty)},
      {kAdopt, "adopt", Actor::kReaper, In(kDirty, kFlushing), false, false, To(kDirty)},
      {kLeave, "leave", Actor::kFlusher, In(kDirty, kFlushing), false, false, To(kDirty)},
      {kErase, "erase", Actor::kReaper, In(kClaimed, kProposed), false, false, To(kEmpty)},
  }};
}();

[[nodiscard]] constexpr const TransitionRow& RowOf(Transition transition) noexcept {
  return kTransitionTable[static_cast<std::size_t>(transition)];
}

// True if the table allows this swap. kFilled and kAssembled may also begin while draining: the
// last shard landed under a pin, so the eviction is off.
[[nodiscard]] constexpr bool IsLegal(Transition transition, SlotWord from, SlotWord to) noexcept {
  const TransitionRow& row = RowOf(transition);
  const bool lands = transition == Transition::kFilled || transition == Transition::kAssembled;
  const auto wanted = row.to == kSameState ? from.state() : static_cast<SlotState>(row.to);
  const bool next_life = wanted == SlotState::kClaimed;
  return (row.from >> static_cast<unsigned>(from.state()) & 1U) != 0 &&
         (from.draining() == row.from_draining || lands) && to.draining() == row.to_draining &&
         to.state() == wanted && to.generation() == from.generation() + (next_life ? 1 : 0);
}

// ---- pause points -------------------------------------------------------------------------------

enum class Moment : std::uint8_t { kBefore, kAfter };

// Called around each swap, and around the other steps that a death may fall between. Null, but in
// tests. It may block, or never return.
enum class Step : std::uint8_t {
  kSwap,
  kPin,
  kUnpin,
  kHint,
  kUnhint,
  kDrop,  // of a stale hint, before it
  kShard,
  kLand,
  kLook,  // between two looks of which the first must come first
};
struct Pause {
  Step step;
  Transition transition;  // of kSwap
  Moment moment;
  std::uint32_t slot;
};
using PauseHook = void (*)(const Pause& pause);
inline constinit std::atomic<PauseHook> pause_hook{nullptr};

inline void PausePoint(Step step, Moment moment, std::uint32_t slot,
                       Transition transition = Transition::kClaim) {
  const PauseHook hook = pause_hook.load(std::memory_order_acquire);
  if (hook != nullptr) [[unlikely]] {
    hook({.step = step, .transition = transition, .moment = moment, .slot = slot});
  }
}

}  // namespace ucmstore
