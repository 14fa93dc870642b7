// SPDX-License-Identifier: Apache-2.0
//
// How a task becomes jobs, and how jobs run.
#include "task/stage_core.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <new>

#include "base/hex.h"
#include "task/stage_task.h"

namespace ucmstore {
namespace {

constexpr std::uint32_t kMaxFollowers = 256;

Status StoppedStatus(Code code) {
  switch (code) {
    case Code::kTimeout:
      return Status::Error(code, "the task's deadline passed before this shard had begun");
    case Code::kCancelled: return Status::Error(code, "cancelled before this shard had begun");
    default: return Status::Error(code, CodeName(code));
  }
}

Status ClosedStatus() { return Status::Error(Code::kClosed, "the store is closed"); }

}  // namespace

void StageCore::BlockJob::Run() noexcept {
  StageCore& core = task_.core();
  core.Enter();  // the task has not ended yet, so the core is not closed
  core.Run(*this);
  core.Leave();
}

void StageCore::StageTask::OnFinish() noexcept {
  if (deadline != 0) core_.runtime().timer().Cancel(deadline);
  core_.figures_.Of(kind()).CountLatency(core_.runtime().clock().Now() - begun);
  core_.Leave();
  self.reset();  // Finish holds another reference
}

StageCore::StageCore(TerminalStage& stage, Runtime* runtime, const StageSetup& setup)
    : stage_(stage),
      own_runtime_(runtime == nullptr ? std::make_unique<Runtime>(RuntimeOptions{}) : nullptr),
      runtime_(runtime == nullptr ? own_runtime_.get() : runtime),
      log_(runtime_->log_sink(), stage.name_),
      shard_size_(setup.shard_size),
      shards_per_block_(setup.shards_per_block),
      table_(runtime_->options().max_tasks),
      assembler_({.shards_per_block = setup.shards_per_block,
                  // More than workers, so that one at rest can always be found to make room.
                  .max_blocks = std::max(runtime_->options().max_incomplete_blocks,
                                         runtime_->pool().max_threads() + 1),
                  .max_followers = kMaxFollowers,
                  .max_age = runtime_->options().incomplete_age},
                 {.visible = [this](const BlockId& id) -> Result<bool> {
                    std::uint8_t found = kAbsent;
                    const Status status = stage_.Find({&id, 1}, kNoTouch, &found);
                    if (!status.ok()) return std::unexpected(status);
                    return found != kAbsent;
                  },
                  .create = [this](const BlockId& id) { return stage_.Create(id); }},
                 runtime_->clock()),
      expire_job_(std::make_unique<ExpireJob>(*this)) {}

StageCore::~StageCore() = default;

void StageCore::Enter() {
  const MutexLock lock(mutex_);
  ++inside_;
}

void StageCore::Leave() {
  const MutexLock lock(mutex_);
  if (--inside_ == 0) left_.NotifyAll();
}

Status StageCore::Lookup(const LookupDesc& desc, std::uint8_t* found) {
  if (closing_.load()) return ClosedStatus();
  if (Status status = CheckLookup(desc, found); !status.ok()) return status;
  if (desc.count == 0) return Status::Ok();
  std::fill_n(found, desc.count, kAbsent);
  const TimePoint until = desc.timeout_ms == 0
                              ? TimePoint::max()
                              : std::chrono::steady_clock::now() + milliseconds(desc.timeout_ms);
  const Status status = stage_.FindUntil({desc.blocks, desc.count}, desc.flags, until, found);
  if (!status.ok()) {
    std::fill_n(found, desc.count, kAbsent);
    figures_.lookups.CountError();
    return status;
  }
  figures_.lookups.CountAndCut(desc, found);
  return Status::Ok();
}

// Not ok: nothing of the task will ever run.
Status StageCore::Queue(StageTask& task, std::span<Job* const> jobs) noexcept {
  Status status;
  try {
    if (task.timeout_ms() > 0) {
      const auto owner = std::static_pointer_cast<StageTask>(task.shared_from_this());
      task.deadline = runtime_->timer().Schedule(
          std::chrono::steady_clock::now() + milliseconds(task.timeout_ms()),
          [this, weak = std::weak_ptr<StageTask>(owner)] {
            if (const auto late = weak.lock()) EndUnbegun(*late, Code::kTimeout);
          });
      if (task.deadline == 0) return ClosedStatus();  // the thread was there: it is stopped
    }
    const Lane lane = task.kind() == TaskKind::kLoad ? Lane::kLoad : Lane::kDump;
    status = runtime_->pool().TryPush(jobs, lane, task.priority());
  } catch (const std::bad_alloc&) {
    status = Status::Error(Code::kLimit, "out of memory for a task's deadline");
  }
  if (!status.ok() && task.deadline != 0) runtime_->timer().Cancel(task.deadline);
  return status;
}

Status StageCore::Begin(TaskKind kind, const TaskDesc& desc, TaskId* id) {
  if (closing_.load()) return ClosedStatus();
  if (Status status = CheckTask(desc, kind, shard_size_, shards_per_block_); !status.ok()) {
    return status;
  }
  // Without the timer's thread the deadline would be lost: asked for while nothing is touched.
  if (desc.timeout_ms > 0 && desc.shard_count > 0) {
    if (Status status = runtime_->timer().Start(); !status.ok()) return status;
  }
  const auto task = std::make_shared<StageTask>(*this, kind, desc);
  std::vector<Job*> jobs;
  jobs.reserve(task->jobs.size());
  for (BlockJob& job : task->jobs) jobs.push_back(&job);
  if (Status status = table_.Insert(task); !status.ok()) return status;
  *id = task->id();
  Enter();  // OnFinish leaves
  task->self = task;
  TransferFigures& figures = figures_.Of(kind);
  if (jobs.empty()) {
    task->EndEmpty();
    figures.CountTask();
    return Status::Ok();
  }
  if (Status status = Queue(*task, jobs); !status.ok()) {
    *id = 0;
    table_.Remove(task->id());
    Leave();
    task->self.reset();
    return status;
  }
  figures.CountTask();
  // A deadline that came before the jobs were queued found nothing to take out of the queue. It
  // sets `stopped` and then looks at the queue, we do it the other way round: one of us sees the
  // other.
  if (const Code stopped = task->stopped.load(); stopped != Code::kOk) EndUnbegun(*task, stopped);
  return Status::Ok();
}

void StageCore::EndShard(StageTask& task, std::size_t i, const Status& status,
                         std::uint32_t bytes) noexcept {
  // Counted first: whoever has waited for the task finds the counters right. A shard that two ends
  // race for is counted by the winner alone.
  if (!task.ClaimEnd(i)) return;
  figures_.Of(task.kind()).CountShard(status, bytes);
  if (status.ok()) {
    task.EndClaimed(i, status, bytes);
    return;
  }
  task.EndClaimed(
      i,
      ErrorInWords(
          status.code, status.text(),
          [&] { return fmt::format("{}: {}", stage_.name_, status.text()); }, status.sys_errno),
      bytes);
}

void StageCore::Run(BlockJob& job) noexcept {
  StageTask& task = job.task();
  const auto keep = std::static_pointer_cast<StageTask>(task.shared_from_this());
  Code stopped = task.stopped.load();
  if (stopped == Code::kOk && task.PastDeadline(runtime_->clock().Now())) stopped = Code::kTimeout;
  if (stopped != Code::kOk) return EndJob(job, StoppedStatus(stopped));
  Status failure;
  try {
    if (task.kind() == TaskKind::kLoad) {
      RunLoad(task, job);
    } else {
      RunDump(keep, job);
    }
    return;
  } catch (const std::bad_alloc&) {
    failure = Status::Error(Code::kLimit, "out of memory");
  } catch (const std::exception& error) {
    failure = ErrorInWords(Code::kInternal, "an exception in a worker", [&] {
      return fmt::format("an exception in a worker: {}", error.what());
    });
  } catch (...) {  // the worker's edge
    failure = Status::Error(Code::kInternal, "an unknown exception in a worker");
  }
  EndJob(job, failure);
}

void StageCore::EndJob(const BlockJob& job, const Status& status) noexcept {
  for (std::uint32_t i = 0; i < job.count(); ++i) {
    EndShard(job.task(), job.first() + i, status, 0);
  }
}

// The job's shards, in memory that a worker's next job can use again.
class StageCore::Shards {
 public:
  explicit Shards(const BlockJob& job) : shards_(std::move(Scratch())) {
    shards_.clear();
    for (const Shard& shard : job.task().shards().subspan(job.first(), job.count())) {
      shards_.emplace_back(shard.index, std::span(shard.segments, shard.segment_count));
    }
  }
  Shards(const Shards&) = delete;
  Shards& operator=(const Shards&) = delete;
  ~Shards() { Scratch() = std::move(shards_); }
  [[nodiscard]] std::vector<ShardIo>& get() noexcept { return shards_; }

 private:
  static std::vector<ShardIo>& Scratch() noexcept {
    thread_local std::vector<ShardIo> scratch;
    return scratch;
  }
  std::vector<ShardIo> shards_;
};

void StageCore::RunLoad(StageTask& task, const BlockJob& job) {
  Shards held(job);
  std::vector<ShardIo>& shards = held.get();
  Status failure = Status::Error(Code::kInternal, "the medium left the shard without a result");
  try {
    stage_.Read(task.shards()[job.first()].block, shards);
  } catch (const std::bad_alloc&) {
    failure = Status::Error(Code::kLimit, "out of memory while reading");
  } catch (const std::exception& error) {
    failure = ErrorInWords(Code::kInternal, "an exception while reading", [&] {
      return fmt::format("an exception while reading: {}", error.what());
    });
  } catch (...) {  // the worker's edge
    failure = Status::Error(Code::kInternal, "an unknown exception while reading");
  }
  for (std::uint32_t i = 0; i < shards.size(); ++i) {
    if (!shards[i].ended()) shards[i].Fail(failure);
    EndShard(task, job.first() + i, shards[i].status(), shards[i].stored_bytes());
  }
}

// Throws only before a shard of the job is claimed.
void StageCore::RunDump(const std::shared_ptr<StageTask>& task, BlockJob& job) {
  Shards held(job);
  assembler_.Dump(task->shards()[job.first()].block, held.get(),
                  [this, task, first = job.first()](std::size_t position, const Status& status,
                                                    std::uint32_t bytes) {
                    EndShard(*task, first + position, status, bytes);
                  });
  // What has not ended by now follows another dump of the same shard. EndUnbegun sets `stopped`
  // and then reads `following`, we do it the other way round: one of us sees the other
  // (sequentially consistent on all four).
  job.following.store(true);
  if (const Code stopped = task->stopped.load(); stopped != Code::kOk) EndUnbegun(*task, stopped);
  if (assembler_.Incomplete() > 0) ScheduleExpiry();
}

void StageCore::EndUnbegun(StageTask& task, Code code) noexcept {
  Code running = Code::kOk;
  task.stopped.compare_exchange_strong(running, code);
  const Status status = StoppedStatus(task.stopped.load());
  const auto keep = task.shared_from_this();
  for (BlockJob& job : task.jobs) {
    const bool never_runs = runtime_->pool().Remove(job);
    if (!never_runs && !job.following.load()) continue;
    EndJob(job, status);
  }
}

Status StageCore::Cancel(TaskId id) {
  const auto task = std::static_pointer_cast<StageTask>(table_.Find(id));
  if (task == nullptr) return UnknownTask(id);
  EndUnbegun(*task, Code::kCancelled);
  return Status::Ok();
}

void StageCore::VisitMetrics(const std::function<void(const MetricV1&)>& metric) const {
  const auto one = [&](const char* name, MetricKind kind, double value) {
    metric({.name = name, .kind = kind, .reserved = 0, .value = value});
  };
  figures_.Visit(one);
  one("dump_written_bytes", MetricKind::kCounter, static_cast<double>(assembler_.WrittenBytes()));
  one("committed_blocks", MetricKind::kCounter, static_cast<double>(assembler_.Committed()));
  one("aborted_blocks", MetricKind::kCounter, static_cast<double>(assembler_.Aborted()));
  one("incomplete_blocks", MetricKind::kGauge, static_cast<double>(assembler_.Incomplete()));
  one("tasks_in_flight", MetricKind::kGauge, static_cast<double>(table_.size()));
  one("queued_jobs", MetricKind::kGauge, static_cast<double>(runtime_->pool().QueuedJobs()));
  one("worker_threads", MetricKind::kGauge, static_cast<double>(runtime_->pool().Threads()));
}

}  // namespace ucmstore
