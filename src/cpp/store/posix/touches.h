// SPDX-License-Identifier: Apache-2.0
//
// Touches: keeps the files of blocks that are used young, since reclaim goes by their times. A
// block that a lookup or a load has met, and whose time is older than the interval, is noted; a
// worker sets its time when there is nothing better to do. So a file's time changes once an
// interval at most, however many processes use it, and nobody waits. Bounded: what finds the list
// full is forgotten, and noted again by its next use. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "base/block_id_hash.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "store/posix/counters.h"
#include "store/posix/root.h"
#include "task/thread_pool.h"

namespace ucmstore {

class Touches final : public Job {
 public:
  Touches(ThreadPool& pool, PosixCounters& counters, milliseconds interval) noexcept
      : pool_(pool), counters_(counters), interval_ns_(interval.count() * 1'000'000) {}

  // A block was used that is in `home`, with this time.
  void Used(const std::shared_ptr<Root>& home, const BlockId& id, std::int64_t mtime_ns) noexcept {
    if (IsOld(mtime_ns)) Note(home, id);
  }

  // Drops what waits, and ends. False: one still hangs at `until`.
  [[nodiscard]] bool End(TimePoint until);

  void Run() noexcept override;

  static constexpr std::size_t kMaxWaiting = 16384;
  static constexpr std::size_t kInOneRun = 64;

 private:
  using Waiting = std::unordered_map<BlockId, std::shared_ptr<Root>, BlockIdHash>;

  [[nodiscard]] bool IsOld(std::int64_t mtime_ns) const noexcept;
  void Note(const std::shared_ptr<Root>& home, const BlockId& id) noexcept;
  // True: there is more.
  bool TouchSome();

  ThreadPool& pool_;
  PosixCounters& counters_;
  const std::int64_t interval_ns_;
  std::atomic<bool> full_{false};  // for a look without the lock

  Mutex mutex_;
  CondVar ended_;
  Waiting waiting_ UCMSTORE_GUARDED_BY(mutex_);
  bool running_ UCMSTORE_GUARDED_BY(mutex_) = false;
  bool closing_ UCMSTORE_GUARDED_BY(mutex_) = false;
};

}  // namespace ucmstore
