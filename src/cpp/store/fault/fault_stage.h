// SPDX-License-Identifier: Apache-2.0
//
// Fault: a stage that passes everything through and spoils what its rules (rules.h) say: calls that
// fail, shards that are late, held, wrong, short or never end, workers that throw, memory that is
// written after its task has ended. What it does not spoil on purpose it keeps: ids, deadlines,
// cancellation, callbacks and Close are as StoreV1 promises. Tests steer it by options, or while
// it runs through FaultTableV1. Built for tests, never installed. Thread-safe.
//
// A shard's way; at each stop it may be delayed or held, and fail:
//
//   kWaiting                     kMoving
//   [stop before] --(throw?)--> [stop moving] --> below --> [stop after] --> flip, short --> ended
#pragma once

#include <list>
#include <map>
#include <set>

#include "base/mutex.h"
#include "store/fault/fault_task.h"
#include "store/fault/fault_v1.h"
#include "store/fault/rules.h"
#include "task/forward_stage.h"
#include "task/task_table.h"

namespace ucmstore {

class FaultStage final : public ForwardStage {
 public:
  FaultStage() : ForwardStage("Fault") {}
  ~FaultStage() override;

  Status Lookup(const LookupDesc& desc, std::uint8_t* found) noexcept override;
  Status Load(const TaskDesc& desc, TaskId* task) noexcept override;
  Status Dump(const TaskDesc& desc, TaskId* task) noexcept override;
  Status Check(TaskId task, bool* done) noexcept override;
  Status Wait(TaskId task, std::uint32_t timeout_ms) noexcept override;
  Status Cancel(TaskId task) noexcept override;
  [[nodiscard]] bool Close(std::uint32_t timeout_ms) noexcept override;
  void VisitMetrics(void* ctx, void (*metric)(void* ctx, const MetricV1* metric)) noexcept override;

  // FaultTableV1.
  static FaultStage* Find(const char* name);
  Status Arm(const char* text, std::uint64_t* rule);
  void Disarm(std::uint64_t rule);
  bool WaitHeld(std::uint64_t rule, std::uint32_t count, std::uint32_t timeout_ms);
  std::uint32_t Release(std::uint64_t rule, std::uint32_t count);
  std::uint64_t Hits(std::uint64_t rule);

 protected:
  Status Open(const StageSetup& setup) override;

 private:
  friend class FaultTask;
  class ThrowJob;
  using TaskPtr = std::shared_ptr<FaultTask>;

  // A shard, or a lookup, that is delayed or held at a stop.
  struct Park {
    TaskPtr task = nullptr;  // null: a lookup
    std::size_t i = 0;
    fault::Point point{};
    std::uint64_t rule = 0;  // 0: delayed
    bool stuck = false;
    Timer::EntryId timer = 0;
  };

  Status Begin(TaskKind kind, const TaskDesc& desc, TaskId* id);
  Status PlanTask(FaultTask& task, std::vector<std::size_t>* direct);
  Status LookupHere(const LookupDesc& desc, std::uint8_t* found);
  // Waits at a lookup's stop. Not ok: the lookup ends so. False in `answer`: its time is over.
  Status StopLookup(const fault::Plan& plan, const LookupDesc& desc, bool* answer);
  // Gives shards of the task to the store below. An error: it has not taken them.
  Status Forward(const TaskPtr& task, std::vector<std::size_t> positions);
  static void OnMoved(void* leg, TaskId below) noexcept;
  void Moved(FaultTask::Leg& leg, TaskId below);
  // Shard i has come to a stop: it is parked there, or goes on.
  void Arrive(const TaskPtr& task, std::size_t i, fault::Point point);
  [[nodiscard]] bool ParkAt(const fault::Plan::Stop& stop, const TaskPtr& task, std::size_t i,
                            fault::Point point) noexcept UCMSTORE_REQUIRES(mutex_);
  // Shard i leaves the stop.
  void Depart(const TaskPtr& task, std::size_t i, fault::Point point);
  void SendBelow(const TaskPtr& task, std::size_t i);
  void Throw(const TaskPtr& task, std::size_t i);
  void Finish(const TaskPtr& task, std::size_t i);
  void End(const TaskPtr& task, std::size_t i, const Status& status, std::uint32_t bytes = 0);
  // Ends what has not begun.
  void EndWaiting(const TaskPtr& task, const Status& status);
  void CancelTask(const TaskPtr& task);
  void TaskEnded(FaultTask& task) noexcept;
  void Resume(std::uint64_t park);
  void CloseParks(const std::map<std::uint64_t, Park>& parks);
  [[nodiscard]] std::uint32_t HeldBy(std::uint64_t rule) const UCMSTORE_REQUIRES(mutex_);
  void Enter();
  void Leave();
  void Unregister() noexcept;

  std::optional<TaskTable> table_;
  std::string registered_name_;

  Mutex mutex_;
  CondVar changed_;  // parks_, inside_, closing_
  std::optional<fault::Rules> rules_ UCMSTORE_GUARDED_BY(mutex_);
  std::map<std::uint64_t, Park> parks_ UCMSTORE_GUARDED_BY(mutex_);  // oldest first
  std::set<Timer::EntryId> scribbles_ UCMSTORE_GUARDED_BY(mutex_);
  std::uint64_t next_park_ UCMSTORE_GUARDED_BY(mutex_) = 1;
  std::uint64_t inside_ UCMSTORE_GUARDED_BY(mutex_) = 0;  // calls, legs and jobs that use us
  std::uint64_t late_scribbles_ UCMSTORE_GUARDED_BY(mutex_) = 0;
  std::uint64_t tasks_ UCMSTORE_GUARDED_BY(mutex_) = 0;
  bool closing_ UCMSTORE_GUARDED_BY(mutex_) = false;
};

}  // namespace ucmstore
