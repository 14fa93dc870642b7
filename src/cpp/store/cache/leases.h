// SPDX-License-Identifier: Apache-2.0
//
// Leases: slots of the ring lent to the caller, who reads or fills them in place ("leases/1" of
// plugin_v1.h). A lease is a pin. One that was reserved also holds shards that it has begun and
// neither landed nor abandoned, so that nobody else can bring them: a dump of such a shard is
// kBusy, at once in the same process, in others after a moment.
//
// A book keeps the leases of one caller. It holds the process's place in the ring, so that pins and
// mapping stay when the store is closed: memory that a caller, or a device of his, still uses is
// never given to another block. Only release, the book's end or the process's death gives it back.
// Their number is bounded, for all processes together, so that they cannot bring the ring to a
// stop. Thread-safe, but for a book's end.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "shm/attachment.h"
#include "store/cache/lease_allowance.h"
#include "ucmstore/plugin_v1.h"

namespace ucmstore {

class BelowAnswers;
class CacheStage;

// The way from a book to its stage, until that is closed.
class LeaseGate {
 public:
  explicit LeaseGate(CacheStage& stage) : stage_(&stage) {}
  // Null: it has been closed. Else it stays until its Leave.
  [[nodiscard]] CacheStage* Enter();
  void Shut();

 private:
  Mutex mutex_;
  CacheStage* stage_ UCMSTORE_GUARDED_BY(mutex_);
};

// One slot, lent. Pinned, and counted, as long as this lives; what it holds then goes back.
class LentSlot {
 public:
  // Requires: the count of leases has been raised for it.
  LentSlot(std::shared_ptr<Attachment> attachment, Pin pin, std::uint32_t held_shards);
  LentSlot(const LentSlot&) = delete;
  LentSlot& operator=(const LentSlot&) = delete;
  ~LentSlot();

  [[nodiscard]] const Pin& pin() const noexcept { return pin_; }
  // Begins all of these shards, or none. False: one is there, or somebody else is at it.
  [[nodiscard]] bool Hold(std::uint32_t first_shard);
  enum class Land : std::uint8_t { kLanded, kCompleted, kCommittedBefore, kNotReserved };
  [[nodiscard]] Land Commit(std::uint32_t shard, std::uint32_t bytes) noexcept;

 private:
  enum class State : std::uint8_t { kNone, kHeld, kCommitted };

  void Abandon(std::uint32_t i) noexcept;

  const std::shared_ptr<Attachment> attachment_;
  Pin pin_;
  std::uint32_t first_ = 0;
  std::vector<std::atomic<State>> shards_;  // from first_ on
};

// Named by the ABI.
struct LeaseBook {
  LeaseBook(std::shared_ptr<LeaseGate> gate, std::shared_ptr<Attachment> attachment);
  LeaseBook(const LeaseBook&) = delete;
  LeaseBook& operator=(const LeaseBook&) = delete;
  ~LeaseBook() = default;

  [[nodiscard]] bool InForkedChild() const noexcept;
  [[nodiscard]] LeaseMemoryV1 Memory() const noexcept;
  [[nodiscard]] Status Acquire(std::span<const BlockId> blocks, LeaseV1* leases,
                               std::uint32_t* lengths);
  [[nodiscard]] Status Reserve(std::span<const BlockId> blocks, std::uint32_t first_shard,
                               std::uint32_t shard_count, LeaseV1* leases);
  [[nodiscard]] Status Commit(LeaseId lease, std::uint32_t shard, std::uint32_t bytes);
  [[nodiscard]] Status Release(std::span<const LeaseId> leases);

 private:
  class Visit;
  using LeasePtr = std::shared_ptr<LentSlot>;

  [[nodiscard]] Ring& ring() const noexcept { return attachment_->ring(); }
  [[nodiscard]] Status AcquireOne(CacheStage& stage, const BlockId& block,
                                  LeaseAllowance& allowance, LeaseV1* lease,
                                  std::uint32_t* lengths);
  // `below` knows the block as its k-th.
  [[nodiscard]] Status ReserveOne(CacheStage& stage, const BlockId& block,
                                  std::span<const std::uint32_t> shards, LeaseAllowance& allowance,
                                  BelowAnswers& below, std::size_t k, LeaseV1* lease);
  // The block is being assembled there. True: that was the answer; false: look again.
  [[nodiscard]] bool ReserveIn(CacheStage& stage, Pin pin, std::span<const std::uint32_t> shards,
                               LeaseCount count, LeaseV1* lease);
  void Lend(LeasePtr lease, LeaseV1* answer);

  const std::shared_ptr<LeaseGate> gate_;
  const std::shared_ptr<Attachment> attachment_;
  const std::uint64_t fork_depth_;
  Mutex mutex_;
  std::uint64_t next_ UCMSTORE_GUARDED_BY(mutex_);
  std::unordered_map<LeaseId, LeasePtr> leases_ UCMSTORE_GUARDED_BY(mutex_);
};

// The table of "leases/1".
[[nodiscard]] const LeasesTableV1* CacheLeases() noexcept;

}  // namespace ucmstore
