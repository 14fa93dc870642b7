// SPDX-License-Identifier: Apache-2.0
//
// The life of a task: counting shards down, and the order in which its end becomes known.
#include "task/task.h"

namespace ucmstore {

Task::Task(TaskKind kind, const TaskDesc& desc)
    : kind_(kind),
      priority_(desc.priority),
      timeout_ms_(desc.timeout_ms),
      on_done_(desc.on_done),
      on_done_ctx_(desc.on_done_ctx),
      results_(desc.results),
      shards_(desc.shards, desc.shards + desc.shard_count),
      ended_(desc.shard_count),
      remaining_(desc.shard_count) {
  std::size_t total = 0;
  for (const Shard& shard : shards_) total += shard.segment_count;
  segments_.reserve(total);  // never reallocates below, so the pointers into it stay
  for (Shard& shard : shards_) {
    const Segment* copy = segments_.data() + segments_.size();
    segments_.insert(segments_.end(), shard.segments, shard.segments + shard.segment_count);
    shard.segments = copy;
  }
}

bool Task::EndShard(std::size_t i, const Status& status, std::uint32_t bytes) noexcept {
  if (!ClaimEnd(i)) return false;
  EndClaimed(i, status, bytes);
  return true;
}

void Task::EndClaimed(std::size_t i, const Status& status, std::uint32_t bytes) noexcept {
  if (results_ != nullptr) {
    results_[i] = {.code = status.code, .sys_errno = status.sys_errno, .bytes = bytes};
  }
  if (!status.ok()) {
    const MutexLock lock(mutex_);
    if (first_error_.ok()) first_error_ = status;
  }
  // Release: this shard's result and data; acquire: those of all others, for whoever ends the task.
  if (remaining_.fetch_sub(1, std::memory_order_acq_rel) == 1) Finish();
}

bool Task::ShardEnded(std::size_t i) const noexcept {
  return ended_[i].load(std::memory_order_relaxed);
}

void Task::Finish() noexcept {
  // A waiter may drop the table's reference as soon as it wakes.
  const std::shared_ptr<Task> keep = shared_from_this();
  OnFinish();
  if (on_done_ != nullptr) {
    {
      const MutexLock lock(mutex_);
      state_ = State::kCallingBack;
      finisher_ = std::this_thread::get_id();
    }
    on_done_(on_done_ctx_, id_);
  }
  const MutexLock lock(mutex_);
  state_ = State::kEnded;
  changed_.NotifyAll();
}

bool Task::EndedLocked() const {
  return state_ == State::kEnded ||
         (state_ == State::kCallingBack && finisher_ == std::this_thread::get_id());
}

bool Task::Ended() noexcept {
  const MutexLock lock(mutex_);
  return EndedLocked();
}

bool Task::AwaitEnd(TimePoint until) noexcept {
  const MutexLock lock(mutex_);
  while (!EndedLocked()) {
    if (!changed_.WaitUntil(mutex_, until)) return EndedLocked();
  }
  return true;
}

Status Task::status() noexcept {
  const MutexLock lock(mutex_);
  return first_error_;
}

}  // namespace ucmstore
