// SPDX-License-Identifier: Apache-2.0
//
// Finder: answers whether blocks are there, by one stat each: the file name is the index, whatever
// is stored. The caller asks alone at first; if much is left, a few workers help: a fresh miss
// costs the kernel several microseconds, on a cold disk a hundred, and they overlap. Caller and
// helpers take chunks from a common cursor, so the caller never waits for a helper that has not
// begun. A deadline is looked at between chunks: for the file systems of this machine, which
// answer; others have a Prober. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "store/posix/counters.h"
#include "store/posix/roots.h"
#include "store/posix/touches.h"
#include "task/thread_pool.h"
#include "ucmstore/types.h"

namespace ucmstore {

class Finder {
 public:
  // The blocks of a dead root are absent. `touches` (null: none) hears of those that are found.
  Finder(const Roots& roots, ThreadPool& pool, PosixCounters& counters, Log& log, Touches* touches);

  // As TerminalStage::FindUntil. An error only if nothing could be learnt at all.
  Status Find(std::span<const BlockId> blocks, std::uint32_t flags, TimePoint until,
              std::uint8_t* found);

 private:
  static constexpr std::size_t kChunk = 32;
  static constexpr std::size_t kWorthHelp = 64;  // fewer are not worth a wake-up
  static constexpr std::uint32_t kMaxHelpers = 7;
  static constexpr std::chrono::microseconds kSlow{20};  // a stat that waits for the disk

  struct Batch;
  class Assistant;

  // Takes one chunk. False: none was left.
  bool WorkOnce(Batch& batch) const noexcept;
  void WorkTogether(const std::shared_ptr<Batch>& batch, std::uint32_t helpers);

  const Roots& roots_;
  ThreadPool& pool_;
  PosixCounters& counters_;
  Log& log_;
  Touches* const touches_;
  const std::uint32_t usual_helpers_;  // as many as there are other CPUs
};

// 1 present, 0 absent, or a negative errno. FindIn only asks the disk; the others keep to the
// roots' breakers: what lies in a root that rests is absent. `mtime_ns` gets the time of one that
// is present.
[[nodiscard]] int FindIn(const Root& root, const BlockId& id,
                         std::int64_t* mtime_ns = nullptr) noexcept;
[[nodiscard]] int Probe(const Root& root, const BlockId& id,
                        std::int64_t* mtime_ns = nullptr) noexcept;
// `touches` (null: nobody) hears of one that is present.
[[nodiscard]] int FindBlock(const RootSet& roots, const BlockId& id, Touches* touches) noexcept;

}  // namespace ucmstore
