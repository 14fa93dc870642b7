// SPDX-License-Identifier: Apache-2.0
//
// Noting, and setting times.
#include "store/posix/touches.h"

#include <array>
#include <cstdlib>
#include <ctime>
#include <utility>

namespace ucmstore {

// Files carry the time of day, so this is measured by it, to some milliseconds.
bool Touches::IsOld(std::int64_t mtime_ns) const noexcept {
  if (interval_ns_ == 0) return true;
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME_COARSE, &now);
  const std::int64_t age = std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec - mtime_ns;
  // One from the future would never grow old.
  return std::abs(age) > interval_ns_;
}

void Touches::Note(const std::shared_ptr<Root>& home, const BlockId& id) noexcept {
  if (full_.load(std::memory_order_relaxed)) return;
  const MutexLock lock(mutex_);
  if (closing_) return;
  try {
    waiting_.try_emplace(id, home);
  } catch (...) {  // out of memory: its next use, then
    return;
  }
  full_.store(waiting_.size() >= kMaxWaiting, std::memory_order_relaxed);
  if (running_) return;
  Job* const job = this;
  running_ = pool_.Push({&job, 1}, Lane::kBackground);
}

bool Touches::TouchSome() {
  std::array<Waiting::node_type, kInOneRun> some;
  std::size_t count = 0;
  bool more = false;
  {
    const MutexLock lock(mutex_);
    while (count < kInOneRun && !waiting_.empty() && !closing_) {
      some[count++] = waiting_.extract(waiting_.begin());
    }
    more = !waiting_.empty() && !closing_;
    full_.store(false, std::memory_order_relaxed);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const Root& root = *some[i].mapped();
    if (root.breaker().resting()) continue;
    const Name name = BlockName(some[i].key(), root.prefix_digits());
    if (root.fs().SetTimes(root.folder(), name.c_str()) == 0) counters_.touched_blocks.Add();
  }
  return more;
}

void Touches::Run() noexcept {
  const bool more = TouchSome();
  // Again behind whatever else waits; from the moment it is queued another worker may run it.
  Job* const job = this;
  if (more && pool_.Push({&job, 1}, Lane::kBackground)) return;
  const MutexLock lock(mutex_);
  running_ = false;
  if (!waiting_.empty() && !closing_) running_ = pool_.Push({&job, 1}, Lane::kBackground);
  ended_.NotifyAll();
}

bool Touches::End(TimePoint until) {
  Waiting dropped;  // ends after the lock: a root may close with it
  {
    const MutexLock lock(mutex_);
    closing_ = true;
    dropped.swap(waiting_);
  }
  const bool never_runs = pool_.Remove(*this);
  const MutexLock lock(mutex_);
  if (never_runs) running_ = false;
  while (running_) {
    if (!ended_.WaitUntil(mutex_, until) && running_) return false;
  }
  return true;
}

}  // namespace ucmstore
