// SPDX-License-Identifier: Apache-2.0
//
// The life of a task: running, ended, retiring, retired; and who is told of it. See task_hub.h.
#include "python/task_hub.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "python/release_queue.h"

namespace ucmstore::python {

namespace {

Status ClosedStatus() { return Status::Error(Code::kClosed, "the store is closed"); }

Status ForkedStatus() {
  return Status::Error(Code::kClosed,
                       "this process was forked from the one that opened the store; "
                       "open the store again here, after the fork");
}

// Counters of an eventfd: any write makes it readable, a read makes it not.
void Signal(const UniqueFd& fd) {
  const std::uint64_t one = 1;
  if (fd) std::ignore = ::write(fd.get(), &one, sizeof one);
}
void Clear(const UniqueFd& fd) {
  std::uint64_t count = 0;
  if (fd) std::ignore = ::read(fd.get(), &count, sizeof count);
}

Result<int> MakeEventFd(UniqueFd& fd, bool signalled) {
  if (!fd) {
    fd.Reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!fd) return std::unexpected(ErrnoStatus(errno, "eventfd, for the ends of tasks"));
    if (signalled) Signal(fd);
  }
  return fd.get();
}

// What a task came to when the store was closed between its end and its Wait.
Status FromResults(std::span<const ShardResult> results) {
  for (const ShardResult& result : results) {
    if (result.code != Code::kOk) {
      return Status::Error(result.code, "the store was closed while the task was in flight",
                           result.sys_errno);
    }
  }
  return Status::Ok();
}

// A store that could not end in time: threads of it may still call back, so it stays for ever.
void Abandon(std::shared_ptr<TaskHub> hub) {
  static auto& abandoned = *new std::vector<std::shared_ptr<TaskHub>>;
  static auto& mutex = *new Mutex;
  const MutexLock lock(mutex);
  abandoned.push_back(std::move(hub));
}

}  // namespace

TaskHub::TaskHub(std::unique_ptr<Pipeline> pipeline) : pipeline_(std::move(pipeline)) {}

Result<TaskPtr> TaskHub::Submit(TaskKind kind, TaskDesc desc, PyObject* memory) {
  if (!InItsProcess()) return std::unexpected(ForkedStatus());
  auto task = std::make_shared<TaskRecord>();
  task->hub = shared_from_this();
  task->results.assign(desc.shard_count, ShardResult{Code::kPending, 0, 0});
  task->memory = memory;
  {
    const MutexLock lock(mutex_);  // before it begins, for it may end before it has begun
    in_flight_.emplace(task.get(), task);
  }
  desc.results = task->results.data();
  desc.on_done = &TaskHub::OnDone;
  desc.on_done_ctx = task.get();
  const auto id = kind == TaskKind::kLoad ? pipeline_->Load(desc) : pipeline_->Dump(desc);
  const MutexLock lock(mutex_);
  if (!id) {
    in_flight_.erase(task.get());
    return std::unexpected(id.error());
  }
  if (task->id == 0) task->id = *id;
  return task;
}

void TaskHub::OnDone(void* ctx, TaskId id) {
  const TaskPtr task = static_cast<TaskRecord*>(ctx)->shared_from_this();
  task->hub->Ended(*task, id);
}

void TaskHub::Ended(TaskRecord& task, TaskId id) {
  const MutexLock lock(mutex_);
  if (task.id == 0) task.id = id;  // written once: it is read without the lock
  task.phase = TaskRecord::Phase::kEnded;
  if (task.parked) {
    Retire(task);
    ReleaseLater(std::exchange(task.memory, nullptr), /*ask=*/true);
  } else if (task.awaiting > 0) {
    if (awaited_.empty()) Signal(await_fd_);
    awaited_.push_back(id);
  } else {
    Announce(task);
  }
  task.changed.NotifyAll();
}

void TaskHub::Announce(TaskRecord& task) {
  if (announced_.empty()) Signal(poll_fd_);
  task.place = next_place_++;
  announced_.emplace(task.place, &task);
}

void TaskHub::Withdraw(TaskRecord& task) {
  if (task.place == 0) return;
  announced_.erase(std::exchange(task.place, 0));
  if (announced_.empty()) Clear(poll_fd_);
}

void TaskHub::Retire(TaskRecord& task) {
  while (task.phase == TaskRecord::Phase::kRetiring) task.changed.Wait(mutex_);
  if (task.phase == TaskRecord::Phase::kRetired) return;
  task.phase = TaskRecord::Phase::kRetiring;
  mutex_.Unlock();
  // The task has ended; its callback may still be on its way out, which takes no time.
  Status status = pipeline_->Wait(task.id, 60'000);
  mutex_.Lock();
  if (status.code == Code::kClosed) {
    status = FromResults(task.results);
  } else if (status.code == Code::kPending) {
    status = Status::Error(Code::kInternal, "the task said it had ended, and did not retire");
  }
  task.status = status;
  task.phase = TaskRecord::Phase::kRetired;
  Withdraw(task);
  if (task.parked) --parked_;
  in_flight_.erase(&task);  // the caller has a reference of its own
  task.changed.NotifyAll();
}

Result<bool> TaskHub::Wait(TaskRecord& task, std::optional<TimePoint> until) {
  if (!InItsProcess()) return std::unexpected(ForkedStatus());
  const MutexLock lock(mutex_);
  while (task.phase == TaskRecord::Phase::kRunning) {
    if (closed_) return std::unexpected(ClosedStatus());
    if (!until) {
      task.changed.Wait(mutex_);
    } else if (!task.changed.WaitUntil(mutex_, *until) &&
               task.phase == TaskRecord::Phase::kRunning) {
      return false;
    }
  }
  Retire(task);
  ReleaseLater(std::exchange(task.memory, nullptr), /*ask=*/false);
  return true;
}

bool TaskHub::HasEnded(TaskRecord& task) {
  if (!InItsProcess()) return true;  // and its Wait says why
  const MutexLock lock(mutex_);
  return task.phase != TaskRecord::Phase::kRunning || closed_;
}

Status TaskHub::Cancel(TaskRecord& task) {
  if (!InItsProcess()) return ForkedStatus();
  TaskId id = 0;
  {
    const MutexLock lock(mutex_);
    if (task.phase != TaskRecord::Phase::kRunning) return Status::Ok();
    id = task.id;
  }
  const Status status = pipeline_->Cancel(id);
  return status.code == Code::kNotFound ? Status::Ok() : status;
}

void TaskHub::Park(TaskRecord& task) noexcept {
  if (!InItsProcess()) return;  // the memory stays: the parent's threads are not ours to ask
  const MutexLock lock(mutex_);
  if (task.phase == TaskRecord::Phase::kRetired) return;
  if (task.phase == TaskRecord::Phase::kRunning) {
    task.parked = true;
    ++parked_;
    return;
  }
  Retire(task);
  ReleaseLater(std::exchange(task.memory, nullptr), /*ask=*/false);
}

std::vector<TaskPtr> TaskHub::Poll(std::size_t at_most) {
  std::vector<TaskPtr> tasks;
  if (!InItsProcess()) return tasks;
  const MutexLock lock(mutex_);
  while (tasks.size() < at_most && !announced_.empty()) {
    TaskRecord& task = *announced_.begin()->second;
    tasks.push_back(task.shared_from_this());
    Withdraw(task);
    Retire(task);
    ReleaseLater(std::exchange(task.memory, nullptr), /*ask=*/false);
  }
  return tasks;
}

Result<int> TaskHub::PollFd() {
  if (!InItsProcess()) return std::unexpected(ForkedStatus());
  const MutexLock lock(mutex_);
  if (closed_) return std::unexpected(ClosedStatus());
  return MakeEventFd(poll_fd_, !announced_.empty());
}

bool TaskHub::BeginAwait(TaskRecord& task) {
  if (!InItsProcess()) return false;
  const MutexLock lock(mutex_);
  if (task.phase != TaskRecord::Phase::kRunning || closed_) return false;
  ++task.awaiting;
  return true;
}

void TaskHub::EndAwait(TaskRecord& task) {
  if (!InItsProcess()) return;
  const MutexLock lock(mutex_);
  // It ended just when its last waiter gave up: then it is poll's to announce.
  if (--task.awaiting == 0 && task.phase == TaskRecord::Phase::kEnded && task.place == 0) {
    Announce(task);
  }
}

std::vector<TaskId> TaskHub::TakeAwaited() {
  if (!InItsProcess()) return {};
  const MutexLock lock(mutex_);
  Clear(await_fd_);
  return std::exchange(awaited_, {});
}

Result<int> TaskHub::AwaitFd() {
  if (!InItsProcess()) return std::unexpected(ForkedStatus());
  const MutexLock lock(mutex_);
  return MakeEventFd(await_fd_, !awaited_.empty());
}

TaskHub::Counts TaskHub::Count() {
  if (!InItsProcess()) return {0, 0};
  const MutexLock lock(mutex_);
  return {in_flight_.size(), parked_};
}

Status TaskHub::Close(std::uint32_t timeout_ms) {
  if (!InItsProcess()) return Status::Ok();  // nothing of it is here
  const Status status = pipeline_->Close(timeout_ms);
  if (!status.ok()) Abandon(shared_from_this());
  const MutexLock lock(mutex_);
  closed_ = true;
  for (const auto& [task, owner] : in_flight_) task->changed.NotifyAll();
  return status;
}

}  // namespace ucmstore::python
