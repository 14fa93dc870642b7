// SPDX-License-Identifier: Apache-2.0
//
// Pipeline: an open store, as an engine holds it. Parses a spec such as "Cache|Compress|Posix",
// finds and checks the plugins, computes geometry and content top-down, builds the stages bottom-up
// and ends them top-down. Adds what is the same for every stack: prefix lookup, prefetch,
// completions on a descriptor, and words instead of crashes after close and after fork. The C++
// face of ucmstore; NOT frozen.
// Thread-safety: every method may be called from any thread at once, Close included.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "block_id/namespace.h"
#include "options/option_input.h"
#include "pipeline/lease.h"
#include "ucmstore/plugin_v1.h"
#include "ucmstore/store_v1.h"

namespace ucmstore {

struct PipelineConfig {
  std::string spec;                    // topmost first; grammar: pipeline/spec.h
  std::uint64_t shard_size = 0;        // bytes, 1 ..= 4 GiB - 1
  std::uint32_t shards_per_block = 1;  // 1 ..= 65536
  StageOptions options;
  LogSink* log_sink = nullptr;  // must outlive the process' use of the store; null: stderr
};

struct StageMetric {
  std::string stage;  // "posix"; the n-th of a name that occurs again: "fault#2"
  std::string name;
  MetricKind kind;
  double value;
};

class UCMSTORE_EXPORT Pipeline {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Pipeline>> Open(const PipelineConfig& config,
                                                              const Namespace& name_space);
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;
  // Closes, waiting as long as the store option close_timeout_ms says; not at all if Close was
  // called before. In a forked child: does nothing.
  ~Pipeline();

  [[nodiscard]] Status Lookup(const LookupDesc& desc, std::uint8_t* found) noexcept;
  // The number of leading hits.
  [[nodiscard]] Result<std::uint32_t> LookupPrefix(std::span<const BlockId> blocks,
                                                   std::uint32_t flags = 0,
                                                   std::uint32_t timeout_ms = 0) noexcept;

  // As StoreV1. `on_done` and its context may be used by the caller as there. A task for which
  // `desc.on_done` is null is also announced through Poll.
  [[nodiscard]] Result<TaskId> Load(const TaskDesc& desc) noexcept;
  [[nodiscard]] Result<TaskId> Dump(const TaskDesc& desc) noexcept;
  // A load of whole blocks with no destination.
  [[nodiscard]] Result<TaskId> Prefetch(std::span<const BlockId> blocks,
                                        std::uint32_t timeout_ms = 0) noexcept;
  [[nodiscard]] Result<bool> Check(TaskId task) noexcept;
  [[nodiscard]] Status Wait(TaskId task, std::uint32_t timeout_ms) noexcept;
  [[nodiscard]] Status Cancel(TaskId task) noexcept;  // best effort

  // Leases of blocks in the topmost stage's memory, to be read or filled in place; plugin_v1.h says
  // what each block's code means. Fewer blocks than asked for is no error here: see
  // Lease::refusal. kUnsupported: the topmost stage has none to give (Cache has).
  // Pins blocks that are whole and in memory.
  [[nodiscard]] Result<std::unique_ptr<Lease>> Acquire(std::span<const BlockId> blocks) noexcept;
  // Claims room for shards of blocks that are not visible. May wait for the store below.
  [[nodiscard]] Result<std::unique_ptr<Lease>> Reserve(std::span<const BlockId> blocks,
                                                       std::uint32_t first_shard,
                                                       std::uint32_t shard_count) noexcept;
  // Where all leases lie, to be registered with a device. Mapped until Close, and as long as there
  // is a Lease.
  [[nodiscard]] Result<LeaseMemoryV1> RingMemory() noexcept;

  // A descriptor (eventfd) that is readable while ended, unretired tasks wait for Poll. Owned by
  // the pipeline, valid until Close.
  [[nodiscard]] int event_fd() const noexcept;
  // Takes up to tasks.size() ended tasks, each announced once and never after it was retired.
  // Retires none. Clears the descriptor when none is left.
  [[nodiscard]] std::size_t Poll(std::span<TaskId> tasks) noexcept;

  [[nodiscard]] std::vector<StageMetric> Stats() const;
  [[nodiscard]] const PipelineConfig& config() const noexcept;
  [[nodiscard]] std::uint64_t block_size() const noexcept;  // shard_size * shards_per_block

  // Ends the store: cancels what has not begun, waits at most timeout_ms for what moves. What still
  // moves then is left to itself, and kBusy is returned: its memory must stay. Calls in progress on
  // other threads end with kClosed, as does every call afterwards; a Wait cancels its task, and may
  // still return how that ended. After kClosed from Wait, the task's memory is the caller's again
  // when Close has returned ok. Closing again is ok. Leases are not waited for: their memory stays.
  [[nodiscard]] Status Close(std::uint32_t timeout_ms) noexcept;

 private:
  class State;
  explicit Pipeline(std::unique_ptr<State> state);
  [[nodiscard]] Result<std::unique_ptr<Lease>> LeaseWith(
      std::size_t count, const std::function<Status(LeaseBookHandle&, Lease&)>& ask) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace ucmstore
