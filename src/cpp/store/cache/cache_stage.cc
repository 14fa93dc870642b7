// SPDX-License-Identifier: Apache-2.0
//
// The calls of a Cache stage: how it opens, begins and ends tasks, and closes.
#include "store/cache/cache_stage.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include "store/cache/cache_options.h"
#include "task/guarded.h"

namespace ucmstore {
namespace {

TimePoint Now() { return std::chrono::steady_clock::now(); }

Status ClosedStatus() { return Status::Error(Code::kClosed, "Cache: the store is closed"); }

}  // namespace

CacheStage::~CacheStage() = default;

Status CacheStage::Open(const StageSetup& setup) {
  const auto options = CacheOptions::From(setup, IdentityBelow());
  if (!options) return options.error();
  auto attachment = Attachment::Open(options->segment, runtime().options().incomplete_age);
  if (!attachment) return Named(attachment.error());
  attachment_ = std::move(*attachment);
  const RingSegment& segment = attachment_->segment();
  if (options->segment.only_private) {
    log().Info("the store below is this process's alone, so the ring is, too");
  } else if (segment.is_private()) {
    log().Warning(segment.why_private());
  } else if (!segment.note().empty()) {
    log().Warning(segment.note());
  }
  if (options->unlink) attachment_->UnlinkAtEnd();
  through_ = options->through;
  // Fills, what goes past, and what is written back share the table of the stage below.
  max_turns_ = std::clamp(runtime().options().max_tasks / 2, 1U, kMaxTurns);
  WriteBack::Limits write_back = options->write_back;
  write_back.in_flight =
      std::min(write_back.in_flight, std::max(runtime().options().max_tasks / 4, 1U));
  uses_.emplace(runtime().pool(), runtime().clock(), ring().slot_count(),
                [this](std::span<const BlockId> used) { TellBelow(used); });
  table_.emplace(runtime().options().max_tasks);
  unfinished_.emplace(ring(),
                      Unfinished::Limits{.shards_per_block = setup.shards_per_block,
                                         .max_blocks = runtime().options().max_incomplete_blocks,
                                         .max_age = runtime().options().incomplete_age},
                      runtime().clock());
  write_back_.emplace(*this, ring(), write_back);
  watch_.emplace(ring(), runtime().options().start_thread,
                 Watch::Callbacks{.over =
                                      [this](ShardWait wait) {
                                        wait.pin.Release();
                                        Push(wait.task, wait.positions);
                                      },
                                  .given_up = [this](ShardWait wait) { GiveUp(std::move(wait)); }});
  ring().AdoptDirty([this](std::uint32_t slot) { write_back_->Add(slot); });
  prefault_.emplace(runtime().options().start_thread);
  if (options->prefault && attachment_->TakePrefault()) {
    prefault_->Start({segment.data(), segment.header().segment_bytes - segment.header().data_at});
  }
  SetUpLeases(options->max_leases);
  return Status::Ok();
}

void CacheStage::Enter() {
  const MutexLock lock(mutex_);
  ++inside_;
}

void CacheStage::Leave() {
  const MutexLock lock(mutex_);
  if (--inside_ == 0) left_.NotifyAll();
}

Status CacheStage::Lookup(const LookupDesc& desc, std::uint8_t* found) noexcept {
  return Guarded([&] { return LookupHere(desc, found); });
}

// ---- tasks --------------------------------------------------------------------------------------

Status CacheStage::Load(const TaskDesc& desc, TaskId* task) noexcept {
  return Guarded([&] { return Begin(TaskKind::kLoad, desc, task); });
}

Status CacheStage::Dump(const TaskDesc& desc, TaskId* task) noexcept {
  return Guarded([&] { return Begin(TaskKind::kDump, desc, task); });
}

void CacheStage::GiveUp(ShardWait wait) noexcept {
  const bool for_a_slot = !wait.pin;
  Status why = Status::Error(
      Code::kBusy, for_a_slot
                       ? "no slot for this block became free: all are in use, or wait to be "
                         "written back"
                       : "this shard is reserved by another process's lease, or a process that is "
                         "dumping it has stopped");
  try {
    // Perhaps a dead one was at it; of several waits for him the first has reaped.
    const bool reaped = Reap();
    const bool again = for_a_slot ? reaped : watch_->IsOver(wait.pin, wait.shard);
    wait.pin.Release();
    if (again) return Push(wait.task, wait.positions);
    if (wait.task->kind() == TaskKind::kLoad) {
      if (Turn turn = TakeTurn(wait.task, wait.positions)) {
        GoPast(wait.task, wait.positions, std::move(turn));
      }
      return;
    }
  } catch (const std::exception&) {
    why = Status::Error(Code::kLimit, "no memory to go on with it");
  }
  EndAll(wait.task, wait.positions, why);
}

Status CacheStage::Named(const Status& status) const noexcept {
  if (status.ok() || status.text().starts_with("Cache: ")) return status;
  return ErrorInWords(
      status.code, status.text(), [&] { return fmt::format("Cache: {}", status.text()); },
      status.sys_errno);
}

void CacheStage::TaskEnded(CacheTask& task) noexcept {
  if (const Timer::EntryId timer = task.timer; timer != 0) (void)runtime().timer().Cancel(timer);
  figures_.Of(task.kind()).CountLatency(Now() - task.begun);
  Leave();
  task.self.reset();  // whoever ended the last shard holds another reference
}

Status CacheStage::Check(TaskId task, bool* done) noexcept { return table_->Check(task, done); }

Status CacheStage::Wait(TaskId task, std::uint32_t timeout_ms) noexcept {
  return table_->Wait(task, timeout_ms);
}

void CacheStage::StopTask(const CacheTaskPtr& task, const Status& why) {
  task->Stop(why);
  for (const TaskId below : task->Below()) (void)CancelBelow(below);  // it may have ended
}

Status CacheStage::Cancel(TaskId id) noexcept {
  return Guarded([&] {
    const auto task = std::static_pointer_cast<CacheTask>(table_->Find(id));
    if (task == nullptr) return UnknownTask(id);
    StopTask(task, Status::Error(Code::kCancelled, "cancelled before this shard had moved"));
    return Status::Ok();
  });
}

// ---- upkeep -------------------------------------------------------------------------------------

bool CacheStage::Reap() {
  const bool reaped = attachment_->Reap() > 0;
  const std::uint64_t orphans = ring().Orphans();
  if (reaped || orphans_seen_.exchange(orphans) != orphans) {
    ring().AdoptDirty([this](std::uint32_t slot) { write_back_->Add(slot); });
  }
  return reaped;
}

void CacheStage::ReapNowAndThen() {
  const auto now = Now().time_since_epoch().count();
  auto last = last_reap_.load(std::memory_order_relaxed);
  if (now - last < std::chrono::nanoseconds(kReapEvery).count()) return;
  if (!last_reap_.compare_exchange_strong(last, now, std::memory_order_relaxed)) return;
  (void)Reap();
  write_back_->Nudge();
}

void CacheStage::ScheduleExpiry() {
  const MutexLock lock(mutex_);
  if (expiry_scheduled_ || closing_.load()) return;
  const auto age = runtime().options().incomplete_age;
  expiry_ = runtime().timer().Schedule(Now() + std::max(age / 4, milliseconds(10)), [this] {
    {
      const MutexLock inner(mutex_);
      expiry_scheduled_ = false;
      if (closing_.load()) return;
    }
    if (unfinished_->Expire()) ScheduleExpiry();
  });
  expiry_scheduled_ = expiry_ != 0;
}

Status CacheStage::Flush(std::uint32_t timeout_ms) noexcept {
  return Guarded([&] {
    if (closing_.load()) return ClosedStatus();
    if (!write_back_->Drain(Now() + milliseconds(timeout_ms))) {
      return Status::Error(Code::kPending,
                           fmt::format("Cache: {} blocks are not written back yet",
                                       write_back_->Waiting() + write_back_->InFlight()));
    }
    return Status::Ok();
  });
}

bool CacheStage::Close(std::uint32_t timeout_ms) noexcept {
  const TimePoint until = Now() + milliseconds(timeout_ms);
  if (table_.has_value()) {
    Timer::EntryId expiry = 0;
    {
      const MutexLock lock(mutex_);
      closing_.store(true);
      expiry = expiry_;
    }
    if (expiry != 0) (void)runtime().timer().Cancel(expiry);
    for (const auto& task : table_->All()) {
      StopTask(std::static_pointer_cast<CacheTask>(task),
               Status::Error(Code::kCancelled, "the store was closed"));
    }
    prefault_->Stop();
    if (lease_gate_ != nullptr) lease_gate_->Shut();
    watch_->Stop();
    if (!uses_->End(until)) return false;
    {
      const MutexLock lock(mutex_);
      want_turns_.clear();
    }
    (void)attachment_->Reap();
    ring().AdoptDirty([this](std::uint32_t slot) { write_back_->Add(slot); });
    // Some time is kept for what is cancelled then.
    const auto kept = std::min(milliseconds(timeout_ms / 4), milliseconds(500));
    if (!write_back_->Drain(until - kept)) {
      const bool lost = attachment_->segment().is_private();
      log().Warning(fmt::format("{} blocks were not written back in time; {}",
                                write_back_->Waiting() + write_back_->InFlight(),
                                lost ? "the ring is this process's alone, so they are lost"
                                     : "they stay in the ring for the next process"));
    }
    write_back_->Stop();
    runtime().timer().Barrier();  // a retry that had begun when Stop came
    {
      const MutexLock lock(mutex_);
      while (inside_ > 0) {
        if (!left_.WaitUntil(mutex_, until) && inside_ > 0) return false;
      }
    }
    runtime().timer().Barrier();
    unfinished_->Clear();
    watch_.reset();
    write_back_.reset();
    unfinished_.reset();
    table_.reset();
    attachment_.reset();
  }
  const auto rest = std::chrono::ceil<milliseconds>(until - Now());
  return ForwardStage::Close(static_cast<std::uint32_t>(std::max(rest, milliseconds(100)).count()));
}

}  // namespace ucmstore
