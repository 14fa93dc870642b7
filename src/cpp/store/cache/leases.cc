// SPDX-License-Identifier: Apache-2.0
//
// Lending slots and taking them back.
#include "store/cache/leases.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <utility>

#include "shm/fork_watch.h"
#include "store/cache/cache_stage.h"

namespace ucmstore {
namespace {

constexpr int kLooks = 8;  // at a slot that changes under our hands
// For so many blocks of a call the right to leases is taken at once, and the store below is asked.
constexpr std::size_t kBatch = 64;

// One to one, so an id never comes back; and random at its start, so another book's is unknown.
std::uint64_t Mix(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31U);
}

std::uint64_t RandomStart() {
  std::random_device random;
  return (std::uint64_t{random()} << 32U) | random();
}

Status ClosedStatus() { return Status::Error(Code::kClosed, "Cache: the store is closed"); }
Status UnknownLease(LeaseId lease) {
  return Status::Error(
      Code::kNotFound,
      fmt::format("Cache: lease {} is unknown: never had here, or released already", lease));
}

}  // namespace

CacheStage* LeaseGate::Enter() {
  const MutexLock lock(mutex_);
  if (stage_ != nullptr) stage_->Enter();
  return stage_;
}

void LeaseGate::Shut() {
  const MutexLock lock(mutex_);
  stage_ = nullptr;
}

void CacheStage::SetUpLeases(std::uint32_t wanted) {
  // One slot at least is for all else, if there are two.
  const std::uint32_t most = std::max(ring().slot_count() - 1, 1U);
  max_leases_ = wanted == 0 ? std::max(ring().slot_count() / 4, 1U) : std::min(wanted, most);
  if (wanted > most) {
    log().Warning(fmt::format("max_leases {}: the ring has {} slots, so at most {} are leased",
                              wanted, ring().slot_count(), most));
  }
  lease_gate_ = std::make_shared<LeaseGate>(*this);
}

Status LeaseAllowance::Refusal() const {
  return Status::Error(Code::kBusy, fmt::format("Cache: {} slots are leased already, by all "
                                                "processes together: release some, or raise "
                                                "max_leases",
                                                limit_));
}

LeaseAllowance CacheStage::AllowLeases() {
  return {attachment_->processes(), max_leases_, [this] { (void)Reap(); }};
}

std::unique_ptr<LeaseBook> CacheStage::OpenLeases() {
  return std::make_unique<LeaseBook>(lease_gate_, attachment_);
}

// ---- one lease ----------------------------------------------------------------------------------

LentSlot::LentSlot(std::shared_ptr<Attachment> attachment, Pin pin, std::uint32_t held_shards)
    : attachment_(std::move(attachment)), pin_(std::move(pin)), shards_(held_shards) {}

LentSlot::~LentSlot() {
  Ring& ring = attachment_->ring();
  bool gave_up = false;
  for (std::uint32_t i = 0; i < shards_.size(); ++i) {
    if (shards_[i].load() != State::kHeld) continue;
    Abandon(i);
    gave_up = true;
  }
  // With nothing in it the slot is of no use to anybody.
  if (gave_up && ring.IsBare(pin_)) ring.Discard(std::move(pin_));
  pin_.Release();
  attachment_->processes().ReturnLeases(1);
  ring.Announce();  // who waits for a slot may look again
}

void LentSlot::Abandon(std::uint32_t i) noexcept {
  attachment_->held_shards().End(pin_, first_ + i);
  attachment_->ring().AbandonShard(pin_, first_ + i);
  shards_[i].store(State::kNone);
}

bool LentSlot::Hold(std::uint32_t first_shard) {
  first_ = first_shard;
  for (std::uint32_t i = 0; i < shards_.size(); ++i) {
    if (attachment_->held_shards().Begin(attachment_->ring(), pin_, first_ + i)) {
      shards_[i].store(State::kHeld);
      continue;
    }
    while (i-- > 0) Abandon(i);
    return false;
  }
  return true;
}

LentSlot::Land LentSlot::Commit(std::uint32_t shard, std::uint32_t bytes) noexcept {
  if (shard < first_ || shard - first_ >= shards_.size()) return Land::kNotReserved;
  State held = State::kHeld;
  if (!shards_[shard - first_].compare_exchange_strong(held, State::kCommitted)) {
    return Land::kCommittedBefore;
  }
  attachment_->held_shards().End(pin_, shard);
  return attachment_->ring().LandShard(pin_, shard, bytes) ? Land::kCompleted : Land::kLanded;
}

// ---- a book -------------------------------------------------------------------------------------

// A call's way to the stage, in and out.
class LeaseBook::Visit {
 public:
  explicit Visit(LeaseGate& gate) : stage_(gate.Enter()) {}
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;
  ~Visit() {
    if (stage_ != nullptr) stage_->Leave();
  }
  [[nodiscard]] CacheStage* stage() const noexcept { return stage_; }

 private:
  CacheStage* stage_;
};

LeaseBook::LeaseBook(std::shared_ptr<LeaseGate> gate, std::shared_ptr<Attachment> attachment)
    : gate_(std::move(gate)),
      attachment_(std::move(attachment)),
      fork_depth_(ForkDepth()),
      next_(RandomStart()) {}

bool LeaseBook::InForkedChild() const noexcept { return ForkDepth() != fork_depth_; }

LeaseMemoryV1 LeaseBook::Memory() const noexcept {
  const RingMemory& memory = ring().memory();
  const std::uint64_t stride = memory.header->shard_stride;
  return {.base = memory.data,
          .bytes = std::uint64_t{memory.slot_count()} * memory.shards() * stride,
          .shard_stride = stride,
          .reserved = 0};
}

void LeaseBook::Lend(LeasePtr lease, LeaseV1* answer) {
  void* const base = ring().DataOf(lease->pin(), 0);
  const MutexLock lock(mutex_);
  LeaseId id = 0;
  while (id == 0) id = Mix(next_++);
  leases_.emplace(id, std::move(lease));
  *answer = {.lease = id, .base = base, .code = Code::kOk, .reserved = 0};
}

Status LeaseBook::Acquire(std::span<const BlockId> blocks, LeaseV1* leases,
                          std::uint32_t* lengths) {
  const Visit visit(*gate_);
  CacheStage* const stage = visit.stage();
  if (stage == nullptr) return ClosedStatus();
  stage->ReapNowAndThen();
  const std::uint32_t shards = ring().memory().shards();
  LeaseAllowance allowance = stage->AllowLeases();
  std::array<std::uint8_t, kBatch> here{};
  Status first;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (i % kBatch == 0) {
      const auto batch = blocks.subspan(i, std::min(kBatch, blocks.size() - i));
      ring().Probe(batch, /*touch=*/false, here.data());
      allowance.Expect(static_cast<std::uint64_t>(
          std::count(here.begin(), here.begin() + static_cast<std::ptrdiff_t>(batch.size()), 1)));
    }
    std::uint32_t* const its = lengths == nullptr ? nullptr : lengths + i * shards;
    if (its != nullptr) std::fill_n(its, shards, 0U);
    leases[i] = {};
    const Status status = AcquireOne(*stage, blocks[i], allowance, &leases[i], its);
    if (!status.ok() && first.ok()) first = status;
  }
  return first;
}

Status LeaseBook::AcquireOne(CacheStage& stage, const BlockId& block, LeaseAllowance& allowance,
                             LeaseV1* lease, std::uint32_t* lengths) {
  Pin pin = ring().Find(block);
  if (pin && !ring().WordOf(pin).complete() && ring().CompleteIfWhole(pin)) {
    stage.write_back_->Add(pin.slot());  // whoever landed the last shard is gone
  }
  if (!pin || !ring().WordOf(pin).complete()) {
    lease->code = Code::kNotFound;
    return Status::Ok();
  }
  LeaseCount count(allowance);
  if (!count) {
    lease->code = Code::kBusy;
    return allowance.Refusal();
  }
  if (ring().WordOf(pin).chance() == 0) ring().Touch(pin);
  if (lengths != nullptr) {
    for (std::uint32_t shard = 0; shard < ring().memory().shards(); ++shard) {
      lengths[shard] = ring().LengthOf(pin, shard);
    }
  }
  auto lent = std::make_shared<LentSlot>(attachment_, std::move(pin), 0);
  count.Use();
  Lend(std::move(lent), lease);
  return Status::Ok();
}

Status LeaseBook::Reserve(std::span<const BlockId> blocks, std::uint32_t first_shard,
                          std::uint32_t shard_count, LeaseV1* leases) {
  const Visit visit(*gate_);
  CacheStage* const stage = visit.stage();
  if (stage == nullptr) return ClosedStatus();
  const std::uint32_t all = ring().memory().shards();
  if (shard_count == 0 || first_shard >= all || shard_count > all - first_shard) {
    return Status::Error(Code::kInvalidArgument,
                         fmt::format("Cache: {} shards from {} on cannot be reserved; a block has "
                                     "shards 0 to {}",
                                     shard_count, first_shard, all - 1));
  }
  std::vector<std::uint32_t> shards(shard_count);
  std::iota(shards.begin(), shards.end(), first_shard);
  stage->ReapNowAndThen();
  LeaseAllowance allowance = stage->AllowLeases();
  Status first;
  for (std::size_t from = 0; from < blocks.size(); from += kBatch) {
    const auto batch = blocks.subspan(from, std::min(kBatch, blocks.size() - from));
    BelowAnswers below(stage->below(), {batch.begin(), batch.end()});
    allowance.Expect(batch.size());
    for (std::size_t k = 0; k < batch.size(); ++k) {
      LeaseV1& lease = leases[from + k];
      lease = {};
      const Status status = ReserveOne(*stage, batch[k], shards, allowance, below, k, &lease);
      if (status.ok()) continue;
      lease.code = status.code;
      if (first.ok()) first = status;
    }
  }
  return first;
}

// As a dump goes: see CacheStage::DumpRun.
Status LeaseBook::ReserveOne(CacheStage& stage, const BlockId& block,
                             std::span<const std::uint32_t> shards, LeaseAllowance& allowance,
                             BelowAnswers& below, std::size_t k, LeaseV1* lease) {
  bool reaped = false;
  for (int looks = 0; looks < kLooks; ++looks) {
    Pin pin = ring().Find(block);
    if (!pin) {
      // Of a visible block the first bytes stay, and nothing is to be written.
      if (looks == 0 ? below.Has(k) : stage.BelowHas(block)) return Status::Ok();
      if (stage.unfinished_->AreLate(block, shards)) {
        return Status::Error(Code::kAborted,
                             "Cache: this block was given up while it was incomplete; bring all "
                             "of it anew");
      }
    }
    LeaseCount count(allowance);
    if (!pin) {
      if (!count) return allowance.Refusal();
      pin = ring().ClaimFor(block, Ring::Purpose::kAssemble).pin;
      if (!pin) {
        stage.Reap();
        pin = ring().ClaimFor(block, Ring::Purpose::kAssemble).pin;
      }
      if (!pin) {
        return Status::Error(Code::kBusy,
                             "Cache: no slot for this block: all are in use, or wait to be "
                             "written back");
      }
    }
    const SlotState state = ring().WordOf(pin).state();
    if (state >= SlotState::kClean) {
      stage.SeeThatItGetsBelow(pin, block, below, k);
      return Status::Ok();
    }
    if (state == SlotState::kAssembling) {
      if (!count) return allowance.Refusal();
      if (!ReserveIn(stage, std::move(pin), shards, std::move(count), lease)) continue;
      if (lease->code != Code::kPending || reaped) return Status::Ok();
      stage.Reap();  // whoever brings it may be dead
      reaped = true;
      lease->code = Code::kOk;
      continue;
    }
    // Being filled, so it was below not long ago.
    if (stage.BelowHas(block)) return Status::Ok();
    ring().Discard(std::move(pin));
  }
  return Status::Error(Code::kBusy,
                       "Cache: the block's slot changes hands again and again, or is being "
                       "loaded; dump it");
}

bool LeaseBook::ReserveIn(CacheStage& stage, Pin pin, std::span<const std::uint32_t> shards,
                          LeaseCount count, LeaseV1* lease) {
  if (ring().CompleteIfWhole(pin)) {
    stage.write_back_->Add(pin.slot());  // whoever landed the last shard is gone
    return false;
  }
  const auto lent = std::make_shared<LentSlot>(attachment_, std::move(pin),
                                               static_cast<std::uint32_t>(shards.size()));
  count.Use();
  if (!lent->Hold(shards.front())) {
    // It may have become whole just now.
    if (ring().WordOf(lent->pin()).complete()) return false;
    lease->code = Code::kPending;
    return true;
  }
  Lend(lent, lease);
  return true;
}

Status LeaseBook::Commit(LeaseId id, std::uint32_t shard, std::uint32_t bytes) {
  const Visit visit(*gate_);
  CacheStage* const stage = visit.stage();
  if (stage == nullptr) return ClosedStatus();
  LeasePtr lease;
  {
    const MutexLock lock(mutex_);
    const auto found = leases_.find(id);
    if (found == leases_.end()) return UnknownLease(id);
    lease = found->second;
  }
  const std::uint64_t shard_size = stage->setup().shard_size;
  if (bytes == 0 || bytes > shard_size) {
    return Status::Error(
        Code::kInvalidArgument,
        fmt::format("Cache: {} bytes cannot be committed; a shard has 1 to {}", bytes, shard_size));
  }
  const BlockId block = ring().BlockOf(lease->pin());
  const LentSlot::Land land = lease->Commit(shard, bytes);
  if (land == LentSlot::Land::kNotReserved || land == LentSlot::Land::kCommittedBefore) {
    return Status::Error(Code::kInvalidArgument, fmt::format("Cache: shard {} {}", shard,
                                                             land == LentSlot::Land::kNotReserved
                                                                 ? "was not reserved by this lease"
                                                                 : "was committed before"));
  }
  try {
    if (land == LentSlot::Land::kCompleted) {
      stage->unfinished_->Forget(block);
      stage->write_back_->Add(lease->pin().slot());
      // Whoever writes back next finds it, if it came too late for this stage.
      if (stage->closing_.load()) ring().Disown(lease->pin().slot());
    } else {
      stage->unfinished_->Note(block, lease->pin(), {&shard, 1});
      stage->ScheduleExpiry();
    }
  } catch (const std::exception&) {
    // Out of memory for the records: the ring bounds its blocks, and Close looks for dirty ones.
  }
  return Status::Ok();
}

Status LeaseBook::Release(std::span<const LeaseId> leases) {
  Status status;
  for (const LeaseId id : leases) {
    LeasePtr ended;
    {
      const MutexLock lock(mutex_);
      const auto found = leases_.find(id);
      if (found != leases_.end()) {
        ended = std::move(found->second);
        leases_.erase(found);
      }
    }
    if (ended == nullptr && status.ok()) status = UnknownLease(id);
  }
  return status;
}

}  // namespace ucmstore
