// SPDX-License-Identifier: Apache-2.0
//
// The calls of a Fault stage: how a task begins, is cancelled and ends, and how the stage closes.
#include "store/fault/fault_stage.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <string>

#include "task/guarded.h"

namespace ucmstore {

using fault::Call;
using fault::Point;
using Phase = FaultTask::Phase;

namespace {

TimePoint Now() { return std::chrono::steady_clock::now(); }

Status Closed() { return Status::Error(Code::kClosed, "Fault: the store is closed"); }

}  // namespace

FaultTask::FaultTask(TaskKind kind, const TaskDesc& desc, FaultStage& owner)
    : Task(kind, desc),
      stage(owner),
      tenant(desc.tenant),
      deadline(desc.timeout_ms == 0 ? TimePoint::max() : Now() + milliseconds(desc.timeout_ms)),
      runs(desc.shard_count) {}

void FaultTask::OnFinish() noexcept { stage.TaskEnded(*this); }

void FaultStage::Enter() {
  const MutexLock lock(mutex_);
  ++inside_;
}

void FaultStage::Leave() {
  const MutexLock lock(mutex_);
  --inside_;
  changed_.NotifyAll();
}

Status FaultStage::Load(const TaskDesc& desc, TaskId* task) noexcept {
  return Guarded([&] { return Begin(TaskKind::kLoad, desc, task); });
}

Status FaultStage::Dump(const TaskDesc& desc, TaskId* task) noexcept {
  return Guarded([&] { return Begin(TaskKind::kDump, desc, task); });
}

// Asks the rules about each shard; `direct`: the positions of those that go straight down. An
// error: the plan needs the timer, and the timer has no thread.
Status FaultStage::PlanTask(FaultTask& task, std::vector<std::size_t>* direct) {
  const Call call = task.kind() == TaskKind::kLoad ? Call::kLoad : Call::kDump;
  bool needs_timer = false;
  {
    const MutexLock lock(mutex_);
    for (std::size_t i = 0; i < task.runs.size(); ++i) {
      FaultTask::Run& run = task.runs[i];
      run.plan = rules_->PlanFor(call, task.shards()[i].index);
      const auto waits = [](const fault::Plan::Stop& stop) { return stop.delay_ms > 0; };
      needs_timer = needs_timer || std::ranges::any_of(run.plan.stops, waits) ||
                    run.plan.scribble_ms.value_or(0) > 0;
      if (!run.Direct()) continue;
      run.phase = Phase::kMoving;
      direct->push_back(i);
    }
  }
  const bool may_be_late = direct->size() < task.runs.size() && task.deadline != TimePoint::max();
  if (!needs_timer && !may_be_late) return Status::Ok();
  Status status = runtime().timer().Start();
  if (status.ok()) return status;
  return Status::Error(status.code, "Fault: " + std::string(status.text()), status.sys_errno);
}

Status FaultStage::Begin(TaskKind kind, const TaskDesc& desc, TaskId* id) {
  if (id == nullptr) {
    return Status::Error(Code::kInvalidArgument, "the place for the task's id is null");
  }
  *id = 0;
  Status status = CheckTask(desc, kind, setup().shard_size, setup().shards_per_block);
  if (!status.ok()) return status;
  const Call call = kind == TaskKind::kLoad ? Call::kLoad : Call::kDump;
  {
    const MutexLock lock(mutex_);
    if (closing_) return Closed();
    if (auto refusal = rules_->Refusal(call)) return *refusal;
    ++inside_;
  }
  struct Leaver {
    FaultStage& stage;
    ~Leaver() { stage.Leave(); }
  } const leaver{*this};
  const auto task = std::make_shared<FaultTask>(kind, desc, *this);
  std::vector<std::size_t> direct;
  if (status = PlanTask(*task, &direct); !status.ok()) return status;
  if (status = table_->Insert(task); !status.ok()) return status;
  const TaskId task_id = task->id();  // the task may be retired before we return
  {
    const MutexLock lock(mutex_);
    ++tasks_;
    if (direct.size() < task->runs.size() && task->deadline != TimePoint::max()) {
      task->deadline_entry =
          runtime().timer().Schedule(task->deadline, [this, weak = std::weak_ptr<Task>(task)] {
            if (const auto held = std::static_pointer_cast<FaultTask>(weak.lock())) {
              EndWaiting(held, Status::Error(Code::kTimeout,
                                             "the task's deadline passed before this shard began"));
            }
          });
    }
  }
  if (task->runs.empty()) task->EndEmpty();
  if (!direct.empty()) {
    status = Forward(task, direct);
    if (!status.ok() && direct.size() == task->runs.size()) {
      (void)table_->Remove(task_id);  // refused below, so refused here: nothing was touched
      return status;
    }
    if (!status.ok()) {
      for (const std::size_t i : direct) End(task, i, status);
    }
  }
  for (std::size_t i = 0; i < task->runs.size(); ++i) {
    if (!std::ranges::binary_search(direct, i)) Arrive(task, i, Point::kBefore);
  }
  *id = task_id;
  return Status::Ok();
}

Status FaultStage::Check(TaskId task, bool* done) noexcept { return table_->Check(task, done); }

Status FaultStage::Wait(TaskId id, std::uint32_t timeout_ms) noexcept {
  const auto task = std::static_pointer_cast<FaultTask>(table_->Find(id));
  const Status status = table_->Wait(id, timeout_ms);
  if (task == nullptr || status.code == Code::kPending) return status;
  {
    const MutexLock lock(mutex_);
    if (std::exchange(task->scribbled, true)) return status;
  }
  for (std::size_t i = 0; i < task->runs.size(); ++i) {
    if (task->runs[i].plan.scribble_ms == 0U) task->Scribble(task->runs[i], i);
  }
  return status;
}

Status FaultStage::Cancel(TaskId id) noexcept {
  return Guarded([&] {
    const auto task = std::static_pointer_cast<FaultTask>(table_->Find(id));
    if (task == nullptr) return UnknownTask(id);
    CancelTask(task);
    return Status::Ok();
  });
}

void FaultStage::CancelTask(const TaskPtr& task) {
  std::vector<TaskId> below_ids;
  {
    const MutexLock lock(mutex_);
    for (FaultTask::Leg* leg : task->legs) {
      leg->cancelled = true;
      if (leg->below != 0) below_ids.push_back(leg->below);
    }
  }
  for (const TaskId below_id : below_ids) (void)CancelBelow(below_id);  // it may have ended
  EndWaiting(task, Status::Error(Code::kCancelled, "cancelled before this shard began"));
}

void FaultStage::EndWaiting(const TaskPtr& task, const Status& status) {
  std::vector<std::size_t> ended;
  std::vector<Timer::EntryId> timers;
  {
    const MutexLock lock(mutex_);
    for (std::size_t i = 0; i < task->runs.size(); ++i) {
      if (task->runs[i].phase != Phase::kWaiting) continue;
      task->runs[i].phase = Phase::kEnded;
      ended.push_back(i);
    }
    for (auto park = parks_.begin(); park != parks_.end();) {
      const bool over =
          park->second.task == task && task->runs[park->second.i].phase == Phase::kEnded;
      if (over && park->second.timer != 0) timers.push_back(park->second.timer);
      park = over ? parks_.erase(park) : std::next(park);
    }
    changed_.NotifyAll();
  }
  for (const Timer::EntryId timer : timers) (void)runtime().timer().Cancel(timer);
  for (const std::size_t i : ended) (void)task->EndShard(i, status, 0);
}

void FaultStage::TaskEnded(FaultTask& task) noexcept {
  if (task.deadline_entry != 0) (void)runtime().timer().Cancel(task.deadline_entry);
  for (std::size_t i = 0; i < task.runs.size(); ++i) {
    const std::uint32_t ms = task.runs[i].plan.scribble_ms.value_or(0);
    if (ms == 0) continue;
    const auto keep = std::static_pointer_cast<FaultTask>(task.shared_from_this());
    const MutexLock lock(mutex_);
    if (closing_) return;
    try {
      scribbles_.insert(runtime().timer().Schedule(Now() + milliseconds(ms), [this, keep, i] {
        keep->Scribble(keep->runs[i], i);
        const MutexLock inner(mutex_);
        ++late_scribbles_;
      }));
    } catch (...) {  // out of memory: no scribble
    }
  }
}

void FaultStage::CloseParks(const std::map<std::uint64_t, Park>& parks) {
  for (const auto& [id, park] : parks) {
    if (park.timer != 0) (void)runtime().timer().Cancel(park.timer);
    if (park.task == nullptr) continue;  // its lookup sees that we close
    switch (park.point) {
      case Point::kBefore:
        End(park.task, park.i, Status::Error(Code::kCancelled, "the store was closed"));
        break;
      case Point::kMoving: End(park.task, park.i, Closed()); break;
      case Point::kAfter: Depart(park.task, park.i, park.point); break;
    }
  }
}

bool FaultStage::Close(std::uint32_t timeout_ms) noexcept {
  const TimePoint until = Now() + milliseconds(timeout_ms);
  Unregister();
  if (!table_) return ForwardStage::Close(timeout_ms);  // never opened
  std::map<std::uint64_t, Park> ends;
  std::set<Timer::EntryId> scribbles;
  {
    const MutexLock lock(mutex_);
    closing_ = true;
    for (auto park = parks_.begin(); park != parks_.end();) {
      const auto next = std::next(park);
      if (!park->second.stuck) ends.insert(parks_.extract(park));
      park = next;
    }
    scribbles.swap(scribbles_);
    changed_.NotifyAll();
  }
  CloseParks(ends);
  const Status cancelled = Guarded([&] {
    for (const auto& task : table_->All()) CancelTask(std::static_pointer_cast<FaultTask>(task));
    return Status::Ok();
  });
  if (!cancelled.ok()) return false;  // out of memory
  for (const Timer::EntryId entry : scribbles) (void)runtime().timer().Cancel(entry);
  {
    const MutexLock lock(mutex_);
    while (inside_ > 0 || !parks_.empty()) {
      if (!changed_.WaitUntil(mutex_, until) && (inside_ > 0 || !parks_.empty())) return false;
    }
  }
  runtime().timer().Barrier();
  const auto left = std::chrono::ceil<milliseconds>(until - Now());
  return ForwardStage::Close(static_cast<std::uint32_t>(std::max<std::int64_t>(left.count(), 0)));
}

void FaultStage::VisitMetrics(void* ctx,
                              void (*metric)(void* ctx, const MetricV1* metric)) noexcept {
  if (!table_) return;
  double tasks = 0;
  double held = 0;
  double faults = 0;
  double scribbles = 0;
  {
    const MutexLock lock(mutex_);
    tasks = static_cast<double>(tasks_);
    held = static_cast<double>(parks_.size());
    faults = static_cast<double>(rules_->AllHits());
    scribbles = static_cast<double>(late_scribbles_);
  }
  const MetricV1 metrics[] = {
      {"tasks", MetricKind::kCounter, 0, tasks},
      {"tasks_in_flight", MetricKind::kGauge, 0, static_cast<double>(table_->size())},
      {"held_shards", MetricKind::kGauge, 0, held},
      {"late_scribbles", MetricKind::kCounter, 0, scribbles},
      {"faults", MetricKind::kCounter, 0, faults}};
  for (const MetricV1& each : metrics) metric(ctx, &each);
}

}  // namespace ucmstore
