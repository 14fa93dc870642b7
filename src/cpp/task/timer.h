// SPDX-License-Identifier: Apache-2.0
//
// Timer: calls a function at a time, on its one thread, which starts when first needed and sleeps
// between entries. For deadlines and ages: few entries, short functions. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "task/thread_starter.h"

namespace ucmstore {

class Timer {
 public:
  using EntryId = std::uint64_t;  // 0 is never an entry

  explicit Timer(ThreadStarter starter = {}) : starter_(std::move(starter)) {}
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer();  // requires: Stop returned true, or nothing was ever scheduled

  // Starts the thread, unless it runs already. Ok: no Schedule fails for want of it from now on. So
  // whoever depends on an entry asks first, while nothing is touched yet. kLimit: no thread is to
  // be had, in words; the next call tries again. kClosed: the timer is stopped.
  [[nodiscard]] Status Start();
  // `function` must not block and must not throw. 0: the timer is stopped, or has no thread.
  EntryId Schedule(TimePoint when, std::function<void()> function);
  // True: it will not run. False: it has run, or runs right now.
  bool Cancel(EntryId entry);
  // Returns once the function that runs right now, if any, has returned; at once if called by it.
  // After cancelling all of one's entries: none of them runs any more.
  void Barrier();
  // Drops all entries and joins the thread. False: a function still ran after the timeout.
  [[nodiscard]] bool Stop(milliseconds timeout);

 private:
  void Work();
  // 0 or an errno.
  [[nodiscard]] int StartLocked() UCMSTORE_REQUIRES(mutex_);

  const ThreadStarter starter_;
  Mutex mutex_;
  CondVar changed_;
  std::map<std::pair<TimePoint, EntryId>, std::function<void()>> entries_
      UCMSTORE_GUARDED_BY(mutex_);
  std::map<EntryId, TimePoint> times_ UCMSTORE_GUARDED_BY(mutex_);
  EntryId next_ UCMSTORE_GUARDED_BY(mutex_) = 1;
  EntryId running_ UCMSTORE_GUARDED_BY(mutex_) = 0;
  bool stopping_ UCMSTORE_GUARDED_BY(mutex_) = false;
  bool ended_ UCMSTORE_GUARDED_BY(mutex_) = true;
  std::thread thread_ UCMSTORE_GUARDED_BY(mutex_);
};

}  // namespace ucmstore
