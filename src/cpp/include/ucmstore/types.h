// SPDX-License-Identifier: Apache-2.0
//
// The plain data that crosses the StoreV1 interface: block ids, caller memory, shards and their
// results. FROZEN: these layouts are part of the plugin ABI; tests/cpp/abi_test.cc holds every
// size, offset and value. Standard library only. No type here owns memory.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>

// What a shared object shows: a plugin its entry point, libucmstore.so the pipeline's classes.
#if defined(__GNUC__)
#define UCMSTORE_EXPORT __attribute__((visibility("default")))
#else
#define UCMSTORE_EXPORT
#endif

namespace ucmstore {

// A block id: a hash of everything that determines the block's content, chained over its prefix.
// Opaque to every stage; uniformly distributed, so its first digits may choose a folder or a root.
struct BlockId {
  std::array<std::byte, 16> bytes;

  friend auto operator<=>(const BlockId&, const BlockId&) = default;
};

// One contiguous piece of caller memory. In a Load, `data == nullptr` skips `size` bytes of the
// shard. In a Dump, `data` must not be null.
struct Segment {
  void* data;
  std::uint64_t size;
};

// One fixed-size slice of a block, and the segments it moves from or to, in order.
// `index` is the slice's place in its block: 0 <= index < shards_per_block.
struct Shard {
  BlockId block;
  const Segment* segments;
  std::uint32_t segment_count;
  std::uint32_t index;
};

// How a call, a task or a shard ended. Values are frozen; new ones are added at the end, and a
// caller treats a value it does not know as an error.
enum class Code : std::int32_t {
  kOk = 0,
  kPending = 1,          // not finished yet; not an error, and nothing was retired
  kNotFound = 2,         // no such block, or no such task
  kInvalidArgument = 3,  // the caller broke a rule that the message names
  kUnsupported = 4,      // this stage, role or file system cannot do that
  kBusy = 5,             // a bounded table or queue is full; try again later
  kNoSpace = 6,          // the medium is full (ENOSPC, EDQUOT) or over its capacity
  kTimeout = 7,          // the task's deadline passed before this shard had begun
  kCancelled = 8,        // cancelled before this shard had begun
  kAborted = 9,          // the incomplete block that this shard belongs to was given up
  kCorruption = 10,      // stored bytes differ from what was written
  kIoError = 11,         // the medium failed; `sys_errno` says how
  kLimit = 12,           // a limit of the operating system was hit; the message names it
  kClosed = 13,          // the store is closed, or was opened in another process (fork)
  kInternal = 14,        // a defect of the stage itself, such as an exception in a worker
};

// One shard's outcome. `bytes` is the length of the shard as stored: what a Load delivered, or
// what a Dump wrote. On kInvalidArgument for a too small destination it is the length needed.
struct ShardResult {
  Code code;
  std::int32_t sys_errno;  // errno of the call that failed, or 0
  std::uint32_t bytes;
};

// Names one load or dump in flight, within the store that returned it. 0 is never a task.
using TaskId = std::uint64_t;

static_assert(sizeof(BlockId) == 16 && alignof(BlockId) == 1);
static_assert(sizeof(Segment) == 16 && sizeof(Shard) == 32 && sizeof(ShardResult) == 12);

}  // namespace ucmstore
