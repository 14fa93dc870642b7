// SPDX-License-Identifier: Apache-2.0
//
// Box: a terminal stage from the frozen headers alone: the six methods by hand, for those who want
// a binary that outlives the SDK. It works synchronously: a task has ended when Load or Dump
// returns, so Check and Wait only look it up. Blocks are kept in memory, at most `max_blocks`, the
// oldest is dropped. Thread-safe: one mutex around everything; callbacks run outside it.
#include <deque>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "ucmstore/plugin_v1.h"

namespace {

using ucmstore::BlockId;
using ucmstore::Code;
using ucmstore::LookupDesc;
using ucmstore::Shard;
using ucmstore::ShardResult;
using ucmstore::Status;
using ucmstore::TaskDesc;
using ucmstore::TaskId;

constexpr std::size_t kMaxTasks = 4096;       // ended, but not yet waited for
constexpr std::size_t kMaxIncomplete = 1024;  // blocks; the oldest is given up for a new one

Status Refuse(const std::string& rule) {
  return Status::Error(Code::kInvalidArgument, "box: " + rule);
}

struct Block {
  std::vector<std::vector<std::byte>> shards;
  std::uint32_t missing = 0;
};

// Blocks by id, with their order of arrival; the oldest makes room.
class Blocks {
 public:
  [[nodiscard]] Block* Find(const BlockId& id) {
    const auto found = blocks_.find(id);
    return found == blocks_.end() ? nullptr : &found->second;
  }
  Block& Put(const BlockId& id, Block block, std::size_t limit) {
    while (blocks_.size() >= limit) Drop(order_.front());
    order_.push_back(id);
    return blocks_[id] = std::move(block);
  }
  Block Take(const BlockId& id) {
    Block block = std::move(blocks_.at(id));
    Drop(id);
    return block;
  }

 private:
  void Drop(BlockId id) {
    std::erase(order_, id);
    blocks_.erase(id);
  }
  std::map<BlockId, Block> blocks_;
  std::deque<BlockId> order_;
};

class Box final : public ucmstore::StoreV1 {
 public:
  Status Setup(const ucmstore::SetupV1& setup) noexcept override {
    shard_size_ = setup.shard_size;
    shards_per_block_ = setup.shards_per_block;
    max_blocks_ = static_cast<std::size_t>(setup.options[0].integer);  // the order of kOptions
    return Status::Ok();
  }

  Status Lookup(const LookupDesc& desc, std::uint8_t* found) noexcept override {
    if ((desc.flags & ~ucmstore::kLookupFlags) != 0) return Refuse("unknown lookup flags");
    const std::scoped_lock lock(mutex_);
    bool stopped = false;
    for (std::uint32_t i = 0; i < desc.count; ++i) {
      const bool hit = !stopped && visible_.Find(desc.blocks[i]) != nullptr;
      found[i] = hit ? ucmstore::kInMemory : ucmstore::kAbsent;
      stopped = !hit && (desc.flags & ucmstore::kStopAtMiss) != 0;
    }
    return Status::Ok();
  }

  Status Load(const TaskDesc& desc, TaskId* task) noexcept override {
    return Run(desc, task, &Box::LoadShard, false);
  }
  Status Dump(const TaskDesc& desc, TaskId* task) noexcept override {
    return Run(desc, task, &Box::DumpShard, true);
  }

  Status Check(TaskId task, bool* done) noexcept override {
    const std::scoped_lock lock(mutex_);
    *done = tasks_.contains(task);
    return *done ? Status::Ok() : Status::Error(Code::kNotFound, "box: no such task");
  }

  Status Wait(TaskId task, std::uint32_t /*timeout_ms*/) noexcept override {
    const std::scoped_lock lock(mutex_);
    const auto ended = tasks_.extract(task);
    return ended ? ended.mapped() : Status::Error(Code::kNotFound, "box: no such task");
  }

 private:
  using Move = Status (Box::*)(const Shard& shard, std::uint32_t* bytes);

  Status Run(const TaskDesc& desc, TaskId* task, Move move, bool dump) noexcept {
    *task = 0;
    try {
      if (Status bad = Refused(desc, dump); !bad.ok()) return bad;
      {
        const std::scoped_lock lock(mutex_);
        if (tasks_.size() >= kMaxTasks) {
          return Status::Error(Code::kBusy, "box: 4096 tasks wait to be waited for");
        }
        Status first;
        for (std::uint32_t i = 0; i < desc.shard_count; ++i) {
          std::uint32_t bytes = 0;
          const Status status = (this->*move)(desc.shards[i], &bytes);
          if (first.ok()) first = status;
          if (desc.results != nullptr) {
            desc.results[i] = ShardResult{status.code, status.sys_errno, bytes};
          }
        }
        *task = ++last_task_;
        tasks_.emplace(*task, first);
      }
      if (desc.on_done != nullptr) desc.on_done(desc.on_done_ctx, *task);
      return Status::Ok();
    } catch (const std::bad_alloc&) {  // no exception crosses the ABI
      *task = 0;
      return Status::Error(Code::kLimit, "box: out of memory");
    }
  }

  // The rules that hold before anything is touched.
  [[nodiscard]] Status Refused(const TaskDesc& desc, bool dump) const {
    if (desc.flags != 0) return Refuse("unknown task flags");
    for (const std::uint64_t reserve : desc.reserved) {
      if (reserve != 0) return Refuse("TaskDesc::reserved must be zero");
    }
    for (std::uint32_t i = 0; i < desc.shard_count; ++i) {
      const Shard& shard = desc.shards[i];
      const std::string name = "shard " + std::to_string(i);
      if (shard.index >= shards_per_block_) return Refuse(name + ": index out of range");
      std::uint64_t bytes = 0;
      for (std::uint32_t s = 0; s < shard.segment_count; ++s) {
        const ucmstore::Segment& segment = shard.segments[s];
        if (dump && segment.data == nullptr && segment.size != 0) {
          return Refuse(name + ": a dump from null memory");
        }
        // At most shard_size after each step, so the sum cannot overflow.
        if (segment.size > shard_size_ - bytes) return Refuse(name + ": more than shard_size");
        bytes += segment.size;
      }
      if (dump && bytes == 0) return Refuse(name + ": a dump without bytes");
    }
    return Status::Ok();
  }

  Status LoadShard(const Shard& shard, std::uint32_t* bytes) {
    Block* block = visible_.Find(shard.block);
    if (block == nullptr) return Status::Error(Code::kNotFound, "box: no such block");
    const std::vector<std::byte>& stored = block->shards[shard.index];
    *bytes = static_cast<std::uint32_t>(stored.size());
    if (shard.segment_count == 0) return Status::Ok();  // a prefetch: it is in memory already
    std::uint64_t room = 0;
    for (std::uint32_t s = 0; s < shard.segment_count; ++s) room += shard.segments[s].size;
    if (room < stored.size()) return Refuse("the destination is smaller than the shard");
    std::size_t at = 0;
    for (std::uint32_t s = 0; s < shard.segment_count && at < stored.size(); ++s) {
      const ucmstore::Segment& segment = shard.segments[s];
      const std::size_t size = std::min<std::size_t>(segment.size, stored.size() - at);
      if (segment.data != nullptr) std::memcpy(segment.data, stored.data() + at, size);
      at += size;
    }
    return Status::Ok();
  }

  Status DumpShard(const Shard& shard, std::uint32_t* bytes) {
    std::vector<std::byte> data;
    for (std::uint32_t s = 0; s < shard.segment_count; ++s) {
      const auto* begin = static_cast<const std::byte*>(shard.segments[s].data);
      data.insert(data.end(), begin, begin + shard.segments[s].size);
    }
    *bytes = static_cast<std::uint32_t>(data.size());
    if (visible_.Find(shard.block) != nullptr) return Status::Ok();  // there already: cheap
    Block* block = incomplete_.Find(shard.block);
    if (block == nullptr) {
      Block fresh{std::vector<std::vector<std::byte>>(shards_per_block_), shards_per_block_};
      block = &incomplete_.Put(shard.block, std::move(fresh), kMaxIncomplete);
    }
    if (block->shards[shard.index].empty()) --block->missing;  // a shard is never empty
    block->shards[shard.index] = std::move(data);
    // Visible all at once, when the last shard is in place: both moves are under the mutex.
    if (block->missing == 0) {
      visible_.Put(shard.block, incomplete_.Take(shard.block), max_blocks_);
    }
    return Status::Ok();
  }

  std::uint64_t shard_size_ = 0;
  std::uint32_t shards_per_block_ = 0;
  std::size_t max_blocks_ = 0;
  std::mutex mutex_;
  Blocks visible_;
  Blocks incomplete_;
  std::map<TaskId, Status> tasks_;
  TaskId last_task_ = 0;
};

constexpr ucmstore::OptionSpecV1 kOptions[] = {
    {.name = "max_blocks",
     .type = ucmstore::OptionType::kInt,
     .flags = 0,
     .default_text = "65536",
     .range = "1..1000000",
     .help = "how many blocks are kept"},
};

constexpr ucmstore::PluginV1 kPlugin = {
    .abi = ucmstore::kPluginAbi,
    .struct_size = sizeof(ucmstore::PluginV1),
    .name = "Box",
    .version = "1.0",
    .options = kOptions,
    .option_count = 1,
    .is_terminal = 1,
    .shard_overhead_bytes = 0,
    .content = nullptr,
    .create = []() -> ucmstore::StoreV1* { return new (std::nothrow) Box; },
    // Nothing moves between calls, so there is nothing to wait for: it is at rest, and freed.
    .destroy =
        [](ucmstore::StoreV1* store, std::uint32_t) {
          delete static_cast<Box*>(store);
          return true;
        },
    .query = nullptr,
};

}  // namespace

extern "C" const ucmstore::PluginV1* ucmstore_plugin_v1() { return &kPlugin; }
