// SPDX-License-Identifier: Apache-2.0
//
// Trying a root, and trying it again.
#include "store/posix/root_slot.h"

#include <spdlog/fmt/fmt.h>

#include <utility>

namespace ucmstore {

Result<std::shared_ptr<Root>> RootSlot::Open() {
  Result<std::unique_ptr<Root>> opened = Root::Open(fs_, options_);
  if (opened) {
    live_.store(true);
    return std::shared_ptr<Root>(*std::move(opened));
  }
  const MutexLock lock(mutex_);
  why_ = opened.error();
  return std::unexpected(why_);
}

void RootSlot::TendBy(ThreadPool& pool, const Clock& clock, Log& log, Accept accept,
                      std::function<void()> look) {
  pool_ = &pool;
  clock_ = &clock;
  log_ = &log;
  accept_ = std::move(accept);
  look_ = std::move(look);
  next_try_.store(NextTry());
}

TimePoint RootSlot::NextTry() const noexcept {
  return clock_->Now() + (live() ? kLookAfter : kRetryAfter);
}

Status RootSlot::why() const {
  const MutexLock lock(mutex_);
  return why_;
}

void RootSlot::Tend() noexcept {
  const TimePoint next = next_try_.load(std::memory_order_relaxed);
  if (next == TimePoint::max() || clock_->Now() < next) return;
  const MutexLock lock(mutex_);
  if (trying_ || closing_) return;
  Job* const job = this;
  trying_ = pool_->Push({&job, 1}, Lane::kBackground);
  next_try_.store(NextTry());
}

void RootSlot::Run() noexcept {
  Status status;
  try {
    status = Try();
  } catch (...) {  // out of memory: next time, then
    status = Status::Error(Code::kLimit, "out of memory for opening the root again");
  }
  if (!status.ok()) Say(status);
  const MutexLock lock(mutex_);
  if (!status.ok()) why_ = status;
  trying_ = false;
  next_try_.store(NextTry());
  ended_.NotifyAll();
}

// Each reason once, not at each try.
void RootSlot::Say(const Status& status) {
  if (why().code == status.code) return;
  log_->Error([&] { return fmt::format("this root stays unused: {}", status.text()); });
}

Status RootSlot::Try() {
  if (live()) {
    look_();
    return Status::Ok();
  }
  Result<std::unique_ptr<Root>> opened = Root::Open(fs_, options_);
  if (!opened) return opened.error();
  Status status = accept_(std::shared_ptr<Root>(*std::move(opened)));
  if (status.ok()) live_.store(true);
  return status;
}

bool RootSlot::End(TimePoint until) {
  if (pool_ == nullptr) return true;
  {
    const MutexLock lock(mutex_);
    closing_ = true;
  }
  const bool never_runs = pool_->Remove(*this);
  const MutexLock lock(mutex_);
  if (never_runs) trying_ = false;
  while (trying_) {
    if (!ended_.WaitUntil(mutex_, until) && trying_) return false;
  }
  return true;
}

}  // namespace ucmstore
