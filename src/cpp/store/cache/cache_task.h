// SPDX-License-Identifier: Apache-2.0
//
// CacheTask: a task of a Cache stage, with the phase of each shard. The ring's memory shields the
// caller's: I/O below lands in a slot, and only a copy, or a shard that goes past the ring,
// touches the caller's memory. So a shard can be ended at any time, but while it moves.
//
//   waiting --BeginMove--> moving --EndMoved--> ended
//      ^  \                  |
//      |   \--EndWaiting-----)------------------> ended   (deadline, cancellation, failure below)
//      +-------EndMove-------+
//
// Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "task/task.h"
#include "task/timer.h"

namespace ucmstore {

class CacheStage;

class CacheTask final : public Task {
 public:
  CacheTask(CacheStage& stage, TaskKind kind, const TaskDesc& desc);

  // ---- the phase of shard i, a position in the task ----
  // False: it has ended, or moves elsewhere.
  [[nodiscard]] bool BeginMove(std::size_t i) noexcept {
    return Change(i, Phase::kWaiting, Phase::kMoving);
  }
  // It moves no more and waits again, or ends if the task was stopped meanwhile. Requires:
  // BeginMove returned true.
  void EndMove(std::size_t i) noexcept;
  void EndMoved(std::size_t i, const Status& status, std::uint32_t bytes) noexcept;
  // Nothing if it moves, or has ended.
  void EndWaiting(std::size_t i, const Status& status, std::uint32_t bytes = 0) noexcept;
  [[nodiscard]] bool Waits(std::size_t i) const noexcept {
    return phases_[i].load() == Phase::kWaiting;
  }
  // Ends all that wait, and all that will.
  void Stop(const Status& why) noexcept;
  // kOk while the task goes on.
  [[nodiscard]] Code stopped() const noexcept { return stopped_.load(); }
  [[nodiscard]] Status StopStatus() const noexcept;

  // ---- its blocks: runs of shards of one block, numbered in the task's order ----
  [[nodiscard]] std::uint32_t block_count() const noexcept {
    return static_cast<std::uint32_t>(starts_.size() - 1);
  }
  [[nodiscard]] const BlockId& BlockAt(std::uint32_t block) const noexcept {
    return shards()[starts_[block]].block;
  }
  // The positions of its shards that wait.
  [[nodiscard]] std::vector<std::uint32_t> WaitingOf(std::uint32_t block) const;
  void EndBlock(std::uint32_t block, const Status& status) noexcept;  // as EndWaiting
  // Blocks [begin, end), taken by one worker. Smaller and smaller shares, so that all of so many
  // workers end at about the same time. Empty: none is left.
  struct Share {
    std::uint32_t begin;
    std::uint32_t end;
    [[nodiscard]] bool empty() const noexcept { return begin == end; }
  };
  [[nodiscard]] Share TakeShare(std::uint32_t workers, std::uint32_t least,
                                std::uint32_t most) noexcept;
  void SetWorkers(std::uint32_t workers) noexcept { workers_.store(workers); }
  // Each says so once, when there is nothing left to take. True: all others have.
  [[nodiscard]] bool LastWorkerEnds() noexcept { return workers_.fetch_sub(1) == 1; }

  // ---- tasks of the store below that move shards straight to the caller's memory ----
  // To be cancelled with this one; see CacheStage::Bypass.
  void AddBelow(TaskId below) noexcept;  // without memory it is only not cancelled
  void RemoveBelow(TaskId below) noexcept;
  [[nodiscard]] std::vector<TaskId> Below() const;

  // What is left of the task's time, for the store below: 0 is none given, so at least 1.
  [[nodiscard]] std::uint32_t TimeoutLeft() const noexcept;

  const TimePoint begun;
  const TimePoint deadline;  // max: none
  const std::uint64_t tenant;
  std::shared_ptr<CacheTask> self;       // until it has ended
  std::atomic<Timer::EntryId> timer{0};  // of the deadline

 private:
  enum class Phase : std::uint8_t { kWaiting, kMoving, kEnded };

  void OnFinish() noexcept override;
  [[nodiscard]] bool Change(std::size_t i, Phase from, Phase to) noexcept {
    return phases_[i].compare_exchange_strong(from, to);
  }
  void Tell(std::size_t i, const Status& status, std::uint32_t bytes) noexcept;

  CacheStage& stage_;
  std::vector<std::atomic<Phase>> phases_;
  std::vector<std::uint32_t> starts_;  // of the blocks, and the end
  std::atomic<std::uint32_t> next_block_{0};
  std::atomic<std::uint32_t> workers_{0};
  std::atomic<Code> stopped_{Code::kOk};
  mutable Mutex mutex_;
  std::vector<TaskId> below_ UCMSTORE_GUARDED_BY(mutex_);
};

using CacheTaskPtr = std::shared_ptr<CacheTask>;

}  // namespace ucmstore
