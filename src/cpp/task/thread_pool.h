// SPDX-License-Identifier: Apache-2.0
//
// ThreadPool: the bounded set of workers that runs jobs, loads before dumps before background work,
// but at least one in nine jobs from each waiting lane, so that nothing starves. The queue is
// intrusive: a job carries its own links and lives in its task, so queueing never allocates and is
// bounded by the tasks. Threads start when jobs wait and no worker is idle; they block all signals
// and may run on every CPU of the process, whatever the thread that opened the store was pinned to.
// Idle workers sleep, and no more of them are woken than there is work for. Jobs that hang (in a
// dead disk) must not be the end of all others: where jobs wait and not one has begun for a while,
// some threads come to relief, up to as many again, and leave when the queue is empty. Thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "task/thread_starter.h"
#include "task/timer.h"

namespace ucmstore {

enum class Lane : std::uint8_t { kLoad = 0, kDump = 1, kBackground = 2 };
inline constexpr std::size_t kLanes = 3;

class ThreadPool;

// One piece of work. Must stay alive until it has begun to run or Remove has returned true.
class Job {
 public:
  Job() = default;
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  virtual ~Job() = default;
  virtual void Run() noexcept = 0;  // may destroy the job

 private:
  friend class ThreadPool;
  Job* previous_ = nullptr;
  Job* next_ = nullptr;
  std::int32_t priority_ = 0;
  Lane lane_ = Lane::kLoad;
  bool queued_ = false;
};

// When a pool whose threads all hang gets more. No timer: never. It outlives the pool's last job.
struct Relief {
  Timer* timer = nullptr;
  milliseconds after{1'000};
};

class ThreadPool {
 public:
  explicit ThreadPool(std::uint32_t max_threads, ThreadStarter starter = {}, Relief relief = {});
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();  // requires: Stop returned true, or no job was ever pushed

  // Queues the jobs, in order, behind those of the same lane and of the same or higher priority.
  // Not ok: nothing was queued. kClosed: the pool is stopped; kLimit: not even one thread could be
  // started, or there is no memory for the queue, in words.
  [[nodiscard]] Status TryPush(std::span<Job* const> jobs, Lane lane,
                               std::int32_t priority = 0) noexcept;
  // The same for who has another way.
  [[nodiscard]] bool Push(std::span<Job* const> jobs, Lane lane,
                          std::int32_t priority = 0) noexcept {
    return TryPush(jobs, lane, priority).ok();
  }

  // Takes a job out of the queue. True: it was still queued and will never run. False: it has
  // begun, has ended, or was never queued.
  [[nodiscard]] bool Remove(Job& job);

  // Takes no more jobs, runs those that are queued, and joins the threads. False: one still ran
  // after the timeout.
  [[nodiscard]] bool Stop(milliseconds timeout);

  // True: more jobs are queued than workers are idle. A long job had better go back to the queue:
  // others come first, or have waited longer. A glance, without the lock.
  [[nodiscard]] bool Crowded() const noexcept { return crowded_.load(std::memory_order_relaxed); }
  // How many jobs that only copy or compute can run at once: more of them take turns. Until the
  // first worker has looked, as many as the machine has CPUs.
  [[nodiscard]] std::uint32_t UsefulThreads() const noexcept {
    return std::min(max_threads_, cpus_.load(std::memory_order_relaxed));
  }

  [[nodiscard]] std::uint32_t max_threads() const noexcept { return max_threads_; }
  [[nodiscard]] std::size_t QueuedJobs() const;
  [[nodiscard]] std::uint32_t Threads() const;

 private:
  struct Fifo {
    Job* head = nullptr;
    Job* tail = nullptr;
  };
  // Highest priority first. Almost always one entry.
  using Queue = std::map<std::int32_t, Fifo, std::greater<>>;

  void Work();
  [[nodiscard]] Status Enqueue(std::span<Job* const> jobs, Lane lane,
                               std::int32_t priority) noexcept UCMSTORE_REQUIRES(mutex_);
  Job* Pop() UCMSTORE_REQUIRES(mutex_);
  void Unlink(Job& job) UCMSTORE_REQUIRES(mutex_);

  // Makes as many threads as the jobs could use, and may have. 0, or an errno if there is not one.
  [[nodiscard]] int Grow(std::size_t jobs) UCMSTORE_REQUIRES(mutex_);
  [[nodiscard]] int StartOne() UCMSTORE_REQUIRES(mutex_);
  // While jobs wait: looks every `relief_.after` whether one has begun meanwhile.
  void Watch() UCMSTORE_REQUIRES(mutex_);
  void Relieve() noexcept;
  // The calling thread leaves. Its handle is joined by whoever starts the next one, or by Stop.
  void Leave() UCMSTORE_REQUIRES(mutex_);
  void LookAround() UCMSTORE_REQUIRES(mutex_) {
    crowded_.store(queued_ > idle_, std::memory_order_relaxed);
  }

  static constexpr int kReliefThreads = 4;  // at a time

  const std::uint32_t max_threads_;
  const ThreadStarter starter_;
  const Relief relief_;
  std::atomic<bool> crowded_{false};
  std::atomic<std::uint32_t> cpus_;
  mutable Mutex mutex_;
  CondVar work_;
  CondVar ended_;
  std::array<Queue, kLanes> lanes_ UCMSTORE_GUARDED_BY(mutex_);
  std::array<std::uint32_t, kLanes> passed_over_ UCMSTORE_GUARDED_BY(mutex_){};
  std::size_t queued_ UCMSTORE_GUARDED_BY(mutex_) = 0;
  std::uint32_t idle_ UCMSTORE_GUARDED_BY(mutex_) = 0;
  std::uint32_t live_ UCMSTORE_GUARDED_BY(mutex_) = 0;
  bool stopping_ UCMSTORE_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ UCMSTORE_GUARDED_BY(mutex_);
  std::vector<std::thread> left_ UCMSTORE_GUARDED_BY(mutex_);  // have nothing to do but end
  std::uint64_t begun_ UCMSTORE_GUARDED_BY(mutex_) = 0;        // jobs
  std::uint64_t begun_at_watch_ UCMSTORE_GUARDED_BY(mutex_) = 0;
  Timer::EntryId watch_ UCMSTORE_GUARDED_BY(mutex_) = 0;
};

}  // namespace ucmstore
