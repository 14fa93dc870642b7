// SPDX-License-Identifier: Apache-2.0
//
// The entries move between lists; none is made or freed on the way of a task's end.
#include "pipeline/completions.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <new>

namespace ucmstore {

Result<std::unique_ptr<Completions>> Completions::Create() {
  UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) return std::unexpected(ErrnoStatus(errno, "eventfd for completions"));
  return std::unique_ptr<Completions>(new Completions(std::move(event)));
}

Status Completions::Begin(TaskDesc& desc) noexcept {
  try {
    if (desc.on_done != nullptr) {
      auto passed_on = std::make_unique<PassedOn>(this, desc.on_done, desc.on_done_ctx);
      const MutexLock lock(mutex_);
      ++running_;
      desc.on_done = &OnDonePassOn;
      desc.on_done_ctx = passed_on.release();  // OnDonePassOn or Withdraw frees it
      return Status::Ok();
    }
    const MutexLock lock(mutex_);
    // What Take may push back without allocating.
    if (spare_index_.capacity() < owed_ + 1 + kKeptEntries) {
      spare_index_.reserve(2 * (owed_ + 1 + kKeptEntries));
    }
    if (spare_order_.size() <= owed_) MakeEntry();
    ++running_;
    ++owed_;
    desc.on_done = &OnDone;
    desc.on_done_ctx = this;
    return Status::Ok();
  } catch (const std::bad_alloc&) {
    return Status::Error(Code::kLimit, "out of memory for a task");
  }
}

void Completions::Withdraw(const TaskDesc& desc) noexcept {
  if (desc.on_done == &OnDonePassOn) {
    const std::unique_ptr<PassedOn> freed(static_cast<PassedOn*>(desc.on_done_ctx));
  }
  const MutexLock lock(mutex_);
  if (desc.on_done == &OnDone) --owed_;
  TrimEntries();
  EndOne();
}

void Completions::Retire(TaskId task) noexcept {
  const MutexLock lock(mutex_);
  const auto entry = index_.find(task);
  if (entry == index_.end()) return;  // polled before, or not to be announced
  Take(entry);
  if (ended_.empty()) Clear();
}

std::size_t Completions::Poll(std::span<TaskId> tasks) noexcept {
  const MutexLock lock(mutex_);
  std::size_t count = 0;
  while (count < tasks.size() && !ended_.empty()) {
    tasks[count] = ended_.front();
    Take(index_.find(tasks[count]));
    ++count;
  }
  if (count != 0 && ended_.empty()) Clear();
  return count;
}

int Completions::event_fd() noexcept {
  const MutexLock lock(mutex_);
  if (!watched_) {
    watched_ = true;
    if (!ended_.empty()) Signal();
  }
  return event_.get();
}

std::size_t Completions::running() const noexcept {
  const MutexLock lock(mutex_);
  return running_;
}

std::size_t Completions::unannounced() const noexcept {
  const MutexLock lock(mutex_);
  return ended_.size();
}

bool Completions::AwaitIdle(TimePoint until) noexcept {
  const MutexLock lock(mutex_);
  while (running_ != 0) {
    if (!idle_.WaitUntil(mutex_, until)) return running_ == 0;
  }
  return true;
}

void Completions::OnDone(void* ctx, TaskId task) { static_cast<Completions*>(ctx)->Announce(task); }

void Completions::OnDonePassOn(void* ctx, TaskId task) {
  const std::unique_ptr<PassedOn> passed_on(static_cast<PassedOn*>(ctx));
  passed_on->on_done(passed_on->ctx, task);
  Completions& self = *passed_on->self;
  const MutexLock lock(self.mutex_);
  self.EndOne();
}

void Completions::MakeEntry() {
  Order order(1);
  Index index;
  index.emplace(0, Order::iterator{});
  spare_index_.push_back(index.extract(index.begin()));
  spare_order_.splice(spare_order_.end(), order);
}

void Completions::TrimEntries() noexcept {
  while (spare_order_.size() > owed_ + kKeptEntries) {
    spare_order_.pop_back();
    spare_index_.pop_back();
  }
}

void Completions::Announce(TaskId task) noexcept {
  const MutexLock lock(mutex_);
  if (owed_ == 0 || index_.contains(task)) return;  // a stage that calls twice: only once counts
  --owed_;
  const auto place = spare_order_.begin();
  *place = task;
  ended_.splice(ended_.end(), spare_order_, place);
  Index::node_type node = std::move(spare_index_.back());
  spare_index_.pop_back();
  node.key() = task;
  node.mapped() = place;
  index_.insert(std::move(node));
  if (ended_.size() == 1) Signal();
  EndOne();
}

void Completions::EndOne() noexcept {
  --running_;
  if (running_ == 0) idle_.NotifyAll();
}

void Completions::Take(Index::iterator entry) noexcept {
  const Order::iterator place = entry->second;
  if (spare_order_.size() >= owed_ + kKeptEntries) {
    index_.erase(entry);
    ended_.erase(place);
    return;
  }
  spare_index_.push_back(index_.extract(entry));  // Begin made sure of the capacity
  spare_order_.splice(spare_order_.begin(), ended_, place);
}

void Completions::Signal() noexcept {
  if (!watched_) return;
  const std::uint64_t one = 1;
  // At most one signal is ever pending, so the counter cannot overflow.
  [[maybe_unused]] const ssize_t written = ::write(event_.get(), &one, sizeof(one));
}

void Completions::Clear() noexcept {
  if (!watched_) return;
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(event_.get(), &count, sizeof(count));  // or EAGAIN
}

}  // namespace ucmstore
