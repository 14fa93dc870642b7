// SPDX-License-Identifier: Apache-2.0
//
// Shelf: a terminal stage of one's own in some sixty lines, built from the SDK. The medium is a
// map in memory; TerminalStage brings everything else: checks, tasks, deadlines, counted commit,
// bounds. Thread-safe, as a medium must be: one mutex around the map.
#include <map>
#include <mutex>

#include "task/stage_plugin.h"
#include "task/terminal_stage.h"

namespace {

using namespace ucmstore;  // NOLINT(google-build-using-namespace): short is the point here
using Block = std::map<std::uint32_t, std::vector<std::byte>>;  // shard index to bytes

class Shelf final : public TerminalStage {
 public:
  Shelf() : TerminalStage("Shelf") {}

 private:
  struct Writer final : BlockWriter {
    Writer(Shelf& shelf, const BlockId& id) : shelf_(shelf), id_(id) {}
    void Write(std::span<ShardIo> shards, bool /*last*/) override {
      const std::scoped_lock lock(shelf_.mutex_);
      for (ShardIo& shard : shards) {
        std::vector<std::byte>& bytes = block_[shard.index()];
        bytes.resize(shard.bytes());
        shard.Succeed(static_cast<std::uint32_t>(Gather(shard.segments(), bytes)));
      }
    }
    Status Commit() override {
      const std::scoped_lock lock(shelf_.mutex_);
      shelf_.blocks_[id_] = std::move(block_);
      return Status::Ok();
    }
    Shelf& shelf_;
    BlockId id_;
    Block block_;
  };

  Status Open(const StageSetup& /*setup*/) override { return Status::Ok(); }
  Status Find(std::span<const BlockId> ids, std::uint32_t /*flags*/, std::uint8_t* found) override {
    const std::scoped_lock lock(mutex_);
    for (const BlockId& id : ids) *found++ = blocks_.contains(id) ? kInMemory : kAbsent;
    return Status::Ok();
  }
  void Read(const BlockId& id, std::span<ShardIo> shards) override {
    const std::scoped_lock lock(mutex_);
    const auto block = blocks_.find(id);
    for (ShardIo& shard : shards) {
      if (block != blocks_.end()) {
        shard.Deliver(block->second.at(shard.index()));
      } else {
        shard.Fail(Status::Error(Code::kNotFound, "not on the shelf"));
      }
    }
  }
  Result<std::unique_ptr<BlockWriter>> Create(const BlockId& id) override {
    return std::make_unique<Writer>(*this, id);
  }

  std::mutex mutex_;
  std::map<BlockId, Block> blocks_;
};

}  // namespace

extern "C" const PluginV1* ucmstore_plugin_v1() {
  static constexpr auto kTable = MakePlugin<Shelf>("Shelf", "1.0", {});
  return &kTable;
}
