// SPDX-License-Identifier: Apache-2.0
//
// Dram: a terminal stage that keeps blocks in the memory of this process, up to a capacity. When a
// new block needs room, a hand goes round the blocks and evicts the first that has no chance left:
// CLOCK with a second chance (Corbato, "A Paging Experiment with the Multics System", 1968). A new
// block has none, each touch by Lookup or Load gives one, up to three. The reference model of the
// contract suite. Thread-safe; bytes are copied without a lock.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/block_id_hash.h"
#include "base/metrics.h"
#include "base/mutex.h"
#include "task/terminal_stage.h"

namespace ucmstore {

class DramStage final : public TerminalStage {
 public:
  DramStage() : TerminalStage("dram") {}

 private:
  struct Block;
  class Writer;
  struct Slot {
    BlockId id;
    bool used;
  };

  Status Open(const StageSetup& setup) override;
  Status Find(std::span<const BlockId> blocks, std::uint32_t flags, std::uint8_t* found) override;
  void Read(const BlockId& block, std::span<ShardIo> shards) override;
  Result<std::unique_ptr<BlockWriter>> Create(const BlockId& block) override;
  void VisitOwnMetrics(const std::function<void(const MetricV1&)>& metric) override;

  // Takes room for one more block, evicting if need be. False: the room there is belongs to blocks
  // that are still being written.
  [[nodiscard]] bool Reserve();
  void Release();
  void Publish(const BlockId& id, std::shared_ptr<Block> block);
  void EvictOne() UCMSTORE_REQUIRES(mutex_);

  std::uint64_t max_blocks_ = 0;
  Counter evicted_;

  Mutex mutex_;
  std::unordered_map<BlockId, std::shared_ptr<Block>, BlockIdHash> blocks_
      UCMSTORE_GUARDED_BY(mutex_);
  std::vector<Slot> ring_ UCMSTORE_GUARDED_BY(mutex_);
  std::vector<std::size_t> free_slots_ UCMSTORE_GUARDED_BY(mutex_);  // of ring_
  std::size_t hand_ UCMSTORE_GUARDED_BY(mutex_) = 0;
  std::uint64_t reserved_ UCMSTORE_GUARDED_BY(mutex_) = 0;  // blocks with room: visible, or written
};

}  // namespace ucmstore
