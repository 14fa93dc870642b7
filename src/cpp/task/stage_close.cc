// SPDX-License-Identifier: Apache-2.0
//
// How incomplete blocks grow old, and how a stage closes.
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "task/stage_core.h"
#include "task/stage_task.h"

namespace ucmstore {
namespace {

// Even a Close that waits for nothing leaves this for what a healthy disk does at once.
constexpr milliseconds kLeastTime{100};

}  // namespace

void StageCore::ExpireJob::Run() noexcept {
  core_.ExpiryOver();
  bool more = true;
  try {
    more = core_.assembler_.Expire(core_.closing_);
  } catch (...) {  // out of memory: later, then
  }
  if (more) core_.ScheduleExpiry();
  core_.Leave();
}

void StageCore::ExpiryOver() {
  const MutexLock lock(mutex_);
  expiry_scheduled_ = false;
}

void StageCore::ScheduleExpiry() noexcept {
  const MutexLock lock(mutex_);
  if (expiry_scheduled_ || closing_.load()) return;
  const auto age = runtime_->options().incomplete_age;
  try {
    expiry_ = runtime_->timer().Schedule(
        std::chrono::steady_clock::now() + std::max(age / 4, milliseconds(10)),
        [this] { BeginExpiry(); });
  } catch (...) {  // out of memory
    expiry_ = 0;
  }
  expiry_scheduled_ = expiry_ != 0;  // else the next dump tries again
}

void StageCore::BeginExpiry() noexcept {
  {
    const MutexLock lock(mutex_);
    if (closing_.load()) return;
    ++inside_;
  }
  // There is one job, and it carries the queue's links: scheduled again only once it has run.
  Job* job = expire_job_.get();
  if (runtime_->pool().Push({&job, 1}, Lane::kBackground)) return;
  ExpiryOver();
  Leave();
}

bool StageCore::Rest(TimePoint until) {
  Timer::EntryId expiry = 0;
  {
    const MutexLock lock(mutex_);
    closing_.store(true);
    expiry = expiry_;
  }
  if (expiry != 0) runtime_->timer().Cancel(expiry);
  if (runtime_->pool().Remove(*expire_job_)) Leave();
  for (const auto& task : table_.All()) {
    EndUnbegun(static_cast<StageTask&>(*task), Code::kCancelled);
  }
  {
    const MutexLock lock(mutex_);
    while (inside_ > 0) {
      if (!left_.WaitUntil(mutex_, until) && inside_ > 0) return false;
    }
  }
  runtime_->timer().Barrier();
  return RemoveIncomplete(std::max(until, std::chrono::steady_clock::now() + kLeastTime));
}

// A disk may take long to remove a file, or for ever, and there may be thousands.
bool StageCore::RemoveIncomplete(TimePoint until) {
  if (!removing_) {
    writers_ = assembler_.Clear();
    removing_.emplace(runtime_->pool(), writers_.size(),
                      [this](std::size_t i) { writers_[i].reset(); });
  }
  std::size_t abandoned = 0;
  const bool ended = removing_->Finish(until, [this, &abandoned](std::size_t i) {
    writers_[i]->Abandon();
    writers_[i].reset();
    ++abandoned;
  });
  if (abandoned > 0) {
    log_.Warning([abandoned] {
      return fmt::format("close: no time was left to remove {} incomplete blocks", abandoned);
    });
  }
  return ended;
}

bool StageCore::EndRuntime(TimePoint until) {
  if (own_runtime_ == nullptr) return true;
  const auto rest = std::chrono::ceil<milliseconds>(until - std::chrono::steady_clock::now());
  return own_runtime_->Shutdown(static_cast<std::uint32_t>(std::max(rest, kLeastTime).count()));
}

}  // namespace ucmstore
