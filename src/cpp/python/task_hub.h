// SPDX-License-Identifier: Apache-2.0
//
// TaskHub: the tasks that Python has in flight on one pipeline, and what each needs to live: the
// array of results, and a reference to the Python objects whose memory moves. The pipeline calls
// back when a task has ended; the hub then wakes who waits for it: threads, poll() through one
// descriptor, event loops through another. A task whose Python object is lost is parked: when its
// I/O has ended it is retired, and only then is its memory let go.
// Thread-safe. No method needs the GIL, and those that may block want it released. After a fork the
// child's copy of a hub answers kClosed and touches nothing.
#pragma once

#include <Python.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/unique_fd.h"
#include "pipeline/pipeline.h"
#include "pipeline/process_mark.h"
#include "task/segments.h"

namespace ucmstore::python {

class TaskHub;

// One task. Fields are the hub's business; `results` and `status` may be read once it has retired.
struct TaskRecord : std::enable_shared_from_this<TaskRecord> {
  enum class Phase : std::uint8_t { kRunning, kEnded, kRetiring, kRetired };

  std::shared_ptr<TaskHub> hub;  // so that the hub lives as long as anything is in flight
  std::vector<ShardResult> results;
  PyObject* memory = nullptr;  // owned until retired
  TaskId id = 0;
  Phase phase = Phase::kRunning;
  bool parked = false;
  std::uint32_t awaiting = 0;  // event loops that wait
  std::uint64_t place = 0;     // in `announced_`, if not 0
  Status status;
  CondVar changed;
};
using TaskPtr = std::shared_ptr<TaskRecord>;

class TaskHub : public std::enable_shared_from_this<TaskHub> {
 public:
  explicit TaskHub(std::unique_ptr<Pipeline> pipeline);
  TaskHub(const TaskHub&) = delete;
  TaskHub& operator=(const TaskHub&) = delete;

  [[nodiscard]] Pipeline& pipeline() noexcept { return *pipeline_; }
  // False: the process that opened the store has forked, and this is the child.
  [[nodiscard]] bool InItsProcess() const noexcept { return !mark_.InForkedChild(); }

  // Begins a load or dump. `desc` has no results and no callback yet. On success the hub owns
  // `memory` (a reference); else it is still the caller's.
  [[nodiscard]] Result<TaskPtr> Submit(TaskKind kind, TaskDesc desc, PyObject* memory);

  // Waits until the task has ended and retires it. False: it has not by then.
  [[nodiscard]] Result<bool> Wait(TaskRecord& task, std::optional<TimePoint> until);
  [[nodiscard]] bool HasEnded(TaskRecord& task);
  [[nodiscard]] Status Cancel(TaskRecord& task);
  // The task's Python object is gone.
  void Park(TaskRecord& task) noexcept;

  // Tasks that ended, in that order, each once; they are retired. Not those that were waited for.
  [[nodiscard]] std::vector<TaskPtr> Poll(std::size_t at_most);
  [[nodiscard]] Result<int> PollFd();  // readable while Poll has something to say

  // An event loop waits for the task. False: it has ended already.
  [[nodiscard]] bool BeginAwait(TaskRecord& task);
  void EndAwait(TaskRecord& task);
  [[nodiscard]] std::vector<TaskId> TakeAwaited();
  [[nodiscard]] Result<int> AwaitFd();  // readable while TakeAwaited has something to say

  struct Counts {
    std::size_t in_flight;  // not yet retired
    std::size_t parked;
  };
  [[nodiscard]] Counts Count();

  [[nodiscard]] Status Close(std::uint32_t timeout_ms);

 private:
  static void OnDone(void* ctx, TaskId id);
  void Ended(TaskRecord& task, TaskId id) UCMSTORE_EXCLUDES(mutex_);
  // Requires: the task has ended. Returns when it is retired, by whomever.
  void Retire(TaskRecord& task) UCMSTORE_REQUIRES(mutex_);
  void Announce(TaskRecord& task) UCMSTORE_REQUIRES(mutex_);
  void Withdraw(TaskRecord& task) UCMSTORE_REQUIRES(mutex_);

  const ProcessMark mark_;
  const std::unique_ptr<Pipeline> pipeline_;
  Mutex mutex_;
  std::unordered_map<TaskRecord*, TaskPtr> in_flight_ UCMSTORE_GUARDED_BY(mutex_);
  std::map<std::uint64_t, TaskRecord*> announced_ UCMSTORE_GUARDED_BY(mutex_);  // by time of end
  std::uint64_t next_place_ UCMSTORE_GUARDED_BY(mutex_) = 1;
  std::vector<TaskId> awaited_ UCMSTORE_GUARDED_BY(mutex_);
  UniqueFd poll_fd_ UCMSTORE_GUARDED_BY(mutex_);  // made when first asked for
  UniqueFd await_fd_ UCMSTORE_GUARDED_BY(mutex_);
  std::size_t parked_ UCMSTORE_GUARDED_BY(mutex_) = 0;
  bool closed_ UCMSTORE_GUARDED_BY(mutex_) = false;
};

}  // namespace ucmstore::python
