// SPDX-License-Identifier: Apache-2.0
//
// TerminalStage: everything of a terminal stage but its medium. It keeps the promises of StoreV1
// (checks, tasks, deadlines, cancellation, counted commit, bounded incomplete blocks, metrics) and
// asks a derived class for four things: Open, Find, Read, and Create of a BlockWriter. A medium of
// whole objects needs less: ObjectStage. See docs/plugins.md. Part of the SDK, NOT frozen: rebuild
// with each release. Thread-safety: StoreV1's. Find, Read and BlockWriter are called from many
// threads at once; they may block and may throw (an exception ends the shard with kInternal).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "task/segments.h"
#include "ucmstore/plugin_v1.h"

namespace ucmstore {

class Runtime;
class StageCore;  // stage_core.h: the engine behind a TerminalStage

// A stage's setup with values instead of tables. Valid as long as the stage.
class StageSetup {
 public:
  explicit StageSetup(const SetupV1& setup);

  std::uint64_t shard_size = 0;
  std::uint32_t shards_per_block = 0;
  std::string namespace_text;
  std::string namespace_label;
  std::array<std::uint8_t, 32> fingerprint{};
  std::string content;

  // The value of an option of the stage's own table. Requires: the table has it, with that type.
  [[nodiscard]] bool Bool(std::string_view name) const { return Find(name).integer != 0; }
  [[nodiscard]] std::int64_t Int(std::string_view name) const { return Find(name).integer; }
  [[nodiscard]] std::uint64_t Size(std::string_view name) const {
    return static_cast<std::uint64_t>(Find(name).integer);
  }
  [[nodiscard]] double Float(std::string_view name) const { return Find(name).number; }
  [[nodiscard]] const std::string& Text(std::string_view name) const { return Find(name).text; }
  [[nodiscard]] const std::vector<std::string>& List(std::string_view name) const {
    return Find(name).list;
  }

 private:
  struct Option {
    std::string name;
    std::int64_t integer;
    double number;
    std::string text;
    std::vector<std::string> list;
  };
  [[nodiscard]] const Option& Find(std::string_view name) const;
  std::vector<Option> options_;
};

// One shard on its way. Exactly one of Succeed and Fail ends it; a shard that its medium leaves
// without either fails with kInternal.
class ShardIo {
 public:
  ShardIo(std::uint32_t index, std::span<const Segment> segments) noexcept
      : index_(index), bytes_(TotalBytes(segments)), segments_(segments) {}

  [[nodiscard]] std::uint32_t index() const noexcept { return index_; }
  // Load: may be empty (prefetch), may skip. Dump: never empty, never null.
  [[nodiscard]] std::span<const Segment> segments() const noexcept { return segments_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }  // of all segments
  // Load: prefetch, so nothing is to be delivered. A medium without a cache just says Succeed.
  [[nodiscard]] bool prefetch() const noexcept { return segments_.empty(); }

  // `bytes`: the shard's length as stored.
  void Succeed(std::uint32_t bytes) noexcept { End(Status::Ok(), bytes); }
  void Fail(const Status& why, std::uint32_t bytes = 0) noexcept { End(why, bytes); }
  // Load: delivers `stored` into the segments and succeeds, or fails if they have too little room.
  void Deliver(std::span<const std::byte> stored) noexcept;
  // Load: true if the segments have room for a shard of `stored` bytes; else fails the shard.
  [[nodiscard]] bool HasRoomFor(std::uint32_t stored) noexcept;

  [[nodiscard]] bool ended() const noexcept { return ended_; }
  [[nodiscard]] const Status& status() const noexcept { return status_; }
  [[nodiscard]] std::uint32_t stored_bytes() const noexcept { return stored_bytes_; }

 private:
  void End(const Status& status, std::uint32_t bytes) noexcept;

  std::uint32_t index_;
  bool ended_ = false;
  std::uint32_t stored_bytes_ = 0;
  std::uint64_t bytes_;
  std::span<const Segment> segments_;
  Status status_;
};

// One attempt at writing one block. Destroyed without a Commit that succeeded, it removes every
// trace of itself; that happens only after all its Writes have returned, on any thread, and may
// block as the medium does.
class BlockWriter {
 public:
  virtual ~BlockWriter() = default;
  // Writes the shards and ends each. No two calls of one writer ever name the same shard, except
  // after it failed. `last`: all other shards have landed, so Commit follows if these succeed, and
  // the writer may do a part of it along with the data.
  virtual void Write(std::span<ShardIo> shards, bool last) = 0;
  // Makes the block visible by one atomic step. Called at most once, after all shards landed.
  virtual Status Commit() = 0;
  // The store closes, and there is no time left to remove what was written: the destructor, which
  // follows, must not block. Only for a medium that finds and removes such traces later, such as
  // when it is next opened; where nothing is done here, the destructor removes them as ever.
  virtual void Abandon() noexcept {}
};

class TerminalStage : public StoreV1 {
 public:
  Status Setup(const SetupV1& setup) noexcept final;
  Status Lookup(const LookupDesc& desc, std::uint8_t* found) noexcept final;
  Status Load(const TaskDesc& desc, TaskId* task) noexcept final;
  Status Dump(const TaskDesc& desc, TaskId* task) noexcept final;
  Status Check(TaskId task, bool* done) noexcept final;
  Status Wait(TaskId task, std::uint32_t timeout_ms) noexcept final;

  virtual ~TerminalStage();
  TerminalStage(const TerminalStage&) = delete;
  TerminalStage& operator=(const TerminalStage&) = delete;

  // What PluginV1 needs; see stage_plugin.h.
  // True: nothing moves any more, the stage may be deleted. False: it must be left alone for ever.
  [[nodiscard]] bool Close(std::uint32_t timeout_ms) noexcept;
  Status Cancel(TaskId task) noexcept;
  void VisitMetrics(void* ctx, void (*metric)(void* ctx, const MetricV1* metric)) noexcept;
  // See IdentityTableV1. "": what this store reaches no other process does. Called after Setup.
  [[nodiscard]] virtual std::string Identity() { return {}; }

 protected:
  explicit TerminalStage(std::string name);

  // Opens the medium. `setup` lives as long as the stage. Called once, from one thread.
  virtual Status Open(const StageSetup& setup) = 0;

  // Answers the blocks in order (kAbsent, kInMemory or kBelow). `found` comes zeroed. With
  // kStopAtMiss it may stop at the first miss. Called on the caller's thread.
  virtual Status Find(std::span<const BlockId> blocks, std::uint32_t flags,
                      std::uint8_t* found) = 0;

  // What Lookup asks: the same for a caller that waits until then at most (TimePoint::max(): as
  // long as the medium sees fit). What is not known by then is absent; kTimeout: nothing is. Nobody
  // touches `found` once it has returned. For a medium that may hang; others need not care.
  virtual Status FindUntil(std::span<const BlockId> blocks, std::uint32_t flags,
                           TimePoint /*until*/, std::uint8_t* found) {
    return Find(blocks, flags, found);
  }

  // Reads shards of one visible block and ends each: kNotFound if the block is absent.
  virtual void Read(const BlockId& block, std::span<ShardIo> shards) = 0;

  // Begins to write a block that is not visible. Cheap: costs nothing until the first Write.
  virtual Result<std::unique_ptr<BlockWriter>> Create(const BlockId& block) = 0;

  // Called at Close, when no task moves any more, before the destructor: ends what the medium does
  // by itself, at most until `until`. False: something still moves, and all must be left alone.
  [[nodiscard]] virtual bool Shut(TimePoint /*until*/) { return true; }

  // Adds the medium's own figures to the stage's.
  virtual void VisitOwnMetrics(const std::function<void(const MetricV1&)>& /*metric*/) {}

  [[nodiscard]] const StageSetup& setup() const noexcept { return *setup_; }
  [[nodiscard]] Runtime& runtime() const noexcept;
  [[nodiscard]] Log& log() const noexcept;

 private:
  friend class StageCore;
  std::string name_;
  std::optional<StageSetup> setup_;
  std::unique_ptr<StageCore> core_;
};

}  // namespace ucmstore
