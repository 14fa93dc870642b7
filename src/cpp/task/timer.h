// SPDX-License-Identifier: Apache-2.0
//
// Timer: calls a function at a time, on its one thread, which starts with the first entry and
// sleeps between them. For deadlines and ages: few entries, short functions. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"

namespace ucmstore {

class Timer {
 public:
  using EntryId = std::uint64_t;  // 0 is never an entry

  Timer() = default;
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer();  // requires: Stop returned true, or nothing was ever scheduled

  // `function` must not block and must not throw. 0: the timer is stopped.
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
