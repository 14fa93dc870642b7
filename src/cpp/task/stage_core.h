// SPDX-License-Identifier: Apache-2.0
//
// StageCore: the engine behind a TerminalStage. Cuts a task into jobs (a run of consecutive shards
// of one block is one job), queues them, ends what deadlines and cancellation reach before it has
// begun, and counts. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "task/assembly.h"
#include "task/in_time.h"
#include "task/runtime.h"
#include "task/stage_figures.h"
#include "task/task_table.h"
#include "task/terminal_stage.h"

namespace ucmstore {

class StageCore {
 public:
  // `runtime` is the host's, or null: the core makes its own. `stage` outlives the core.
  StageCore(TerminalStage& stage, Runtime* runtime, const StageSetup& setup);
  StageCore(const StageCore&) = delete;
  StageCore& operator=(const StageCore&) = delete;
  ~StageCore();  // requires: Rest returned true, or nothing was ever begun

  [[nodiscard]] Status Lookup(const LookupDesc& desc, std::uint8_t* found);
  [[nodiscard]] Status Begin(TaskKind kind, const TaskDesc& desc, TaskId* id);
  [[nodiscard]] TaskTable& table() noexcept { return table_; }
  [[nodiscard]] Status Cancel(TaskId id);

  // Closing, in this order, each once the one before has said true. Cancels what has not begun,
  // waits for what moves, removes incomplete blocks as far as there is time. False: something still
  // moves.
  [[nodiscard]] bool Rest(TimePoint until);
  // Ends the runtime if the core made its own.
  [[nodiscard]] bool EndRuntime(TimePoint until);

  void VisitMetrics(const std::function<void(const MetricV1&)>& metric) const;
  [[nodiscard]] Runtime& runtime() noexcept { return *runtime_; }
  [[nodiscard]] Log& log() noexcept { return log_; }

 private:
  class StageTask;
  class BlockJob;
  class ExpireJob;
  class Shards;
  friend class StageTask;
  friend class BlockJob;

  // Counts what uses the core on other threads; Close waits until nobody does.
  void Enter();
  void Leave();
  [[nodiscard]] Status Queue(StageTask& task, std::span<Job* const> jobs) noexcept;
  void Run(BlockJob& job) noexcept;
  void RunLoad(StageTask& task, const BlockJob& job);
  void RunDump(const std::shared_ptr<StageTask>& task, BlockJob& job);
  void EndJob(const BlockJob& job, const Status& status) noexcept;
  void EndShard(StageTask& task, std::size_t i, const Status& status, std::uint32_t bytes) noexcept;
  // Ends with `code` what no worker has begun, following shards included.
  void EndUnbegun(StageTask& task, Code code) noexcept;
  [[nodiscard]] bool RemoveIncomplete(TimePoint until);
  void ScheduleExpiry() noexcept;
  void BeginExpiry() noexcept;
  void ExpiryOver();

  TerminalStage& stage_;
  std::unique_ptr<Runtime> own_runtime_;
  Runtime* const runtime_;
  Log log_;
  const std::uint64_t shard_size_;
  const std::uint32_t shards_per_block_;
  TaskTable table_;
  Assembler assembler_;
  std::unique_ptr<ExpireJob> expire_job_;
  // Of the blocks that were incomplete at Close, being removed.
  std::vector<std::unique_ptr<BlockWriter>> writers_;
  std::optional<InTime> removing_;

  Mutex mutex_;
  CondVar left_;
  std::uint64_t inside_ UCMSTORE_GUARDED_BY(mutex_) = 0;
  bool expiry_scheduled_ UCMSTORE_GUARDED_BY(mutex_) = false;
  Timer::EntryId expiry_ UCMSTORE_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> closing_{false};

  StageFigures figures_;
};

}  // namespace ucmstore
