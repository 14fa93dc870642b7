// SPDX-License-Identifier: Apache-2.0
//
// The timer's one thread: sleeps until the earliest entry, runs it without the lock.
#include "task/timer.h"

#include <pthread.h>

#include <utility>

namespace ucmstore {

Timer::~Timer() = default;

int Timer::StartLocked() {
  if (thread_.joinable()) return 0;
  const int error = StartThread(starter_, [this] { Work(); }, &thread_);
  if (error == 0) ended_ = false;
  return error;
}

Status Timer::Start() {
  const MutexLock lock(mutex_);
  if (stopping_) return Status::Error(Code::kClosed, "the timer is stopped");
  const int error = StartLocked();
  return error == 0 ? Status::Ok() : NoThreadStatus("thread for deadlines", error);
}

Timer::EntryId Timer::Schedule(TimePoint when, std::function<void()> function) {
  const MutexLock lock(mutex_);
  if (stopping_ || StartLocked() != 0) return 0;
  const EntryId entry = next_++;
  const auto time = times_.emplace(entry, when).first;
  try {
    entries_.emplace(std::pair(when, entry), std::move(function));
  } catch (...) {  // out of memory: both or none
    times_.erase(time);
    throw;
  }
  if (entries_.begin()->first.second == entry) changed_.NotifyAll();
  return entry;
}

bool Timer::Cancel(EntryId entry) {
  std::function<void()> last;  // destroyed outside the lock
  const MutexLock lock(mutex_);
  const auto time = times_.find(entry);
  if (time == times_.end()) return false;
  const auto place = entries_.find({time->second, entry});
  last = std::move(place->second);
  entries_.erase(place);
  times_.erase(time);
  return true;
}

void Timer::Barrier() {
  const MutexLock lock(mutex_);
  const EntryId running = running_;
  if (running == 0 || std::this_thread::get_id() == thread_.get_id()) return;
  while (running_ == running) changed_.Wait(mutex_);
}

void Timer::Work() {
  (void)pthread_setname_np(pthread_self(), "ucmstore-timer");
  for (;;) {
    std::function<void()> function;
    {
      const MutexLock lock(mutex_);
      running_ = 0;
      changed_.NotifyAll();
      for (;;) {
        if (stopping_) {
          ended_ = true;
          changed_.NotifyAll();
          return;
        }
        if (entries_.empty()) {
          changed_.Wait(mutex_);
          continue;
        }
        const auto first = entries_.begin();
        const TimePoint when = first->first.first;
        if (when > std::chrono::steady_clock::now()) {
          changed_.WaitUntil(mutex_, when);
          continue;
        }
        running_ = first->first.second;
        function = std::move(first->second);
        times_.erase(running_);
        entries_.erase(first);
        break;
      }
    }
    function();
    function = nullptr;  // what it holds goes before Barrier returns
  }
}

bool Timer::Stop(milliseconds timeout) {
  const TimePoint until = std::chrono::steady_clock::now() + timeout;
  std::thread thread;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
    while (!ended_) {
      if (!changed_.WaitUntil(mutex_, until) && !ended_) return false;
    }
    thread.swap(thread_);
  }
  if (thread.joinable()) thread.join();
  return true;
}

}  // namespace ucmstore
