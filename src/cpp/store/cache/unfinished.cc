// SPDX-License-Identifier: Apache-2.0
//
// Keeping and revising the records. What is true is in the ring; a record says what to look for.
#include "store/cache/unfinished.h"

#include <algorithm>
#include <iterator>

namespace ucmstore {

bool Unfinished::Revise(Records::iterator record) {
  const SlotWord word = ring_.WordAt(record->slot);
  const bool same_life = word.generation() == record->generation;
  if (same_life && word.state() == SlotState::kAssembling) return true;
  live_by_id_.erase(record->block);
  if (same_life && word.complete()) {
    live_.erase(record);
    return false;
  }
  given_up_.Add();
  record->touched = clock_.Now();
  tombstones_.splice(tombstones_.end(), live_, record);
  tombstones_by_id_[record->block] = record;
  if (tombstones_.size() > kMaxTombstones) {
    tombstones_by_id_.erase(tombstones_.front().block);
    tombstones_.pop_front();
  }
  return false;
}

void Unfinished::GiveUp(const Record& record) {
  Pin pin = ring_.Find(record.block);
  if (pin && pin.slot() == record.slot && pin.generation() == record.generation) {
    ring_.Discard(std::move(pin));  // nothing, if somebody is at it
  }
}

bool Unfinished::AreLate(const BlockId& block, std::span<const std::uint32_t> indexes) {
  const MutexLock lock(mutex_);
  if (const auto live = live_by_id_.find(block); live != live_by_id_.end()) {
    if (Revise(live->second)) return false;
  }
  const auto found = tombstones_by_id_.find(block);
  if (found == tombstones_by_id_.end()) return false;
  std::vector<bool>& heard = found->second->heard;
  const bool anew = std::ranges::any_of(indexes, [&](std::uint32_t i) { return heard[i]; });
  for (const std::uint32_t i : indexes) heard[i] = true;
  const bool all = std::ranges::all_of(heard, [](bool one) { return one; });
  if (anew || all) {
    tombstones_.erase(found->second);
    tombstones_by_id_.erase(found);
  }
  return !anew;
}

void Unfinished::Note(const BlockId& block, const Pin& pin,
                      std::span<const std::uint32_t> indexes) {
  const MutexLock lock(mutex_);
  auto found = live_by_id_.find(block);
  if (found != live_by_id_.end() && found->second->generation != pin.generation()) {
    (void)Revise(found->second);
    found = live_by_id_.find(block);
  }
  if (found == live_by_id_.end()) {
    live_.push_back({.block = block,
                     .slot = pin.slot(),
                     .generation = pin.generation(),
                     .touched = {},
                     .heard = std::vector<bool>(limits_.shards_per_block)});
    found = live_by_id_.emplace(block, std::prev(live_.end())).first;
  }
  const auto record = found->second;
  for (const std::uint32_t i : indexes) record->heard[i] = true;
  record->touched = clock_.Now();
  live_.splice(live_.end(), live_, record);

  for (auto oldest = live_.begin(); live_.size() > limits_.max_blocks && oldest != record;) {
    const auto next = std::next(oldest);
    GiveUp(*oldest);
    (void)Revise(oldest);
    oldest = next;
  }
}

void Unfinished::Forget(const BlockId& block) {
  const MutexLock lock(mutex_);
  if (const auto live = live_by_id_.find(block); live != live_by_id_.end()) {
    live_.erase(live->second);
    live_by_id_.erase(live);
  }
  if (const auto found = tombstones_by_id_.find(block); found != tombstones_by_id_.end()) {
    tombstones_.erase(found->second);
    tombstones_by_id_.erase(found);
  }
}

bool Unfinished::Expire() {
  const MutexLock lock(mutex_);
  const TimePoint now = clock_.Now();
  for (auto record = live_.begin(); record != live_.end();) {
    const auto next = std::next(record);
    if (now - record->touched >= limits_.max_age) GiveUp(*record);
    (void)Revise(record);
    record = next;
  }
  while (!tombstones_.empty() &&
         now - tombstones_.front().touched >= kTombstoneAges * limits_.max_age) {
    tombstones_by_id_.erase(tombstones_.front().block);
    tombstones_.pop_front();
  }
  return !live_.empty() || !tombstones_.empty();
}

void Unfinished::Clear() {
  const MutexLock lock(mutex_);
  for (const Record& record : live_) GiveUp(record);
  live_.clear();
  live_by_id_.clear();
  tombstones_.clear();
  tombstones_by_id_.clear();
}

std::size_t Unfinished::Incomplete() const {
  const MutexLock lock(mutex_);
  return static_cast<std::size_t>(std::ranges::count_if(live_, [this](const Record& record) {
    const SlotWord word = ring_.WordAt(record.slot);
    return word.generation() == record.generation && word.state() == SlotState::kAssembling;
  }));
}

}  // namespace ucmstore
