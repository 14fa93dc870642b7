// SPDX-License-Identifier: Apache-2.0
//
// Mutex, MutexLock and CondVar: std's, with Clang's thread-safety annotations, so that "guarded by"
// is checked by the compiler (-Wthread-safety) and not only said.
// https://clang.llvm.org/docs/ThreadSafetyAnalysis.html
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define UCMSTORE_ANNOTATE(x) __attribute__((x))
#else
#define UCMSTORE_ANNOTATE(x)
#endif
#define UCMSTORE_GUARDED_BY(x) UCMSTORE_ANNOTATE(guarded_by(x))
#define UCMSTORE_REQUIRES(x) UCMSTORE_ANNOTATE(requires_capability(x))
// Locks or unlocks for somebody else: at a fork.
#define UCMSTORE_LOCKS_UNSEEN UCMSTORE_ANNOTATE(no_thread_safety_analysis)
#define UCMSTORE_EXCLUDES(x) UCMSTORE_ANNOTATE(locks_excluded(x))

namespace ucmstore {

class UCMSTORE_ANNOTATE(capability("mutex")) Mutex {
 public:
  void Lock() UCMSTORE_ANNOTATE(acquire_capability()) { mutex_.lock(); }
  void Unlock() UCMSTORE_ANNOTATE(release_capability()) { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class UCMSTORE_ANNOTATE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) UCMSTORE_ANNOTATE(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() UCMSTORE_ANNOTATE(release_capability()) { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

class CondVar {
 public:
  void Wait(Mutex& mutex) UCMSTORE_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // False: the time has come. May wake for no reason; callers loop over their condition.
  bool WaitUntil(Mutex& mutex, std::chrono::steady_clock::time_point until)
      UCMSTORE_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const bool in_time = condition_.wait_until(lock, until) == std::cv_status::no_timeout;
    lock.release();
    return in_time;
  }
  void NotifyOne() noexcept { condition_.notify_one(); }
  void NotifyAll() noexcept { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace ucmstore
