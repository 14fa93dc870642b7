// SPDX-License-Identifier: Apache-2.0
//
// The way of one shard, or lookup, through a Fault stage.
#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <tuple>

#include "store/fault/fault_stage.h"

namespace ucmstore {

using fault::Call;
using fault::Plan;
using fault::Point;
using Phase = FaultTask::Phase;
using Leg = FaultTask::Leg;

namespace {

TimePoint Now() { return std::chrono::steady_clock::now(); }

// What is left of the task's time, for the store below: 0 is none, so at least 1.
std::uint32_t TimeoutLeft(TimePoint deadline) {
  if (deadline == TimePoint::max()) return 0;
  const auto left = std::chrono::ceil<milliseconds>(deadline - Now()).count();
  return static_cast<std::uint32_t>(std::max<std::int64_t>(left, 1));
}

}  // namespace

// A worker in which an exception is thrown.
class FaultStage::ThrowJob final : public Job {
 public:
  ThrowJob(FaultStage& stage, TaskPtr task, std::size_t i)
      : stage_(stage), task_(std::move(task)), i_(i) {}
  void Run() noexcept override {
    const std::unique_ptr<ThrowJob> self(this);
    try {
      throw std::runtime_error("Fault: a rule threw this in a worker");
    } catch (const std::exception& error) {
      stage_.End(task_, i_, Status::Error(Code::kInternal, error.what()));
    }
    task_.reset();
    stage_.Leave();
  }

 private:
  FaultStage& stage_;
  TaskPtr task_;
  std::size_t i_;
};

void FaultStage::Throw(const TaskPtr& task, std::size_t i) {
  auto job = std::make_unique<ThrowJob>(*this, task, i);
  Job* const pushed = job.get();
  Enter();
  const Lane lane = task->kind() == TaskKind::kLoad ? Lane::kLoad : Lane::kDump;
  if (runtime().pool().Push(std::span(&pushed, 1), lane)) {
    std::ignore = job.release();  // it ends itself
  } else {
    job.release()->Run();
  }
}

void FaultStage::End(const TaskPtr& task, std::size_t i, const Status& status,
                     std::uint32_t bytes) {
  {
    const MutexLock lock(mutex_);
    if (task->runs[i].phase == Phase::kEnded) return;
    task->runs[i].phase = Phase::kEnded;
  }
  (void)task->EndShard(i, status, bytes);
}

// False: it goes on, for the timer is stopped, or there is no memory.
bool FaultStage::ParkAt(const Plan::Stop& stop, const TaskPtr& task, std::size_t i,
                        Point point) noexcept {
  try {
    const std::uint64_t id = next_park_++;
    Park park{.task = task, .i = i, .point = point, .rule = stop.hold_rule, .stuck = stop.stuck};
    if (stop.hold_rule == 0) {
      // PlanTask saw to the timer's thread.
      park.timer = runtime().timer().Schedule(Now() + milliseconds(stop.delay_ms),
                                              [this, id] { Resume(id); });
      if (park.timer == 0) return false;
    }
    parks_.emplace(id, std::move(park));
    changed_.NotifyAll();
    return true;
  } catch (...) {  // out of memory; a Resume that comes nevertheless finds nothing
    return false;
  }
}

void FaultStage::Arrive(const TaskPtr& task, std::size_t i, Point point) {
  bool closed = false;
  {
    const MutexLock lock(mutex_);
    FaultTask::Run& run = task->runs[i];
    if (run.phase == Phase::kEnded) return;
    if (point == Point::kMoving) run.phase = Phase::kMoving;
    const Plan::Stop& stop = run.plan.at(point);
    const bool stops = stop.delay_ms > 0 || stop.hold_rule != 0;
    if (stops && !closing_ && ParkAt(stop, task, i, point)) return;
    closed = closing_;
  }
  if (closed && point != Point::kAfter) {
    End(task, i, Status::Error(Code::kCancelled, "the store was closed"));
  } else {
    Depart(task, i, point);
  }
}

void FaultStage::Resume(std::uint64_t id) {
  Park park;
  {
    const MutexLock lock(mutex_);
    const auto found = parks_.find(id);
    if (found == parks_.end()) return;
    park = std::move(found->second);
    parks_.erase(found);
    ++inside_;  // Close must not think that nobody is here
    changed_.NotifyAll();
  }
  if (park.task != nullptr) Depart(park.task, park.i, park.point);
  park.task.reset();
  Leave();
}

void FaultStage::Depart(const TaskPtr& task, std::size_t i, Point point) {
  const Plan& plan = task->runs[i].plan;
  if (plan.at(point).failure) return End(task, i, *plan.at(point).failure);
  switch (point) {
    case Point::kBefore: return plan.throws ? Throw(task, i) : Arrive(task, i, Point::kMoving);
    case Point::kMoving: return SendBelow(task, i);
    case Point::kAfter: return Finish(task, i);
  }
}

void FaultStage::SendBelow(const TaskPtr& task, std::size_t i) {
  const Status status = Forward(task, {i});
  if (!status.ok()) End(task, i, status);
}

Status FaultStage::Forward(const TaskPtr& task, std::vector<std::size_t> positions) {
  auto leg =
      std::make_unique<Leg>(Leg{.stage = *this, .task = task, .positions = std::move(positions)});
  // A shard that stopped while moving has begun, so a deadline is none of its business any more.
  bool begun = false;
  for (const std::size_t i : leg->positions) {
    leg->shards.push_back(task->shards()[i]);
    const Plan::Stop& stop = task->runs[i].plan.at(Point::kMoving);
    begun = begun || stop.delay_ms > 0 || stop.hold_rule != 0;
  }
  leg->results.resize(leg->shards.size());
  TaskDesc desc;
  desc.shards = leg->shards.data();
  desc.shard_count = static_cast<std::uint32_t>(leg->shards.size());
  desc.results = leg->results.data();
  desc.timeout_ms = begun ? 0 : TimeoutLeft(task->deadline);
  desc.priority = task->priority();
  desc.tenant = task->tenant;
  desc.on_done = &FaultStage::OnMoved;
  desc.on_done_ctx = leg.get();
  {
    const MutexLock lock(mutex_);
    task->legs.push_back(leg.get());
    ++inside_;
  }
  Leg* const sent = leg.release();  // OnMoved ends it, maybe before the call below returns
  TaskId below_id = 0;
  const Status status = task->kind() == TaskKind::kLoad ? below().Load(desc, &below_id)
                                                        : below().Dump(desc, &below_id);
  bool cancel = false;
  {
    const MutexLock lock(mutex_);
    const bool in_flight = std::erase(task->legs, sent) > 0;
    if (in_flight && status.ok()) {
      sent->below = below_id;
      cancel = sent->cancelled;
      task->legs.push_back(sent);
    }
  }
  if (!status.ok()) {
    leg.reset(sent);
    Leave();
  } else if (cancel) {
    (void)CancelBelow(below_id);  // it may have ended
  }
  return status;
}

void FaultStage::OnMoved(void* leg, TaskId below_id) noexcept {
  const std::unique_ptr<Leg> ends(static_cast<Leg*>(leg));
  FaultStage& stage = ends->stage;
  stage.Moved(*ends, below_id);
  ends->task.reset();
  stage.Leave();
}

void FaultStage::Moved(Leg& leg, TaskId below_id) {
  const Status first = below().Wait(below_id, 0);  // retires it; here it is seen as ended
  {
    const MutexLock lock(mutex_);
    std::erase(leg.task->legs, &leg);
    for (std::size_t k = 0; k < leg.positions.size(); ++k) {
      const ShardResult& result = leg.results[k];
      FaultTask::Run& run = leg.task->runs[leg.positions[k]];
      run.bytes = result.bytes;
      if (result.code == Code::kOk) continue;
      run.moved = result.code == first.code
                      ? first
                      : Status::Error(result.code, CodeName(result.code), result.sys_errno);
    }
  }
  for (const std::size_t i : leg.positions) Arrive(leg.task, i, Point::kAfter);
}

void FaultStage::Finish(const TaskPtr& task, std::size_t i) {
  const FaultTask::Run& run = task->runs[i];
  std::uint32_t bytes = run.bytes;
  if (run.moved.ok() && run.plan.flips) {
    std::uint64_t at = bytes / 2;
    for (const Segment& segment :
         std::span(task->shards()[i].segments, task->shards()[i].segment_count)) {
      if (at < segment.size) {
        if (segment.data != nullptr) static_cast<std::byte*>(segment.data)[at] ^= std::byte{0x10};
        break;
      }
      at -= segment.size;
    }
  }
  if (run.moved.ok()) bytes -= std::min(bytes, run.plan.short_bytes);
  End(task, i, run.moved, bytes);
}

void FaultTask::Scribble(const Run& run, std::size_t i) const noexcept {
  if (run.phase != Phase::kEnded || kind() != TaskKind::kLoad) return;
  for (const Segment& segment : std::span(shards()[i].segments, shards()[i].segment_count)) {
    auto* const data = static_cast<std::byte*>(segment.data);
    if (data != nullptr) std::fill(data, data + segment.size, std::byte{0xD6});
  }
}

Status FaultStage::Lookup(const LookupDesc& desc, std::uint8_t* found) noexcept {
  try {
    return LookupHere(desc, found);
  } catch (...) {  // the ABI's edge
    return Status::Error(Code::kInternal, "Fault: an exception in a lookup");
  }
}

Status FaultStage::LookupHere(const LookupDesc& desc, std::uint8_t* found) {
  if (Status status = CheckLookup(desc, found); !status.ok()) return status;
  if (desc.count > 0) std::fill(found, found + desc.count, kAbsent);
  Plan plan;
  {
    const MutexLock lock(mutex_);
    if (closing_) return Status::Error(Code::kClosed, "Fault: the store is closed");
    if (auto refusal = rules_->Refusal(Call::kLookup)) return *refusal;
    plan = rules_->PlanFor(Call::kLookup, 0);
  }
  for (const Plan::Stop& stop : plan.stops) {
    if (stop.delay_ms == 0 && stop.hold_rule == 0) continue;
    bool answer = true;
    const Status status = StopLookup(plan, desc, &answer);
    if (!status.ok() || !answer) return status;
    break;
  }
  return below().Lookup(desc, found);
}

Status FaultStage::StopLookup(const Plan& plan, const LookupDesc& desc, bool* answer) {
  const TimePoint end =
      desc.timeout_ms == 0 ? TimePoint::max() : Now() + milliseconds(desc.timeout_ms);
  TimePoint until = Now();
  std::uint64_t rule = 0;
  for (const Plan::Stop& stop : plan.stops) {
    until += milliseconds(stop.delay_ms);
    if (stop.hold_rule != 0) rule = stop.hold_rule;
  }
  if (rule != 0) until = TimePoint::max();
  const MutexLock lock(mutex_);
  ++inside_;
  const std::uint64_t id = next_park_++;
  parks_.emplace(id, Park{.rule = rule});
  changed_.NotifyAll();
  const TimePoint wake = std::min(until, end);
  while (parks_.contains(id) && !closing_ && Now() < wake) {
    if (wake == TimePoint::max()) {
      changed_.Wait(mutex_);
    } else {
      changed_.WaitUntil(mutex_, wake);
    }
  }
  const bool released = parks_.erase(id) == 0;
  --inside_;
  changed_.NotifyAll();
  if (closing_) return Status::Error(Code::kClosed, "Fault: the store is closed");
  *answer = released || Now() < end;  // beyond its time, the blocks are absent
  return Status::Ok();
}

}  // namespace ucmstore
