// SPDX-License-Identifier: Apache-2.0
//
// Uses: lets the store below know which blocks are used in the ring, since it sees none of those
// hits, and may remove what it takes for cold. It is told by a lookup there, which is what makes a
// block young; so no stage between has to know of it. A block is told of once in kTellEvery at
// most by each process, and the store below looks at the block's own time before it does anything.
// A worker tells, in batches; the caller only looks into a table. Bounded: what finds the list full
// is forgotten, and comes back with its next use. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "task/thread_pool.h"
#include "ucmstore/types.h"

namespace ucmstore {

class Uses final : public Job {
 public:
  using Tell = std::function<void(std::span<const BlockId> blocks)>;
  // `slots`: of the ring. `tell` runs on a worker and must not throw.
  Uses(ThreadPool& pool, const Clock& clock, std::uint32_t slots, Tell tell);

  // These were asked for; `found[i] == kInMemory`: block i was here.
  void Used(std::span<const BlockId> blocks, const std::uint8_t* found) noexcept;

  // Drops what waits, and ends. False: the store below still hangs at `until`.
  [[nodiscard]] bool End(TimePoint until);

  void Run() noexcept override;

  // Half of the interval in which Posix touches a block, so that none is missed for a whole one.
  static constexpr milliseconds kTellEvery{30'000};
  static constexpr std::size_t kMaxWaiting = 16384;
  static constexpr milliseconds kPause{1'000};  // between two batches

 private:
  [[nodiscard]] bool IsDue(const BlockId& block, std::uint32_t now_s) noexcept;

  ThreadPool& pool_;
  const Clock& clock_;
  const Tell tell_;
  // By the block's hash: the second in which it was last told of or first seen; 0: not yet. Of
  // blocks that share a place the one that is used first is told of: now this, now that.
  std::uint64_t mask_;
  std::unique_ptr<std::atomic<std::uint32_t>[]> told_;

  Mutex mutex_;
  CondVar ended_;
  std::vector<BlockId> waiting_ UCMSTORE_GUARDED_BY(mutex_);
  TimePoint not_before_ UCMSTORE_GUARDED_BY(mutex_) = TimePoint::min();
  bool running_ UCMSTORE_GUARDED_BY(mutex_) = false;
  bool closing_ UCMSTORE_GUARDED_BY(mutex_) = false;
};

}  // namespace ucmstore
