// SPDX-License-Identifier: Apache-2.0
//
// What happens to the shards of a slot, writing back, the traces of the dead, and sleeping.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "shm/boot_clock.h"
#include "shm/ring.h"

namespace ucmstore {
namespace {

// A futex that several processes share: not FUTEX_PRIVATE_FLAG.
long Futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* timeout) noexcept {
  static_assert(sizeof(word) == sizeof(std::uint32_t));
  return ::syscall(SYS_futex, &word, operation, value, timeout, nullptr, 0);
}

}  // namespace

// ---- shards -------------------------------------------------------------------------------------

bool Ring::BeginShard(const Pin& pin, std::uint32_t shard) noexcept {
  PausePoint(Step::kShard, Moment::kBefore, pin.slot());
  std::uint8_t state = kShardEmpty;
  if (!memory_.StatesOf(pin.slot())[shard].compare_exchange_strong(state, me_,
                                                                   std::memory_order_seq_cst)) {
    return false;
  }
  memory_.slots[pin.slot()].touched_ns.store(BootClockNs(), std::memory_order_relaxed);
  PausePoint(Step::kShard, Moment::kAfter, pin.slot());
  return true;
}

bool Ring::LandShard(const Pin& pin, std::uint32_t shard, std::uint32_t length) noexcept {
  memory_.LengthOf(pin.slot(), shard).store(length, std::memory_order_relaxed);
  PausePoint(Step::kLand, Moment::kBefore, pin.slot());
  memory_.StatesOf(pin.slot())[shard].store(kShardLanded, std::memory_order_seq_cst);
  PausePoint(Step::kLand, Moment::kAfter, pin.slot());
  const bool completed = Complete(pin.slot());
  Announce();
  return completed;
}

void Ring::AbandonShard(const Pin& pin, std::uint32_t shard) noexcept {
  memory_.StatesOf(pin.slot())[shard].store(kShardEmpty, std::memory_order_seq_cst);
  Announce();
}

bool Ring::Complete(std::uint32_t slot) noexcept {
  SlotWord word = Load(slot);
  for (;;) {
    // The word first: if it has not changed when it is swapped, the states were of its life.
    PausePoint(Step::kLook, Moment::kBefore, slot);
    for (const auto& state : memory_.StatesOf(slot)) {
      if (state.load(std::memory_order_seq_cst) != kShardLanded) return false;
    }
    if (word.state() == SlotState::kFilling) {
      if (Swap(slot, word, word.WithState(SlotState::kClean, SlotWord::kNobody),
               Transition::kFilled)) {
        return true;
      }
    } else if (word.state() == SlotState::kAssembling) {
      if (Swap(slot, word, word.WithState(SlotState::kDirty, me_), Transition::kAssembled)) {
        return true;
      }
    } else {
      return false;
    }
  }
}

bool Ring::IsBare(const Pin& pin) const noexcept {
  const auto states = memory_.StatesOf(pin.slot());
  return std::ranges::all_of(states, [](const auto& state) {
    return state.load(std::memory_order_seq_cst) == kShardEmpty;
  });
}

void Ring::Discard(Pin pin) noexcept {
  const std::uint32_t slot = pin.slot();
  const std::uint64_t generation = pin.generation();
  pin.Release();
  {
    const MutexLock lock(taking_);
    const SlotWord word = Load(slot);
    const bool incomplete =
        word.state() == SlotState::kFilling || word.state() == SlotState::kAssembling;
    if (word.generation() != generation || !incomplete || word.draining() || IsPinned(slot)) return;
    if (!Evict(slot, word)) return;
    Empty(slot);
  }
  Announce();
}

// ---- writing back -------------------------------------------------------------------------------

std::optional<BlockId> Ring::BeginFlush(std::uint32_t slot) noexcept {
  SlotWord word = Load(slot);
  while (word.state() == SlotState::kDirty &&
         (word.owner() == me_ || word.owner() == SlotWord::kNobody)) {
    if (Swap(slot, word, word.WithState(SlotState::kFlushing, me_), Transition::kFlush)) {
      return IdOf(slot);
    }
  }
  return std::nullopt;
}

void Ring::EndFlush(std::uint32_t slot, Flush how) noexcept {
  SlotWord word = Load(slot);
  while (word.state() == SlotState::kFlushing && word.owner() == me_) {
    const bool swapped =
        how == Flush::kFailed
            ? Swap(slot, word, word.WithState(SlotState::kDirty, me_), Transition::kFlushFailed)
            : Swap(slot, word, word.WithState(SlotState::kClean, SlotWord::kNobody),
                   how == Flush::kArrived ? Transition::kFlushed : Transition::kForsake);
    if (swapped) break;
  }
  Announce();
}

void Ring::Disown(std::uint32_t slot) noexcept {
  SlotWord word = Load(slot);
  while (word.state() == SlotState::kDirty && word.owner() == me_) {
    if (Swap(slot, word, word.WithState(SlotState::kDirty, SlotWord::kNobody),
             Transition::kLeave)) {
      memory_.shared->orphans.fetch_add(1, std::memory_order_relaxed);
    }
  }
}

bool Ring::Rewrite(const Pin& pin) noexcept {
  SlotWord word = Load(pin.slot());
  while (word.state() == SlotState::kClean) {
    if (word.draining()) {  // an evictor that has not seen the pin yet, and may have stopped
      (void)Swap(pin.slot(), word, word.NotDraining(), Transition::kCallOff);
      word = Load(pin.slot());
      continue;
    }
    if (Swap(pin.slot(), word, word.WithState(SlotState::kDirty, me_), Transition::kRewrite)) {
      return true;
    }
  }
  return false;
}

// ---- the dead -----------------------------------------------------------------------------------

void Ring::EraseShards(std::uint32_t slot, std::uint8_t owner) noexcept {
  for (auto& state : memory_.StatesOf(slot)) {
    std::uint8_t his = owner;
    (void)state.compare_exchange_strong(his, kShardEmpty, std::memory_order_seq_cst);
  }
}

void Ring::EraseTraces(std::uint32_t place) noexcept {
  const auto owner = static_cast<std::uint8_t>(place + 1);
  const bool leaves = place == place_;
  for (std::uint32_t slot = 0; slot < slot_count(); ++slot) {
    SlotWord word = Load(slot);
    while (word.owner() == owner) {
      const SlotState state = word.state();
      if (word.draining()) {
        if (Swap(slot, word, word.NotDraining(), Transition::kCallOff)) break;
      } else if (state == SlotState::kClaimed || state == SlotState::kProposed) {
        if (Swap(slot, word, word.WithState(SlotState::kEmpty, SlotWord::kNobody),
                 Transition::kErase)) {
          break;
        }
      } else if (leaves) {
        if (Swap(slot, word, word.WithState(SlotState::kDirty, SlotWord::kNobody),
                 Transition::kLeave)) {
          memory_.shared->orphans.fetch_add(1, std::memory_order_relaxed);
          break;
        }
      } else if (Swap(slot, word, word.WithState(SlotState::kDirty, me_), Transition::kAdopt)) {
        break;
      }
    }
    // Shards are copied under a pin, and the pin goes last: who dies in here can be repeated.
    const auto& pins = memory_.slots[slot].pins[place / 64];
    if ((pins.load(std::memory_order_seq_cst) >> (place % 64) & 1) == 0) continue;
    EraseShards(slot, owner);
    (void)Complete(slot);
    ClearBit(slot, place);
  }
  memory_.shared->watchers[place / 64].fetch_and(~(1ULL << (place % 64)),
                                                 std::memory_order_seq_cst);
  Announce();
}

std::array<std::uint32_t, kSlotStates> Ring::CountStates() const noexcept {
  std::array<std::uint32_t, kSlotStates> counts{};
  for (std::uint32_t slot = 0; slot < slot_count(); ++slot) {
    ++counts[static_cast<std::size_t>(Load(slot).state()) % kSlotStates];
  }
  return counts;
}

// ---- sleeping -----------------------------------------------------------------------------------

void Ring::Announce() noexcept {
  // Sequentially consistent, as is BeginWatch: either the watcher sees the new number, or we see
  // the watcher. The bit of a watcher that died only costs a system call.
  RingShared& shared = *memory_.shared;
  shared.event.fetch_add(1, std::memory_order_seq_cst);
  if ((shared.watchers[0].load(std::memory_order_seq_cst) |
       shared.watchers[1].load(std::memory_order_seq_cst)) != 0) {
    (void)Futex(shared.event, FUTEX_WAKE, INT_MAX, nullptr);
  }
}

std::uint32_t Ring::BeginWatch() noexcept {
  const MutexLock lock(watching_);
  if (watches_++ == 0) {
    memory_.shared->watchers[place_ / 64].fetch_or(1ULL << (place_ % 64),
                                                   std::memory_order_seq_cst);
  }
  return memory_.shared->event.load(std::memory_order_seq_cst);
}

void Ring::Sleep(std::uint32_t number, TimePoint until) noexcept {
  const auto rest = until - std::chrono::steady_clock::now();
  if (rest <= rest.zero()) return;
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(rest).count();
  const timespec timeout{.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
  (void)Futex(memory_.shared->event, FUTEX_WAIT, number, &timeout);
}

void Ring::EndWatch() noexcept {
  const MutexLock lock(watching_);
  if (--watches_ > 0) return;
  memory_.shared->watchers[place_ / 64].fetch_and(~(1ULL << (place_ % 64)),
                                                  std::memory_order_seq_cst);
}

}  // namespace ucmstore
