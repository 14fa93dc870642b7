// SPDX-License-Identifier: Apache-2.0
//
// StoreV1: the one interface of this system. A store keeps blocks, each named by a 16-byte id and
// made of `shards_per_block` shards of at most `shard_size` bytes. Six methods; a stage implements
// them, a pipeline stacks stages, an engine calls the topmost. FROZEN: an addition is StoreV2.
// The descriptors may grow: they carry their size, flags and a zeroed reserve, and a store refuses
// flags it does not know and reserve that is not zero.
//
// Thread-safety: after Setup has returned, every method may be called from any thread at once.
//
// Promises, each of every store, each with a test in tests/cpp/store_contract_test.cc:
//
//  1. Lookup is advisory: a hit is a hint. It answers each block by itself, or up to the first
//     miss if asked; duplicates are allowed.
//  2. A block becomes visible only after all its shards have landed, and then at once. Shards come
//     in any order, in one task or in many. A terminal stage assembles a block within one open
//     store; halves from two stores are never joined. A block may be made of shards of different
//     dumps, a shard never mixes bytes of two. Ok from Wait on a dump into a still incomplete
//     block means accepted: neither visible nor surviving. Incomplete blocks are bounded in number
//     and age; the late shards of an aborted one end kAborted, and dumping a shard of it again
//     begins anew. Dumping a visible block again is a cheap success.
//  3. A load gives exactly what was dumped, or fails for that shard. Never stale, mixed, torn, or
//     another block's bytes. After a failure the content of the destination is unspecified.
//  4. One bad shard does not spoil its task: results[i] tells each shard's code and length; Wait
//     returns the first error.
//  5. Every task ends in bounded time. When Wait has returned anything but kPending, the store
//     touches the task's memory no more: a deadline cancels what has not begun and outwaits what
//     moves.
//  6. Check never retires; Wait retires exactly once; an unknown or retired task is kNotFound. A
//     full task table is kBusy. An error from Load or Dump itself means: no task, nothing touched.
//     The arrays of shards and segments are copied; `results` and the data they name must live
//     until Wait has retired the task. Zero shards is a finished task. A Load whose shard has no
//     segments is a prefetch; a Dump whose shard has none, or no bytes, is refused.
//  7. A dump may give fewer bytes than shard_size; the length is kept, and comes back in
//     results[i].bytes. More is refused whole. A load's segments must have room for that length
//     and at most shard_size; bytes beyond the length are left alone.
//  8. A failure is forgotten once the data is good again; a transient error never destroys good
//     data.
#pragma once

#include "ucmstore/status.h"
#include "ucmstore/types.h"

namespace ucmstore {

struct SetupV1;  // plugin_v1.h

// LookupDesc::flags
inline constexpr std::uint32_t kStopAtMiss = 1U << 0;  // answers past the first miss stay 0
inline constexpr std::uint32_t kNoTouch = 1U << 1;     // does not make the blocks hotter
inline constexpr std::uint32_t kLookupFlags = kStopAtMiss | kNoTouch;

// What Lookup writes for one block.
inline constexpr std::uint8_t kAbsent = 0;
inline constexpr std::uint8_t kInMemory = 1;
inline constexpr std::uint8_t kBelow = 2;  // present, but not in memory: a load goes to the medium

struct LookupDesc {
  std::uint32_t struct_size = sizeof(LookupDesc);
  std::uint32_t flags = 0;
  const BlockId* blocks = nullptr;
  std::uint32_t count = 0;
  std::uint32_t timeout_ms = 0;  // 0: the store's own bound; blocks not answered by then are absent
};

struct TaskDesc {
  std::uint32_t struct_size = sizeof(TaskDesc);
  std::uint32_t flags = 0;  // none defined yet
  const Shard* shards = nullptr;
  ShardResult* results = nullptr;  // one for each shard, or null: the caller does not want them
  std::uint32_t shard_count = 0;
  std::uint32_t timeout_ms = 0;  // the task's deadline from now; 0: none
  std::int32_t priority = 0;     // higher goes first among the tasks of its kind
  std::int32_t device = -1;      // where the segments live; -1: host memory
  void* stream = nullptr;        // device only
  void* ready_event = nullptr;   // device only: wait for it before touching the segments
  void* done_event = nullptr;    // device only: recorded when the segments are free
  // Called exactly once when the task has ended, on any thread, perhaps before Load or Dump has
  // returned. Must not block; may call Check and Wait of this task (they see it ended). A Wait on
  // another thread does not return before the callback has.
  void (*on_done)(void* ctx, TaskId task) = nullptr;
  void* on_done_ctx = nullptr;
  std::uint64_t tenant = 0;
  std::uint64_t reserved[3] = {};
};

class StoreV1 {
 public:
  // Opens the store. Called once, before anything else, from one thread. After an error only
  // destroy may follow.
  virtual Status Setup(const SetupV1& setup) noexcept = 0;

  // Writes desc.count answers (kAbsent, kInMemory, kBelow) to `found`. An error means that no
  // answer could be had; `found` is then all kAbsent.
  virtual Status Lookup(const LookupDesc& desc, std::uint8_t* found) noexcept = 0;

  // Begins to move shards from the store to memory, or from memory to the store, and writes the
  // task's id to `task`. On an error there is no task and `*task` is 0.
  virtual Status Load(const TaskDesc& desc, TaskId* task) noexcept = 0;
  virtual Status Dump(const TaskDesc& desc, TaskId* task) noexcept = 0;

  // Says whether the task has ended, at once. Never retires it.
  virtual Status Check(TaskId task, bool* done) noexcept = 0;

  // Waits until the task has ended, at most timeout_ms (0: only looks), and retires it: its id is
  // unknown afterwards. kPending: still running, not retired. Else ok or the task's first error.
  virtual Status Wait(TaskId task, std::uint32_t timeout_ms) noexcept = 0;

 protected:
  // Not public and not virtual: only PluginV1::destroy of the plugin that created it ends a stage.
  ~StoreV1() = default;
};

static_assert(sizeof(LookupDesc) == 24 && sizeof(TaskDesc) == 112 && sizeof(StoreV1) == 8);

}  // namespace ucmstore
