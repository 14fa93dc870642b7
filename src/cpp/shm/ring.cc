// SPDX-License-Identifier: Apache-2.0
//
// Finding, pinning, claiming and evicting.
#include "shm/ring.h"

#include <cassert>
#include <cstring>
#include <thread>

#include "shm/boot_clock.h"

namespace ucmstore {
namespace {

constexpr int kClaimTries = 16;
constexpr int kPatientLooks = 64;  // at a rival that is about to decide
constexpr std::size_t kProbeBatch = 16;
constexpr std::uint32_t kSmallRing = 4096;  // sweeping it costs nothing to speak of
constexpr milliseconds kFruitless{10};

}  // namespace

Pin& Pin::operator=(Pin&& other) noexcept {
  if (this != &other) {
    Release();
    ring_ = std::exchange(other.ring_, nullptr);
    slot_ = other.slot_;
    generation_ = other.generation_;
  }
  return *this;
}

Pin Pin::Another() const {
  if (ring_ != nullptr) ring_->PinOwn(slot_);
  return {ring_, slot_, generation_};
}

void Pin::Release() noexcept {
  if (ring_ != nullptr) std::exchange(ring_, nullptr)->Unpin(slot_);
}

Ring::Ring(const RingMemory& memory, std::uint32_t place, milliseconds incomplete_age)
    : memory_(memory),
      index_(memory),
      place_(place),
      me_(static_cast<std::uint8_t>(place + 1)),
      incomplete_age_ns_(static_cast<std::uint64_t>(incomplete_age.count()) * 1'000'000),
      pins_(std::make_unique<std::uint32_t[]>(memory.slot_count())) {}

bool Ring::Swap(std::uint32_t slot, SlotWord& from, SlotWord to, Transition transition) noexcept {
  assert(IsLegal(transition, from, to));
  PausePoint(Step::kSwap, Moment::kBefore, slot, transition);
  std::uint64_t bits = from.bits();
  const bool swapped =
      memory_.slots[slot].word.compare_exchange_strong(bits, to.bits(), std::memory_order_seq_cst);
  from = SlotWord(bits);
  if (swapped) PausePoint(Step::kSwap, Moment::kAfter, slot, transition);
  return swapped;
}

BlockId Ring::IdOf(std::uint32_t slot) const noexcept {
  const auto& id = memory_.slots[slot].id;
  const std::uint64_t words[2] = {id[0].load(std::memory_order_seq_cst),
                                  id[1].load(std::memory_order_seq_cst)};
  BlockId block;
  std::memcpy(block.bytes.data(), words, sizeof(words));
  return block;
}

// ---- finding ------------------------------------------------------------------------------------

bool Ring::Holds(Hint hint, const BlockId& block, SlotWord* word) const noexcept {
  if (hint.slot() >= slot_count()) return false;  // never written by this code
  const SlotWord before = Load(hint.slot());
  if (!hint.IsOf(before) || before.state() < SlotState::kProposed) return false;
  if (IdOf(hint.slot()) != block) return false;
  *word = Load(hint.slot());  // an id changes only between two generations
  return word->generation() == before.generation() && word->state() >= SlotState::kProposed;
}

void Ring::Probe(std::span<const BlockId> blocks, bool touch, std::uint8_t* here) noexcept {
  std::array<std::uint64_t, kProbeBatch> hashes;
  for (std::size_t first = 0; first < blocks.size(); first += kProbeBatch) {
    // Three rounds, so that the cache misses of a batch overlap.
    const std::size_t count = std::min(kProbeBatch, blocks.size() - first);
    for (std::size_t i = 0; i < count; ++i) {
      hashes[i] = HintIndex::Hash(blocks[first + i]);
      __builtin_prefetch(&index_.Home(hashes[i]));
    }
    for (std::size_t i = 0; i < count; ++i) {
      index_.ForEach(hashes[i], [this](Hint hint) {
        __builtin_prefetch(&memory_.slots[hint.slot() % slot_count()]);
        return true;
      });
    }
    for (std::size_t i = 0; i < count; ++i) {
      std::uint32_t slot = 0;
      SlotWord word;
      const bool found = index_.ForEach(hashes[i], [&](Hint hint) {
        slot = hint.slot();
        return Holds(hint, blocks[first + i], &word) && word.complete();
      });
      here[first + i] = found ? 1 : 0;
      if (!found || !touch) continue;
      if (word.draining()) {
        (void)Swap(slot, word, word.NotDraining(), Transition::kCallOff);
      } else if (word.chance() < SlotWord::kMaxChance) {
        (void)Swap(slot, word, word.WithChance(word.chance() + 1), Transition::kTouch);
      }
    }
  }
}

Pin Ring::Find(const BlockId& block) {
  Pin pin;
  index_.ForEach(HintIndex::Hash(block), [&](Hint hint) {
    SlotWord word;
    if (!Holds(hint, block, &word) || !word.decided()) return false;
    pin = TryPin(hint.slot(), word);
    return static_cast<bool>(pin);
  });
  return pin;
}

void Ring::Touch(const Pin& pin) noexcept {
  SlotWord word = Load(pin.slot());
  if (word.draining() || word.chance() >= SlotWord::kMaxChance) return;
  (void)Swap(pin.slot(), word, word.WithChance(word.chance() + 1), Transition::kTouch);
}

// ---- pins ---------------------------------------------------------------------------------------

void Ring::SetBit(std::uint32_t slot) noexcept {
  PausePoint(Step::kPin, Moment::kBefore, slot);
  memory_.slots[slot].pins[place_ / 64].fetch_or(1ULL << (place_ % 64), std::memory_order_seq_cst);
  PausePoint(Step::kPin, Moment::kAfter, slot);
}

void Ring::ClearBit(std::uint32_t slot, std::uint32_t place) noexcept {
  PausePoint(Step::kUnpin, Moment::kBefore, slot);
  memory_.slots[slot].pins[place / 64].fetch_and(~(1ULL << (place % 64)),
                                                 std::memory_order_seq_cst);
  PausePoint(Step::kUnpin, Moment::kAfter, slot);
}

bool Ring::IsPinned(std::uint32_t slot) const noexcept {
  const auto& pins = memory_.slots[slot].pins;
  return (pins[0].load(std::memory_order_seq_cst) | pins[1].load(std::memory_order_seq_cst)) != 0;
}

Pin Ring::TryPin(std::uint32_t slot, SlotWord word) noexcept {
  const std::uint64_t generation = word.generation();
  const MutexLock lock(stripes_[slot % kStripes].mutex);
  if (pins_[slot] == 0) SetBit(slot);
  word = Load(slot);
  // While it is draining: swap it back, which fails if the evictor, or another, was quicker.
  while (word.generation() == generation && word.decided() && word.draining() &&
         !Swap(slot, word, word.NotDraining(), Transition::kCallOff)) {
  }
  if (word.generation() != generation || !word.decided()) {
    if (pins_[slot] == 0) ClearBit(slot, place_);
    return {};
  }
  ++pins_[slot];
  return {this, slot, generation};
}

void Ring::PinOwn(std::uint32_t slot) noexcept {
  const MutexLock lock(stripes_[slot % kStripes].mutex);
  if (pins_[slot]++ == 0) SetBit(slot);
}

void Ring::Unpin(std::uint32_t slot) noexcept {
  const MutexLock lock(stripes_[slot % kStripes].mutex);
  if (--pins_[slot] == 0) ClearBit(slot, place_);
}

// ---- claiming -----------------------------------------------------------------------------------

bool Ring::Evict(std::uint32_t slot, SlotWord word) noexcept {
  SlotWord draining = word.Draining(me_);
  if (!Swap(slot, word, draining, Transition::kDrain)) return false;
  const BlockId old = IdOf(slot);
  if (IsPinned(slot)) {
    (void)Swap(slot, draining, draining.NotDraining(), Transition::kCallOff);
    return false;
  }
  if (!Swap(slot, draining, draining.NextLife(me_), Transition::kEvict)) return false;
  index_.Remove(HintIndex::Hash(old), slot, word.generation());
  return true;
}

bool Ring::TryTake(std::uint32_t slot, bool desperate) noexcept {
  SlotWord word = Load(slot);
  if (word.draining() || IsPinned(slot)) return false;
  if (word.state() == SlotState::kEmpty) {
    return Swap(slot, word, word.NextLife(me_), Transition::kClaim);
  }
  if (word.state() == SlotState::kAssembling) {
    const std::uint64_t touched = memory_.slots[slot].touched_ns.load(std::memory_order_relaxed);
    if (!desperate && BootClockNs() - touched < incomplete_age_ns_) return false;
  } else if (!word.evictable()) {
    return false;
  } else if (word.chance() > 0) {
    (void)Swap(slot, word, word.WithChance(word.chance() - 1), Transition::kPass);
    return false;
  }
  if (!Evict(slot, word)) return false;
  memory_.shared->evictions.fetch_add(1, std::memory_order_relaxed);
  return true;
}

std::optional<std::uint32_t> Ring::TakeSlot() noexcept {
  const MutexLock lock(taking_);
  const std::uint32_t event = memory_.shared->event.load(std::memory_order_seq_cst);
  if (slot_count() > kSmallRing && event == fruitless_event_ &&
      std::chrono::steady_clock::now() < fruitless_until_) {
    return std::nullopt;
  }
  // Once round for each chance that a slot may have, once more for those that had none left, and
  // at last without regard for blocks that are being assembled.
  const std::uint64_t patient = (SlotWord::kMaxChance + 1ULL) * slot_count();
  std::uint64_t passed = 0;
  for (std::uint64_t i = 0; i < patient; ++i) {
    passed = memory_.shared->hand.fetch_add(1, std::memory_order_relaxed);
    const auto slot = static_cast<std::uint32_t>(passed % slot_count());
    if (TryTake(slot, false)) return slot;
  }
  // All processes move the one hand, so between them each may have missed a slot: this last round
  // is our own.
  for (std::uint64_t i = 1; i <= slot_count(); ++i) {
    const auto slot = static_cast<std::uint32_t>((passed + i) % slot_count());
    if (TryTake(slot, true)) return slot;
  }
  fruitless_event_ = event;
  fruitless_until_ = std::chrono::steady_clock::now() + kFruitless;
  return std::nullopt;
}

void Ring::Empty(std::uint32_t slot) noexcept {
  SlotWord word = Load(slot);
  (void)Swap(slot, word, word.WithState(SlotState::kEmpty, SlotWord::kNobody), Transition::kGiveUp);
}

std::optional<std::pair<std::uint32_t, SlotWord>> Ring::FindRival(const BlockId& block,
                                                                  std::uint64_t hash,
                                                                  std::uint32_t mine) noexcept {
  std::optional<std::pair<std::uint32_t, SlotWord>> rival;
  index_.ForEach(hash, [&](Hint hint) {
    SlotWord word;
    if (hint.slot() == mine) return false;
    for (int looks = 0; Holds(hint, block, &word); ++looks) {
      if (word.decided()) {
        rival = {hint.slot(), word};
        return true;
      }
      // Two that beat each other at once have both lost, so the lower slot gets a moment. Its
      // owner may have stopped for long, or died: then it is beaten, too.
      if (hint.slot() < mine && looks < kPatientLooks) {
        std::this_thread::yield();
        continue;
      }
      if (Swap(hint.slot(), word, word.WithState(SlotState::kEmpty, SlotWord::kNobody),
               Transition::kBeat)) {
        return false;
      }
    }
    return false;
  });
  return rival;
}

Ring::Claim Ring::ClaimFor(const BlockId& block, Purpose purpose) {
  const std::uint64_t hash = HintIndex::Hash(block);
  std::uint64_t words[2];
  std::memcpy(words, block.bytes.data(), sizeof(words));
  for (int tries = 0; tries < kClaimTries; ++tries) {
    if (Pin pin = Find(block)) return {.pin = std::move(pin), .made = false};
    const std::optional<std::uint32_t> taken = TakeSlot();
    if (!taken) return {};
    const std::uint32_t slot = *taken;
    Slot& memory = memory_.slots[slot];
    index_.Settle(slot, IdOf(slot));
    for (auto& state : memory_.StatesOf(slot)) state.store(kShardEmpty, std::memory_order_relaxed);
    // Released: else another CPU might see the new id under the old word (Holds).
    memory.id[0].store(words[0], std::memory_order_release);
    memory.id[1].store(words[1], std::memory_order_release);
    memory.touched_ns.store(BootClockNs(), std::memory_order_relaxed);
    PinOwn(slot);
    SlotWord word = Load(slot);
    Pin pin(this, slot, word.generation());
    SlotWord proposed = word.WithState(SlotState::kProposed, me_);
    (void)Swap(slot, word, proposed, Transition::kPropose);  // nobody else touches a claimed slot
    if (!index_.Insert(hash, slot, pin.generation())) {
      // It may be empty already: beaten. Then there is nothing to give up.
      (void)Swap(slot, proposed, proposed.WithState(SlotState::kEmpty, SlotWord::kNobody),
                 Transition::kGiveUp);
      return {};
    }
    const auto rival = FindRival(block, hash, slot);
    const bool fill = purpose == Purpose::kFill;
    const SlotWord decided =
        proposed.WithState(fill ? SlotState::kFilling : SlotState::kAssembling, SlotWord::kNobody);
    if (!rival && Swap(slot, proposed, decided,
                       fill ? Transition::kDecideFilling : Transition::kDecideAssembling)) {
      return {.pin = std::move(pin), .made = true};
    }
    if (rival) {
      (void)Swap(slot, proposed, proposed.WithState(SlotState::kEmpty, SlotWord::kNobody),
                 Transition::kGiveUp);
    }
    index_.Remove(hash, slot, pin.generation());
    pin.Release();
    if (rival) {
      if (Pin other = TryPin(rival->first, rival->second)) {
        return {.pin = std::move(other), .made = false};
      }
    }
  }
  return {};
}

}  // namespace ucmstore
