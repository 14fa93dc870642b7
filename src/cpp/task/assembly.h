// SPDX-License-Identifier: Apache-2.0
//
// Assembler: puts blocks together from shards that come in any order, in one task or in many, and
// commits each exactly once, when the last shard has *landed* (counted by completion). It is the
// one place that keeps promise 2 of store_v1.h for every terminal stage. Thread-safe; the medium
// is called without a lock.
//
// A block being assembled, and its shards:
//
//   Open ----- all landed -----> Committing ----> visible (forgotten here)
//    |                               |
//    +-- a write fails, too many,    +-- commit fails
//        too old                     v
//    +--------------------------> aborted: removed from the medium; remembered as a tombstone
//                                 while some of its shards have not been heard of
//
//   shard: empty --claim--> writing --ok--> landed           (a failed write aborts the block)
//
// A second dump of a shard that is being written follows the first and shares its end. A second
// dump of a landed shard is accepted. A dump of a block with a tombstone: if the aborted attempt
// has not heard of any of these shards, they are its late ones and end kAborted; if it has heard
// of one, the caller began anew, and so does the block.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/block_id_hash.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "base/mutex.h"
#include "base/result.h"
#include "task/terminal_stage.h"

namespace ucmstore {

struct AssemblyLimits {
  std::uint32_t shards_per_block;
  std::uint32_t max_blocks;     // incomplete blocks; above it the oldest at rest is aborted
  std::uint32_t max_followers;  // of one block; one more ends kBusy
  milliseconds max_age;         // untouched so long at rest, a block is aborted
};

// How the assembler reaches the medium. Called from many threads, may block, may throw.
struct AssemblyMedium {
  std::function<Result<bool>(const BlockId&)> visible;
  std::function<Result<std::unique_ptr<BlockWriter>>(const BlockId&)> create;
};

class Assembler {
 public:
  // Ends the shard at a position of the dump; called exactly once for each, without a lock.
  using EndShard = std::function<void(std::size_t position, const Status&, std::uint32_t bytes)>;

  Assembler(const AssemblyLimits& limits, AssemblyMedium medium, const Clock& clock);
  Assembler(const Assembler&) = delete;
  Assembler& operator=(const Assembler&) = delete;
  ~Assembler();  // aborts what is incomplete; requires: no Dump runs

  // Writes shards of one block and ends each, at once or, for those that follow another dump, when
  // that one does. May block as the medium does. `end` is copied for followers.
  void Dump(const BlockId& block, std::span<ShardIo> shards, const EndShard& end);

  // Aborts what is too old. Returns true while incomplete blocks or tombstones remain. `hurry`: set
  // while it runs, the rest is abandoned instead of removed (BlockWriter::Abandon).
  bool Expire(const std::atomic<bool>& hurry);

  // Forgets everything. Gives what was being written: each removes its traces when it is destroyed,
  // or is abandoned before. Requires: no Dump runs.
  [[nodiscard]] std::vector<std::unique_ptr<BlockWriter>> Clear();

  [[nodiscard]] std::size_t Incomplete() const;
  [[nodiscard]] std::size_t Tombstones() const;
  [[nodiscard]] std::uint64_t Aborted() const noexcept { return aborted_.Get(); }
  [[nodiscard]] std::uint64_t WrittenBytes() const noexcept { return written_bytes_.Get(); }
  [[nodiscard]] std::uint64_t Committed() const noexcept { return committed_.Get(); }

 private:
  struct Outcome {
    bool known = false;
    std::uint32_t bytes = 0;
    Status status;
  };
  struct Block;
  struct Dumping;
  struct Follower;
  struct Tombstone;
  using BlockPtr = std::shared_ptr<Block>;

  bool EndIfVisible(const BlockId& block, std::span<ShardIo> shards, const EndShard& end);
  // False: every outcome is known already.
  [[nodiscard]] bool Admit(Dumping& dumping) UCMSTORE_EXCLUDES(mutex_);
  [[nodiscard]] bool EndLate(Dumping& dumping) UCMSTORE_REQUIRES(mutex_);
  void Claim(Dumping& dumping) UCMSTORE_REQUIRES(mutex_);
  void ClaimShard(Dumping& dumping, std::size_t position) UCMSTORE_REQUIRES(mutex_);
  [[nodiscard]] Result<BlockWriter*> Writer(Block& block) UCMSTORE_EXCLUDES(mutex_);
  void Write(Dumping& dumping) noexcept UCMSTORE_EXCLUDES(mutex_);
  void Settle(Dumping& dumping) noexcept UCMSTORE_EXCLUDES(mutex_);
  [[nodiscard]] bool Land(Block& block, std::span<ShardIo> written) noexcept
      UCMSTORE_REQUIRES(mutex_);
  void EndFollowers(Dumping& dumping) noexcept UCMSTORE_REQUIRES(mutex_);
  [[nodiscard]] bool TakeExpired(std::vector<BlockPtr>& dropped) UCMSTORE_EXCLUDES(mutex_);
  void MakeRoom(std::vector<BlockPtr>& dropped) UCMSTORE_REQUIRES(mutex_);
  void Abort(const BlockPtr& block, const Status& why) noexcept UCMSTORE_REQUIRES(mutex_);
  void Forget(const BlockPtr& block) noexcept UCMSTORE_REQUIRES(mutex_);
  void Touch(const BlockPtr& block) noexcept UCMSTORE_REQUIRES(mutex_);

  const AssemblyLimits limits_;
  const AssemblyMedium medium_;
  const Clock& clock_;
  Counter aborted_;
  Counter written_bytes_;
  Counter committed_;

  mutable Mutex mutex_;
  std::unordered_map<BlockId, BlockPtr, BlockIdHash> blocks_ UCMSTORE_GUARDED_BY(mutex_);
  std::list<BlockPtr> by_age_ UCMSTORE_GUARDED_BY(mutex_);  // least recently touched first
  std::unordered_map<BlockId, Tombstone, BlockIdHash> tombstones_ UCMSTORE_GUARDED_BY(mutex_);
  std::list<BlockId> tombstones_by_age_ UCMSTORE_GUARDED_BY(mutex_);
};

}  // namespace ucmstore
