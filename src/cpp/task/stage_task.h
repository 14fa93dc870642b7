// SPDX-License-Identifier: Apache-2.0
//
// StageTask: a task of a TerminalStage, with its jobs. A job is a run of consecutive shards of one
// block, so that a medium sees whole blocks where the caller gave whole blocks. The task keeps
// itself alive until it has ended, and with it the jobs that the pool's queue points to.
// Thread-safe where Task is; the public members are set before the first job is queued.
#pragma once

#include <atomic>
#include <deque>
#include <memory>

#include "task/stage_core.h"

namespace ucmstore {

class StageCore::BlockJob final : public Job {
 public:
  BlockJob(StageTask& task, std::uint32_t first) noexcept : task_(task), first_(first) {}
  void Run() noexcept override;

  [[nodiscard]] StageTask& task() const noexcept { return task_; }
  [[nodiscard]] std::uint32_t first() const noexcept { return first_; }  // position in the task
  [[nodiscard]] std::uint32_t count() const noexcept { return count_; }
  void Grow() noexcept { ++count_; }

  // Set when all that this job itself moves has ended: what is left follows another dump, and may
  // be ended at any time.
  std::atomic<bool> following{false};

 private:
  StageTask& task_;
  const std::uint32_t first_;
  std::uint32_t count_ = 1;
};

// Aborts incomplete blocks that grew too old, in the background.
class StageCore::ExpireJob final : public Job {
 public:
  explicit ExpireJob(StageCore& core) noexcept : core_(core) {}
  void Run() noexcept override;

 private:
  StageCore& core_;
};

class StageCore::StageTask final : public Task {
 public:
  StageTask(StageCore& core, TaskKind kind, const TaskDesc& desc)
      : Task(kind, desc), begun(core.runtime().clock().Now()), core_(core) {
    for (std::uint32_t i = 0; i < shards().size(); ++i) {
      if (i > 0 && shards()[i].block == shards()[i - 1].block) {
        jobs.back().Grow();
      } else {
        jobs.emplace_back(*this, i);
      }
    }
  }

  [[nodiscard]] StageCore& core() const noexcept { return core_; }
  [[nodiscard]] bool PastDeadline(TimePoint now) const noexcept {
    return timeout_ms() > 0 && now >= begun + milliseconds(timeout_ms());
  }

  const TimePoint begun;
  std::deque<BlockJob> jobs;
  std::shared_ptr<StageTask> self;
  Timer::EntryId deadline = 0;
  // Why nothing more of the task may begin; kOk while it may.
  std::atomic<Code> stopped{Code::kOk};

 private:
  void OnFinish() noexcept override;

  StageCore& core_;
};

}  // namespace ucmstore
