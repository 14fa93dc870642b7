// SPDX-License-Identifier: Apache-2.0
//
// How a task becomes jobs. A task of many blocks gets a few workers, as many as there are CPUs to
// copy with, and each takes one share of the blocks after another: a job for each block would wake
// far more threads than can run. What has to wait (for the medium, for another process, for a turn)
// leaves the worker and comes back as a job of its own, so it holds up no other block.
#include <algorithm>
#include <array>
#include <exception>
#include <memory>
#include <numeric>
#include <optional>

#include "store/cache/cache_stage.h"
#include "task/segments.h"

namespace ucmstore {
namespace {

// Waking another worker costs as much as copying this.
constexpr std::uint64_t kWorthAWorker = 256 << 10;
// What one share has: the store below is asked about so many blocks at once, and what it says
// should not be old when it is used.
constexpr std::uint64_t kLeastBytes = 128 << 10;
constexpr std::uint64_t kMostBytes = 4 << 20;
constexpr std::uint64_t kMostBlocks = 64;
// Writing back begins when a dump has been copied, so that the two do not get in each other's way;
// but no later than after so much of one worker's.
constexpr std::uint64_t kWriteBackAfterBytes = 64 << 20;

Lane LaneOf(const CacheTask& task) noexcept {
  return task.kind() == TaskKind::kLoad ? Lane::kLoad : Lane::kDump;
}

Status InternalStatus(const std::exception& error) {
  return Status::Error(Code::kInternal, std::string_view(error.what()));
}

}  // namespace

// ---- the jobs: each deletes itself --------------------------------------------------------------

// Shares of a task.
class CacheStage::TaskJob final : public Job {
 public:
  TaskJob(CacheStage& stage, CacheTaskPtr task, std::uint32_t workers)
      : stage_(stage), task_(std::move(task)), workers_(workers) {}
  void Run() noexcept override {
    std::unique_ptr<TaskJob> self(this);
    CacheStage& stage = stage_;
    while (!stage.RunShares(task_, workers_)) {
      Job* const again = self.release();  // it may run, and be gone, before Push returns
      ThreadPool& pool = stage.runtime().pool();
      if (pool.Push({&again, 1}, LaneOf(*task_), task_->priority())) return;
      self.reset(this);
    }
    self.reset();
    stage.Leave();
  }

 private:
  CacheStage& stage_;
  CacheTaskPtr task_;
  const std::uint32_t workers_;
};

// Blocks of a load that are not in the ring.
class CacheStage::MissingJob final : public Job {
 public:
  MissingJob(CacheStage& stage, CacheTaskPtr task, std::vector<std::uint32_t> blocks)
      : stage_(stage), task_(std::move(task)), blocks_(std::move(blocks)) {}
  void Run() noexcept override {
    std::unique_ptr<MissingJob> self(this);
    CacheStage& stage = stage_;
    stage.LoadMissing(task_, blocks_);
    self.reset();
    stage.Leave();
  }

 private:
  CacheStage& stage_;
  CacheTaskPtr task_;
  const std::vector<std::uint32_t> blocks_;
};

// Shards of one block that have waited for something.
class CacheStage::RunJob final : public Job {
 public:
  RunJob(CacheStage& stage, CacheTaskPtr task, Positions positions)
      : stage_(stage), task_(std::move(task)), positions_(std::move(positions)) {}
  bool with_turn = false;  // it comes with one, once it runs
  void Run() noexcept override {
    std::unique_ptr<RunJob> self(this);
    CacheStage& stage = stage_;
    stage.Again(task_, positions_, with_turn ? Turn(&stage) : Turn());
    self.reset();
    stage.Leave();
  }

 private:
  CacheStage& stage_;
  CacheTaskPtr task_;
  Positions positions_;
};

// ---- beginning ----------------------------------------------------------------------------------

std::uint32_t CacheStage::WorkersFor(const CacheTask& task) {
  const std::uint64_t bytes = task.shards().size() * setup().shard_size;
  const std::uint64_t worth = std::max<std::uint64_t>(bytes / kWorthAWorker, 1);
  const std::uint64_t most = std::min(runtime().pool().UsefulThreads(), task.block_count());
  return static_cast<std::uint32_t>(std::min(worth, most));
}

Status CacheStage::Begin(TaskKind kind, const TaskDesc& desc, TaskId* id) {
  *id = 0;
  if (closing_.load()) return Status::Error(Code::kClosed, "Cache: the store is closed");
  if (Status status = CheckTask(desc, kind, setup().shard_size, setup().shards_per_block);
      !status.ok()) {
    return Named(status);
  }
  if (desc.timeout_ms > 0) {
    if (Status status = runtime().timer().Start(); !status.ok()) return Named(status);
  }
  const auto task = std::make_shared<CacheTask>(*this, kind, desc);
  const std::uint32_t workers = WorkersFor(*task);
  task->SetWorkers(workers);
  std::vector<std::unique_ptr<TaskJob>> jobs;
  std::vector<Job*> queued;
  for (std::uint32_t i = 0; i < workers; ++i) {
    jobs.push_back(std::make_unique<TaskJob>(*this, task, workers));
    queued.push_back(jobs.back().get());
  }
  if (Status status = table_->Insert(task); !status.ok()) return Named(status);
  const TaskId made = task->id();
  {
    const MutexLock lock(mutex_);
    inside_ += 1 + queued.size();  // OnFinish leaves, and each job
  }
  task->self = task;
  figures_.Of(kind).CountTask();
  *id = made;
  if (queued.empty()) {
    task->EndEmpty();
    return Status::Ok();
  }
  if (!runtime().pool().Push(queued, LaneOf(*task), desc.priority)) {
    *id = 0;
    table_->Remove(made);
    task->self.reset();
    const MutexLock lock(mutex_);
    inside_ -= 1 + queued.size();
    return Status::Error(Code::kLimit,
                         "Cache: no worker thread could be started (limits: ulimit -u, pids "
                         "cgroup)");
  }
  for (auto& job : jobs) std::ignore = job.release();  // each deletes itself
  if (desc.timeout_ms > 0) {
    task->timer =
        runtime().timer().Schedule(task->deadline, [weak = std::weak_ptr<CacheTask>(task)] {
          if (const auto late = weak.lock()) {
            late->Stop(Status::Error(Code::kTimeout,
                                     "the task's deadline passed before this shard had moved"));
          }
        });
    // TaskEnded looks at the entry after the end, this the other way round.
    if (task->Ended()) (void)runtime().timer().Cancel(task->timer);
  }
  return Status::Ok();
}

// ---- shares -------------------------------------------------------------------------------------

bool CacheStage::RunShares(const CacheTaskPtr& task, std::uint32_t workers) noexcept {
  const std::uint64_t block_bytes =
      std::max<std::uint64_t>(task->shards().size() / task->block_count() * setup().shard_size, 1);
  const auto blocks_of = [block_bytes](std::uint64_t bytes) {
    const auto blocks = std::clamp<std::uint64_t>(bytes / block_bytes, 1, kMostBlocks);
    return static_cast<std::uint32_t>(blocks);
  };
  Upkeep();
  std::uint64_t dumped = 0;
  bool taken = false;
  bool crowded = false;
  while (!taken && !crowded) {
    const CacheTask::Share share =
        task->TakeShare(workers, blocks_of(kLeastBytes), blocks_of(kMostBytes));
    taken = share.end == task->block_count();
    if (task->kind() == TaskKind::kLoad) {
      LoadShare(task, share);
      crowded = runtime().pool().Crowded();
      continue;
    }
    DumpShare(task, share);
    crowded = runtime().pool().Crowded();
    dumped += (share.end - share.begin) * block_bytes;
    if ((taken && task->LastWorkerEnds()) || dumped >= kWriteBackAfterBytes) {
      WriteBackNow();
      dumped = 0;
    }
  }
  return taken;
}

// The next who comes by does what there is no memory for now.
void CacheStage::WriteBackNow() noexcept {
  try {
    write_back_->Pump();
  } catch (const std::exception&) {
  }
}

void CacheStage::Upkeep() noexcept {
  try {
    ReapNowAndThen();
  } catch (const std::exception&) {
  }
}

// Does the work of one block, and ends its shards if that is impossible.
template <typename Work>
void CacheStage::ForBlock(const CacheTaskPtr& task, std::uint32_t block, Work&& work) noexcept {
  try {
    const Positions positions = task->WaitingOf(block);
    if (!positions.empty()) work(positions);
  } catch (const std::exception& error) {
    task->EndBlock(block, InternalStatus(error));
  } catch (...) {  // the worker's edge
    task->EndBlock(block, Status::Error(Code::kInternal, "an unknown exception in a worker"));
  }
}

std::optional<BelowAnswers> CacheStage::AnswersFor(const CacheTaskPtr& task,
                                                   std::span<const std::uint32_t> blocks) noexcept {
  try {
    std::vector<BlockId> ids;
    ids.reserve(blocks.size());
    for (const std::uint32_t block : blocks) ids.push_back(task->BlockAt(block));
    return std::optional<BelowAnswers>(std::in_place, below(), std::move(ids));
  } catch (const std::exception& error) {
    for (const std::uint32_t block : blocks) task->EndBlock(block, InternalStatus(error));
    return std::nullopt;
  }
}

void CacheStage::LoadShare(const CacheTaskPtr& task, CacheTask::Share share) noexcept {
  std::vector<std::uint32_t> missing;
  for (std::uint32_t block = share.begin; block < share.end; ++block) {
    ForBlock(task, block, [&](const Positions& positions) {
      if (!LoadIfWhole(task, positions)) missing.push_back(block);
    });
  }
  if (missing.empty()) return;
  // The medium may be slow to say what it has, and the rest of the task may be hits.
  const bool is_last = share.end == task->block_count();
  if (is_last || !PushMissing(task, missing)) LoadMissing(task, missing);
}

void CacheStage::LoadMissing(const CacheTaskPtr& task,
                             std::span<const std::uint32_t> blocks) noexcept {
  std::optional<BelowAnswers> below = AnswersFor(task, blocks);
  if (!below) return;
  Positions absent;  // they go past the ring together
  for (std::size_t k = 0; k < blocks.size(); ++k) {
    ForBlock(task, blocks[k], [&](const Positions& positions) {
      if (below->Of(k) == BelowAnswers::Answer::kNotThere &&
          !ring().Find(task->BlockAt(blocks[k]))) {
        absent.insert(absent.end(), positions.begin(), positions.end());
      } else {
        LoadRun(task, positions, Turn(), *below, k);
      }
    });
  }
  if (absent.empty()) return;
  try {
    if (Turn turn = TryTurn()) return GoPast(task, absent, std::move(turn));
    for (const std::uint32_t i : absent) Push(task, {i});
  } catch (const std::exception& error) {
    EndAll(task, absent, InternalStatus(error));
  }
}

void CacheStage::DumpShare(const CacheTaskPtr& task, CacheTask::Share share) noexcept {
  std::array<std::uint32_t, kMostBlocks> blocks{};
  const std::span its(blocks.data(), share.end - share.begin);
  std::iota(its.begin(), its.end(), share.begin);
  std::optional<BelowAnswers> below = AnswersFor(task, its);
  if (!below) return;
  for (std::size_t k = 0; k < its.size(); ++k) {
    ForBlock(task, its[k],
             [&](const Positions& positions) { DumpRun(task, positions, Turn(), *below, k); });
  }
}

// ---- coming back --------------------------------------------------------------------------------

void CacheStage::Push(const CacheTaskPtr& task, const Positions& positions) noexcept {
  if (TryPush(task, positions, false)) return;
  EndAll(task, positions,
         Status::Error(Code::kLimit, "there is no worker, or no memory, to go on with it"));
}

bool CacheStage::TryPush(const CacheTaskPtr& task, const Positions& positions,
                         bool with_turn) noexcept {
  Enter();
  try {
    auto job = std::make_unique<RunJob>(*this, task, positions);
    Job* const pushed = job.get();
    job->with_turn = with_turn;
    if (runtime().pool().Push({&pushed, 1}, LaneOf(*task), task->priority())) {
      std::ignore = job.release();
      return true;
    }
  } catch (const std::exception&) {  // no memory
  }
  Leave();
  return false;
}

bool CacheStage::PushMissing(const CacheTaskPtr& task,
                             const std::vector<std::uint32_t>& blocks) noexcept {
  Enter();
  try {
    auto job = std::make_unique<MissingJob>(*this, task, blocks);
    Job* const pushed = job.get();
    if (runtime().pool().Push({&pushed, 1}, LaneOf(*task), task->priority())) {
      std::ignore = job.release();
      return true;
    }
  } catch (const std::exception&) {  // no memory
  }
  Leave();
  return false;
}

void CacheStage::Again(const CacheTaskPtr& task, const Positions& positions, Turn turn) noexcept {
  try {
    Positions waiting;
    for (const std::uint32_t i : positions) {
      if (task->Waits(i)) waiting.push_back(i);
    }
    if (waiting.empty()) return;
    Upkeep();
    BelowAnswers answers(below(), {task->shards()[waiting.front()].block});
    if (task->kind() == TaskKind::kLoad) {
      LoadRun(task, waiting, std::move(turn), answers, 0);
    } else {
      DumpRun(task, waiting, std::move(turn), answers, 0);
      WriteBackNow();
    }
  } catch (const std::exception& error) {
    EndAll(task, positions, InternalStatus(error));
  } catch (...) {  // the worker's edge
    EndAll(task, positions, Status::Error(Code::kInternal, "an unknown exception in a worker"));
  }
}

void CacheStage::EndAll(const CacheTaskPtr& task, const Positions& positions,
                        const Status& status) {
  for (const std::uint32_t i : positions) task->EndWaiting(i, status);
}

}  // namespace ucmstore
