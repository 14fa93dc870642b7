// SPDX-License-Identifier: Apache-2.0
//
// Task: one load or dump in flight. Owns copies of the caller's arrays of shards and segments, not
// the memory they name. Counts its shards down; the one that ends last ends the task: first the
// state says so, then on_done is called, then waiters on other threads return. So a callback may
// check and wait for its own task, and nobody frees the callback's context under it.
// Thread-safety: all methods, from any thread, except where they say otherwise.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "task/segments.h"
#include "ucmstore/store_v1.h"

namespace ucmstore {

class Task : public std::enable_shared_from_this<Task> {
 public:
  // Copies what `desc` points to. Requires: CheckTask accepted it.
  Task(TaskKind kind, const TaskDesc& desc);
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  virtual ~Task() = default;

  [[nodiscard]] TaskKind kind() const noexcept { return kind_; }
  [[nodiscard]] TaskId id() const noexcept { return id_; }
  [[nodiscard]] std::span<const Shard> shards() const noexcept { return shards_; }
  [[nodiscard]] std::int32_t priority() const noexcept { return priority_; }
  [[nodiscard]] std::uint32_t timeout_ms() const noexcept { return timeout_ms_; }

  // Ends shard i (a position in the task). Only the first call for a shard counts; it returns true.
  // The call that ends the last shard ends the task, and with it the caller's memory is free: do
  // not touch a shard's segments after ending it.
  bool EndShard(std::size_t i, const Status& status, std::uint32_t bytes) noexcept;
  // The same in two steps, for who must do something between winning a shard's end and telling it.
  // After ClaimEnd has returned true, EndClaimed must follow.
  [[nodiscard]] bool ClaimEnd(std::size_t i) noexcept {
    return !ended_[i].exchange(true, std::memory_order_relaxed);
  }
  void EndClaimed(std::size_t i, const Status& status, std::uint32_t bytes) noexcept;
  [[nodiscard]] bool ShardEnded(std::size_t i) const noexcept;

  // For a task of no shards: ends it. Requires: shards().empty(), called once.
  void EndEmpty() noexcept { Finish(); }

  // True once the task has ended, as seen by this thread: inside on_done already.
  [[nodiscard]] bool Ended() noexcept;
  // Waits for that, at most until `until`.
  [[nodiscard]] bool AwaitEnd(TimePoint until) noexcept;
  // The first error, or ok. Requires: Ended.
  [[nodiscard]] Status status() noexcept;

 protected:
  // Called once, when every shard has ended, before the task's end is visible to anybody.
  virtual void OnFinish() noexcept {}

 private:
  friend class TaskTable;
  enum class State : std::uint8_t { kRunning, kCallingBack, kEnded };

  void Finish() noexcept;
  bool EndedLocked() const UCMSTORE_REQUIRES(mutex_);

  const TaskKind kind_;
  const std::int32_t priority_;
  const std::uint32_t timeout_ms_;
  TaskId id_ = 0;  // set by TaskTable::Insert, before anything else sees the task
  void (*const on_done_)(void*, TaskId);
  void* const on_done_ctx_;
  ShardResult* const results_;  // the caller's, or null
  std::vector<Shard> shards_;
  std::vector<Segment> segments_;
  std::vector<std::atomic<bool>> ended_;
  std::atomic<std::size_t> remaining_;

  Mutex mutex_;
  CondVar changed_;
  State state_ UCMSTORE_GUARDED_BY(mutex_) = State::kRunning;
  std::thread::id finisher_ UCMSTORE_GUARDED_BY(mutex_);
  Status first_error_ UCMSTORE_GUARDED_BY(mutex_);
};

}  // namespace ucmstore
