// SPDX-License-Identifier: Apache-2.0
//
// What the actors of a scenario do, and how the state of the ring is judged.
#include <algorithm>
#include <cstring>

#include "shm/ring_explorer.h"

namespace ucmstore::test {
namespace {

constexpr std::uint32_t kJanitor = kMaxProcesses - 1;
constexpr std::size_t kNobody = SIZE_MAX;
constexpr std::uint64_t kOthers = 1'000'000;  // numbers of ids that no scenario uses

// What stands at both ends of a shard.
std::uint64_t Stamp(const BlockId& block, std::uint32_t shard) {
  return HintIndex::Hash(block) * 31 + shard + 1;
}
void Write(std::byte* data, std::size_t at, std::uint64_t stamp) {
  std::memcpy(data + at * sizeof(stamp), &stamp, sizeof(stamp));
}
bool IsRight(const std::byte* data, std::uint64_t stamp) {
  std::uint64_t read[2];
  std::memcpy(read, data, sizeof(read));
  return read[0] == stamp && read[1] == stamp;
}

void BringAll(Ring& ring, const Pin& pin, const BlockId& block) {
  for (std::uint32_t shard = 0; shard < ring.memory().shards(); ++shard) {
    if (!ring.BeginShard(pin, shard)) continue;
    for (const std::size_t half : {0UL, 1UL})
      Write(ring.DataOf(pin, shard), half, Stamp(block, shard));
    (void)ring.LandShard(pin, shard, sizeof(std::uint64_t) * 2);
  }
}

}  // namespace

// ---- held ---------------------------------------------------------------------------------------

Held::Held(World* world, std::size_t actor, Pin pin, const BlockId& block) : pin_(std::move(pin)) {
  if (!pin_) return;
  world_ = world;
  number_ = world->next_hold_++;
  world->holds_.push_back({.number = number_,
                           .actor = actor,
                           .slot = pin_.slot(),
                           .generation = pin_.generation(),
                           .block = block});
}

Pin Held::Take() noexcept {
  if (world_ != nullptr) {
    std::erase_if(world_->holds_, [this](const auto& hold) { return hold.number == number_; });
    world_ = nullptr;
  }
  return std::move(pin_);
}

// ---- player -------------------------------------------------------------------------------------

void Player::Rest() { PausePoint(Step::kLand, Moment::kBefore, 0); }

void Player::Fail(std::string what) { world_->explorer().Fail(std::move(what)); }

Held Player::Find(const BlockId& block) { return {world_, number_, ring_->Find(block), block}; }

std::pair<Held, bool> Player::Claim(const BlockId& block, Ring::Purpose purpose) {
  Ring::Claim claim = ring_->ClaimFor(block, purpose);
  return {Held(world_, number_, std::move(claim.pin), block), claim.made};
}

bool Player::BringShard(const Held& held, std::uint32_t shard) {
  if (!ring_->BeginShard(held.pin(), shard)) return false;
  const std::uint64_t stamp = Stamp(ring_->BlockOf(held.pin()), shard);
  Write(ring_->DataOf(held.pin(), shard), 0, stamp);
  Rest();
  Write(ring_->DataOf(held.pin(), shard), 1, stamp);
  return ring_->LandShard(held.pin(), shard, sizeof(stamp) * 2);
}

bool Player::Bring(const Held& held) {
  bool whole = false;
  for (std::uint32_t shard = 0; shard < ring_->memory().shards(); ++shard) {
    whole = BringShard(held, shard) || whole;
  }
  return whole;
}

bool Player::Load(const BlockId& block) {
  const Held held = Find(block);
  if (!held || !ring_->WordOf(held.pin()).complete()) return false;
  for (const int look : {0, 1}) {
    for (std::uint32_t shard = 0; shard < ring_->memory().shards(); ++shard) {
      if (!IsRight(ring_->DataOf(held.pin(), shard), Stamp(block, shard))) {
        Fail("a load read wrong bytes");
      }
    }
    if (look == 0) Rest();
  }
  return true;
}

bool Player::Put(const BlockId& block, Ring::Purpose purpose) {
  const auto [held, made] = Claim(block, purpose);
  if (!held) return false;
  return Bring(held);
}

void Player::Reap() {
  std::size_t next = 0;  // more may die meanwhile
  while (next < world_->dead_.size()) {
    const std::uint32_t place = world_->dead_[next++];
    if (!world_->Lock(place, number_)) continue;
    ring_->EraseTraces(place);
    world_->reaped_.at(place) = true;
    world_->reapers_.at(place) = kNobody;
  }
  ring_->AdoptDirty([this](std::uint32_t slot) {
    if (ring_->BeginFlush(slot)) ring_->EndFlush(slot, Ring::Flush::kArrived);
  });
}

// ---- world --------------------------------------------------------------------------------------

void World::Reset() {
  arena_.Reset();
  janitor_ = arena_.Join(kJanitor);
  holds_.clear();
  dead_.clear();
  reapers_.fill(kNobody);
  reaped_.fill(false);
  dirty_.assign(arena_.memory().slot_count(), 0);
  std::fill(std::begin(tally), std::end(tally), 0);
}

bool World::Lock(std::uint32_t place, std::size_t actor) {
  if (reaped_.at(place) || reapers_.at(place) != kNobody) return false;
  reapers_.at(place) = actor;
  return true;
}

void World::Died(std::size_t actor) {
  std::ranges::replace(reapers_, actor, kNobody);
  dead_.push_back(PlaceOf(actor));
  std::erase_if(holds_, [actor](const Hold& hold) { return hold.actor == actor; });
}

void World::Put(const BlockId& block, Ring::Purpose purpose) {
  const Ring::Claim claim = janitor_->ClaimFor(block, purpose);
  BringAll(*janitor_, claim.pin, block);
}

void World::PutDirtyOf(const BlockId& block, std::uint32_t place) {
  const std::unique_ptr<Ring> ring = arena_.Join(place);
  const Ring::Claim claim = ring->ClaimFor(block, Ring::Purpose::kAssemble);
  BringAll(*ring, claim.pin, block);
}

std::uint32_t World::CountOf(const BlockId& block, SlotWord* word) const {
  std::uint32_t count = 0;
  for (std::uint32_t slot = 0; slot < arena_.memory().slot_count(); ++slot) {
    const SlotWord now = arena_.Word(slot);
    if (!now.decided() || arena_.IdOf(slot) != block) continue;
    ++count;
    if (word != nullptr) *word = now;
  }
  return count;
}

std::string World::CheckSlot(std::uint32_t slot) {
  const SlotWord word = arena_.Word(slot);
  const bool dirty = word.state() == SlotState::kDirty || word.state() == SlotState::kFlushing;
  if (dirty_[slot] != 0 && word.generation() + 1 != dirty_[slot]) return "a dirty block is lost";
  dirty_[slot] = dirty ? word.generation() + 1 : 0;
  if (!word.decided()) return {};
  const RingMemory memory = arena_.memory();
  const BlockId block = arena_.IdOf(slot);
  for (std::uint32_t other = 0; other < slot; ++other) {
    if (arena_.Word(other).decided() && arena_.IdOf(other) == block) {
      return "a block is decided to be in two slots";
    }
  }
  const bool found = HintIndex(memory).ForEach(
      HintIndex::Hash(block), [&](Hint hint) { return hint.slot() == slot && hint.IsOf(word); });
  if (!found) return "no hint leads to a block that is here";
  for (std::uint32_t shard = 0; shard < memory.shards(); ++shard) {
    const std::uint8_t state = memory.StatesOf(slot)[shard].load();
    if (word.complete() && state != kShardLanded) return "a whole block lacks a shard";
    if (state == kShardLanded && !IsRight(memory.DataOf(slot, shard), Stamp(block, shard))) {
      return "a shard that has landed is wrong";
    }
  }
  return {};
}

std::string World::Check() {
  for (const Hold& hold : holds_) {
    const SlotWord word = arena_.Word(hold.slot);
    if (word.generation() != hold.generation || !word.decided() ||
        arena_.IdOf(hold.slot) != hold.block) {
      return "a slot changed under its pin";
    }
  }
  for (std::uint32_t slot = 0; slot < arena_.memory().slot_count(); ++slot) {
    if (std::string wrong = CheckSlot(slot); !wrong.empty()) return wrong;
  }
  return {};
}

std::string World::CheckEnd() {
  for (const std::uint32_t place : dead_) janitor_->EraseTraces(place);
  if (std::string wrong = Check(); !wrong.empty()) return wrong;
  if (std::string wrong = arena_.WhatIsLeft(); !wrong.empty()) return wrong;
  for (std::uint32_t slot = 0; slot < arena_.memory().slot_count(); ++slot) {
    if (!arena_.Word(slot).decided()) continue;
    const Pin pin = janitor_->Find(arena_.IdOf(slot));
    if (!pin || pin.slot() != slot) return "a block that is here is not found";
  }
  return {};
}

std::string World::ClaimAll() {
  // All leave, and their duties are fulfilled.
  for (std::uint32_t place = 0; place < kMaxProcesses; ++place) {
    if (place != kJanitor && place >= PlaceOf(0) && place < PlaceOf(8)) {
      janitor_->EraseTraces(place);
    }
  }
  janitor_->AdoptDirty([this](std::uint32_t slot) {
    if (janitor_->BeginFlush(slot)) janitor_->EndFlush(slot, Ring::Flush::kArrived);
  });
  std::vector<Pin> pins;
  for (std::uint32_t i = 0; i < arena_.memory().slot_count(); ++i) {
    Ring::Claim claim = janitor_->ClaimFor(PlainId(kOthers + i), Ring::Purpose::kFill);
    if (!claim.made) return "a slot has leaked";
    pins.push_back(std::move(claim.pin));
  }
  return {};
}

}  // namespace ucmstore::test
