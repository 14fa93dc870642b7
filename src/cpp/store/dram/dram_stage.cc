// SPDX-License-Identifier: Apache-2.0
//
// Blocks in memory: room, eviction, and copies.
#include "store/dram/dram_stage.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstdlib>

namespace ucmstore {
namespace {

constexpr std::uint8_t kMaxChances = 3;

struct Free {
  void operator()(std::byte* data) const noexcept { std::free(data); }
};

}  // namespace

// One allocation of a whole block, of which only what is written becomes resident.
struct DramStage::Block {
  std::unique_ptr<std::byte, Free> data;
  std::vector<std::uint32_t> bytes;  // of each shard
  std::uint8_t chances = 0;          // guarded by the stage's mutex
};

class DramStage::Writer final : public BlockWriter {
 public:
  Writer(DramStage& stage, const BlockId& id) : stage_(stage), id_(id) {}
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  ~Writer() override {
    if (block_ != nullptr) stage_.Release();
  }

  void Write(std::span<ShardIo> shards, bool /*last*/) override {
    if (const Status status = Allocate(); !status.ok()) {
      for (ShardIo& shard : shards) shard.Fail(status);
      return;
    }
    const std::uint64_t shard_size = stage_.setup().shard_size;
    for (ShardIo& shard : shards) {
      const std::span room(block_->data.get() + shard.index() * shard_size, shard_size);
      const auto bytes = static_cast<std::uint32_t>(Gather(shard.segments(), room));
      block_->bytes[shard.index()] = bytes;
      shard.Succeed(bytes);
    }
  }

  Status Commit() override {
    stage_.Publish(id_, std::move(block_));
    return Status::Ok();
  }

 private:
  Status Allocate() {
    const MutexLock lock(mutex_);  // several dumps may write the first shards at once
    if (block_ != nullptr) return Status::Ok();
    if (!stage_.Reserve()) {
      return Status::Error(Code::kNoSpace,
                           fmt::format("all of capacity is taken by blocks that are "
                                       "still being written ({} blocks of {} bytes)",
                                       stage_.max_blocks_, BlockSize()));
    }
    auto block = std::make_shared<Block>();
    block->data.reset(static_cast<std::byte*>(std::malloc(BlockSize())));
    if (block->data == nullptr) {
      stage_.Release();
      return Status::Error(Code::kLimit, fmt::format("out of memory for {} bytes", BlockSize()));
    }
    block->bytes.resize(stage_.setup().shards_per_block);
    block_ = std::move(block);
    return Status::Ok();
  }

  [[nodiscard]] std::uint64_t BlockSize() const {
    return stage_.setup().shard_size * stage_.setup().shards_per_block;
  }

  DramStage& stage_;
  const BlockId id_;
  Mutex mutex_;
  std::shared_ptr<Block> block_;  // set once under mutex_, before any Write uses it
};

Status DramStage::Open(const StageSetup& setup) {
  const std::uint64_t block_size = setup.shard_size * setup.shards_per_block;
  const std::uint64_t capacity = setup.Size("capacity");
  max_blocks_ = capacity / block_size;
  if (max_blocks_ == 0) {
    return Status::Error(
        Code::kInvalidArgument,
        fmt::format("capacity {} does not hold one block of {} bytes ({} shards "
                    "of {})",
                    capacity, block_size, setup.shards_per_block, setup.shard_size));
  }
  return Status::Ok();
}

Status DramStage::Find(std::span<const BlockId> blocks, std::uint32_t flags, std::uint8_t* found) {
  const MutexLock lock(mutex_);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto place = blocks_.find(blocks[i]);
    if (place != blocks_.end()) {
      found[i] = kInMemory;
      std::uint8_t& chances = place->second->chances;
      if ((flags & kNoTouch) == 0 && chances < kMaxChances) ++chances;
    } else if ((flags & kStopAtMiss) != 0) {
      break;
    }
  }
  return Status::Ok();
}

void DramStage::Read(const BlockId& id, std::span<ShardIo> shards) {
  std::shared_ptr<Block> block;  // keeps the bytes, whatever is evicted meanwhile
  {
    const MutexLock lock(mutex_);
    if (const auto place = blocks_.find(id); place != blocks_.end()) {
      block = place->second;
      if (block->chances < kMaxChances) ++block->chances;
    }
  }
  for (ShardIo& shard : shards) {
    if (block == nullptr) {
      shard.Fail(Status::Error(Code::kNotFound, "no such block"));
    } else {
      const std::byte* data = block->data.get() + shard.index() * setup().shard_size;
      shard.Deliver({data, block->bytes[shard.index()]});
    }
  }
}

Result<std::unique_ptr<BlockWriter>> DramStage::Create(const BlockId& block) {
  return std::make_unique<Writer>(*this, block);
}

bool DramStage::Reserve() {
  const MutexLock lock(mutex_);
  while (reserved_ >= max_blocks_) {
    if (blocks_.empty()) return false;
    EvictOne();
  }
  ++reserved_;
  return true;
}

void DramStage::Release() {
  const MutexLock lock(mutex_);
  --reserved_;
}

void DramStage::Publish(const BlockId& id, std::shared_ptr<Block> block) {
  const MutexLock lock(mutex_);
  const auto [place, is_new] = blocks_.try_emplace(id, block);
  if (is_new && !free_slots_.empty()) {  // where the hand has just been: it comes back last
    ring_[free_slots_.back()] = {.id = id, .used = true};
    free_slots_.pop_back();
  } else if (is_new) {
    ring_.push_back({.id = id, .used = true});
  } else {
    place->second = std::move(block);  // one block, one room
    --reserved_;
  }
}

// At most kMaxChances + 1 rounds: each takes a chance from every block, and a block has at most
// kMaxChances. Requires: there is a block.
void DramStage::EvictOne() {
  const std::size_t bound = ring_.size() * (kMaxChances + 1);
  for (std::size_t step = 0; step < bound; ++step) {
    const std::size_t slot = hand_ < ring_.size() ? hand_ : 0;
    hand_ = slot + 1;
    if (!ring_[slot].used) continue;
    const auto place = blocks_.find(ring_[slot].id);
    if (place->second->chances > 0) {
      --place->second->chances;
      continue;
    }
    blocks_.erase(place);
    ring_[slot].used = false;
    free_slots_.push_back(slot);
    --reserved_;
    evicted_.Add();
    return;
  }
}

void DramStage::VisitOwnMetrics(const std::function<void(const MetricV1&)>& metric) {
  std::size_t count = 0;
  {
    const MutexLock lock(mutex_);
    count = blocks_.size();
  }
  metric({.name = "evicted_blocks",
          .kind = MetricKind::kCounter,
          .reserved = 0,
          .value = static_cast<double>(evicted_.Get())});
  metric({.name = "stored_blocks",
          .kind = MetricKind::kGauge,
          .reserved = 0,
          .value = static_cast<double>(count)});
}

}  // namespace ucmstore
