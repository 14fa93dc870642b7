// SPDX-License-Identifier: Apache-2.0
//
// Phases of shards, and how a task stops.
#include "store/cache/cache_task.h"

#include <algorithm>
#include <chrono>

#include "store/cache/cache_stage.h"

namespace ucmstore {

CacheTask::CacheTask(CacheStage& stage, TaskKind kind, const TaskDesc& desc)
    : Task(kind, desc),
      begun(std::chrono::steady_clock::now()),
      deadline(desc.timeout_ms == 0 ? TimePoint::max() : begun + milliseconds(desc.timeout_ms)),
      tenant(desc.tenant),
      stage_(stage),
      phases_(desc.shard_count) {
  for (std::uint32_t i = 0; i < desc.shard_count; ++i) {
    if (i == 0 || shards()[i].block != shards()[i - 1].block) starts_.push_back(i);
  }
  starts_.push_back(desc.shard_count);
}

std::vector<std::uint32_t> CacheTask::WaitingOf(std::uint32_t block) const {
  std::vector<std::uint32_t> positions;
  positions.reserve(starts_[block + 1] - starts_[block]);
  for (std::uint32_t i = starts_[block]; i < starts_[block + 1]; ++i) {
    if (Waits(i)) positions.push_back(i);
  }
  return positions;
}

void CacheTask::EndBlock(std::uint32_t block, const Status& status) noexcept {
  for (std::uint32_t i = starts_[block]; i < starts_[block + 1]; ++i) EndWaiting(i, status);
}

CacheTask::Share CacheTask::TakeShare(std::uint32_t workers, std::uint32_t least,
                                      std::uint32_t most) noexcept {
  constexpr std::uint32_t kSharesEach = 4;
  std::uint32_t begin = next_block_.load(std::memory_order_relaxed);
  for (;;) {
    const std::uint32_t left = block_count() - begin;
    if (left == 0) return {.begin = begin, .end = begin};
    const std::uint32_t size =
        std::min(std::clamp(left / (workers * kSharesEach), least, most), left);
    if (next_block_.compare_exchange_weak(begin, begin + size, std::memory_order_relaxed)) {
      return {.begin = begin, .end = begin + size};
    }
  }
}

void CacheTask::Tell(std::size_t i, const Status& status, std::uint32_t bytes) noexcept {
  // Counted first: whoever has waited for the task finds the counters right.
  stage_.figures_.Of(kind()).CountShard(status, bytes);
  (void)EndShard(i, stage_.Named(status), bytes);
}

void CacheTask::EndMoved(std::size_t i, const Status& status, std::uint32_t bytes) noexcept {
  phases_[i].store(Phase::kEnded);
  Tell(i, status, bytes);
}

void CacheTask::EndWaiting(std::size_t i, const Status& status, std::uint32_t bytes) noexcept {
  if (Change(i, Phase::kWaiting, Phase::kEnded)) Tell(i, status, bytes);
}

void CacheTask::EndMove(std::size_t i) noexcept {
  phases_[i].store(Phase::kWaiting);
  // Stop sets the code and then looks at the phases, this does it the other way round.
  if (stopped() != Code::kOk) EndWaiting(i, StopStatus());
}

Status CacheTask::StopStatus() const noexcept {
  switch (stopped()) {
    case Code::kOk: return Status::Ok();
    case Code::kTimeout:
      return Status::Error(Code::kTimeout,
                           "the task's deadline passed before this shard had moved");
    case Code::kCancelled:
      return Status::Error(Code::kCancelled, "cancelled before this shard had moved");
    default: return Status::Error(stopped(), CodeName(stopped()));
  }
}

void CacheTask::Stop(const Status& why) noexcept {
  Code running = Code::kOk;
  (void)stopped_.compare_exchange_strong(running, why.code);
  const auto keep = shared_from_this();
  for (std::size_t i = 0; i < phases_.size(); ++i) EndWaiting(i, why);
}

void CacheTask::AddBelow(TaskId below) noexcept {
  const MutexLock lock(mutex_);
  try {
    below_.push_back(below);
  } catch (const std::exception&) {  // it ends all the same, only later
  }
}

void CacheTask::RemoveBelow(TaskId below) noexcept {
  const MutexLock lock(mutex_);
  std::erase(below_, below);
}

std::vector<TaskId> CacheTask::Below() const {
  const MutexLock lock(mutex_);
  return below_;
}

std::uint32_t CacheTask::TimeoutLeft() const noexcept {
  if (deadline == TimePoint::max()) return 0;
  const auto left =
      std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<std::uint32_t>(std::max<std::int64_t>(left, 1));
}

void CacheTask::OnFinish() noexcept { stage_.TaskEnded(*this); }

}  // namespace ucmstore
