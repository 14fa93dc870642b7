// SPDX-License-Identifier: Apache-2.0
//
// Prober: Finder's counterpart for file systems with somebody behind them (network, FUSE), where a
// probe takes a round trip, or never comes back. The caller never touches such a disk: threads of
// the prober's own ask, many at once and in order, and the caller waits for what it needs, until
// its deadline. A probe that hangs keeps its thread and its own copy of the ids, and nothing of the
// caller's; loads and dumps have other threads. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "store/posix/counters.h"
#include "store/posix/roots.h"
#include "store/posix/touches.h"
#include "task/thread_pool.h"
#include "ucmstore/types.h"

namespace ucmstore {

class Prober {
 public:
  // `own_bound`: how long a lookup without a deadline waits. `relief`: see ThreadPool. `touches`
  // (null: none) hears of the blocks that are found.
  Prober(std::uint32_t threads, milliseconds own_bound, ThreadStarter starter, Relief relief,
         PosixCounters& counters, Log& log, Touches* touches)
      : own_bound_(own_bound),
        counters_(counters),
        log_(log),
        touches_(touches),
        pool_(threads, std::move(starter), relief) {}

  // As TerminalStage::FindUntil.
  Status Find(std::shared_ptr<const RootSet> roots, std::span<const BlockId> blocks,
              std::uint32_t flags, TimePoint until, std::uint8_t* found);

  // Ends the threads. False: a probe still hangs at `until`.
  [[nodiscard]] bool End(TimePoint until);

 private:
  struct Batch;
  class Probe;

  [[nodiscard]] Status Start(const std::shared_ptr<Batch>& batch);

  const milliseconds own_bound_;
  PosixCounters& counters_;
  Log& log_;
  Touches* const touches_;
  ThreadPool pool_;
};

}  // namespace ucmstore
