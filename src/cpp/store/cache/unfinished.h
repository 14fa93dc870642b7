// SPDX-License-Identifier: Apache-2.0
//
// Unfinished: the blocks that this store has dumped some shards of, and that are not visible yet.
// Bounds them in number and age, and remembers those that were given up, by whomever, so that their
// late shards are told (promise 2 of store_v1.h). Thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/block_id_hash.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "base/mutex.h"
#include "shm/ring.h"

namespace ucmstore {

class Unfinished {
 public:
  struct Limits {
    std::uint32_t shards_per_block;
    std::uint32_t max_blocks;
    milliseconds max_age;
  };
  Unfinished(Ring& ring, const Limits& limits, const Clock& clock)
      : ring_(ring), limits_(limits), clock_(clock) {}

  // Shards with these indexes are about to be dumped into a block that is not visible. True: they
  // are late; their block has been given up, and they must end kAborted. (If one of them has been
  // dumped before, the caller begins anew, and so does the block.)
  [[nodiscard]] bool AreLate(const BlockId& block, std::span<const std::uint32_t> indexes);
  // They have been dumped into the pinned slot. May give up the oldest blocks that nobody is at.
  void Note(const BlockId& block, const Pin& pin, std::span<const std::uint32_t> indexes);
  // The block is visible.
  void Forget(const BlockId& block);
  // Gives up what is too old. True while there is anything left.
  bool Expire();
  // Gives up everything, and forgets it.
  void Clear();

  [[nodiscard]] std::size_t Incomplete() const;
  [[nodiscard]] const Counter& given_up() const noexcept { return given_up_; }

 private:
  struct Record {
    BlockId block;
    std::uint32_t slot = 0;
    std::uint64_t generation = 0;
    TimePoint touched{};
    std::vector<bool> heard;  // of which shards
  };
  using Records = std::list<Record>;  // least recently touched first
  using Index = std::unordered_map<BlockId, Records::iterator, BlockIdHash>;

  // True: the block of a record in `live_` is being assembled still. Else moves the record to where
  // it belongs: nowhere, or to the tombstones.
  bool Revise(Records::iterator record) UCMSTORE_REQUIRES(mutex_);
  void GiveUp(const Record& record) UCMSTORE_REQUIRES(mutex_);

  // Blocks that were given up are remembered by so many, and for so many times the age.
  static constexpr std::size_t kMaxTombstones = 65'536;
  static constexpr int kTombstoneAges = 100;

  Ring& ring_;
  const Limits limits_;
  const Clock& clock_;
  Counter given_up_;
  mutable Mutex mutex_;
  Records live_ UCMSTORE_GUARDED_BY(mutex_);
  Records tombstones_ UCMSTORE_GUARDED_BY(mutex_);
  Index live_by_id_ UCMSTORE_GUARDED_BY(mutex_);
  Index tombstones_by_id_ UCMSTORE_GUARDED_BY(mutex_);
};

}  // namespace ucmstore
