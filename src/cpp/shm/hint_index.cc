// SPDX-License-Identifier: Apache-2.0
//
// Putting hints into buckets and taking them out.
#include "shm/hint_index.h"

#include "shm/transitions.h"

namespace ucmstore {

bool HintIndex::IsStale(Hint hint) const noexcept {
  if (hint.slot() >= memory_.slot_count()) return true;  // never written by this code
  const SlotWord word(memory_.slots[hint.slot()].word.load(std::memory_order_seq_cst));
  return !hint.IsOf(word) || word.state() == SlotState::kEmpty;
}

bool HintIndex::Place(Bucket& bucket, Hint hint) noexcept {
  for (std::atomic<std::uint64_t>& entry : bucket.hints) {
    std::uint64_t free = 0;
    if (entry.load(std::memory_order_relaxed) == 0 &&
        entry.compare_exchange_strong(free, hint.bits(), std::memory_order_seq_cst)) {
      return true;
    }
  }
  for (std::atomic<std::uint64_t>& entry : bucket.hints) {
    std::uint64_t old = entry.load(std::memory_order_seq_cst);
    if (old != 0 && !IsStale(Hint(old))) continue;
    PausePoint(Step::kDrop, Moment::kBefore, hint.slot());
    if (entry.compare_exchange_strong(old, hint.bits(), std::memory_order_seq_cst)) return true;
  }
  return false;
}

bool HintIndex::Insert(std::uint64_t hash, std::uint32_t slot, std::uint64_t generation) {
  const Hint hint(slot, hash, generation);
  PausePoint(Step::kHint, Moment::kBefore, slot);
  bool placed = Place(Home(hash), hint);
  if (!placed) {
    Home(hash).overflow.fetch_add(1, std::memory_order_seq_cst);
    memory_.slots[slot].overflow_of.store(generation, std::memory_order_seq_cst);
    for (std::uint32_t i = 1; i < reach_ && !placed; ++i) {
      placed = Place(memory_.buckets[(hash + i) & mask_], hint);
    }
    if (!placed) LowerOverflow(hash, slot, generation);
  }
  PausePoint(Step::kHint, Moment::kAfter, slot);
  return placed;
}

void HintIndex::Remove(std::uint64_t hash, std::uint32_t slot, std::uint64_t generation) noexcept {
  const Hint hint(slot, hash, generation);
  PausePoint(Step::kUnhint, Moment::kBefore, slot);
  for (std::uint32_t i = 0; i < reach_; ++i) {
    for (std::atomic<std::uint64_t>& entry : memory_.buckets[(hash + i) & mask_].hints) {
      std::uint64_t old = hint.bits();
      if (entry.load(std::memory_order_relaxed) != old) continue;
      // Whoever needed the place may have been quicker.
      if (!entry.compare_exchange_strong(old, 0, std::memory_order_seq_cst)) continue;
      if (i > 0) LowerOverflow(hash, slot, generation);
      PausePoint(Step::kUnhint, Moment::kAfter, slot);
      return;
    }
    if (i == 0 && Home(hash).overflow.load(std::memory_order_seq_cst) == 0) return;
  }
  LowerOverflow(hash, slot, generation);  // somebody has dropped it
}

void HintIndex::LowerOverflow(std::uint64_t hash, std::uint32_t slot,
                              std::uint64_t generation) noexcept {
  if (memory_.slots[slot].overflow_of.compare_exchange_strong(generation, 0,
                                                              std::memory_order_seq_cst)) {
    Home(hash).overflow.fetch_sub(1, std::memory_order_seq_cst);
  }
}

void HintIndex::Settle(std::uint32_t slot, const BlockId& last) noexcept {
  const std::uint64_t left = memory_.slots[slot].overflow_of.load(std::memory_order_seq_cst);
  if (left != 0) LowerOverflow(Hash(last), slot, left);
}

}  // namespace ucmstore
