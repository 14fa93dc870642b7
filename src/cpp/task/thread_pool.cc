// SPDX-License-Identifier: Apache-2.0
//
// The worker loop, the order of jobs, and the growth of the pool.
#include "task/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <utility>

#include "task/usable_cpus.h"

namespace ucmstore {
namespace {

// A lane that waits while others are served gets its turn after so many jobs.
constexpr std::uint32_t kPatience = 8;

void BecomeWorker() noexcept {
  // Engines pin their threads, and threads inherit that; the kernel cuts this down to our cpuset.
  cpu_set_t all;
  std::memset(&all, 0xff, sizeof(all));
  (void)sched_setaffinity(0, sizeof(all), &all);
  (void)pthread_setname_np(pthread_self(), "ucmstore");
}

}  // namespace

ThreadPool::ThreadPool(std::uint32_t max_threads, ThreadStarter starter, Relief relief)
    : max_threads_(max_threads),
      starter_(std::move(starter)),
      relief_(relief),
      cpus_(static_cast<std::uint32_t>(std::max(::sysconf(_SC_NPROCESSORS_ONLN), 1L))) {}

ThreadPool::~ThreadPool() = default;

int ThreadPool::Grow(std::size_t jobs) {
  std::size_t waiting = queued_ + jobs;
  while (waiting > idle_ && live_ < max_threads_) {
    const int error = StartOne();
    if (error != 0) return live_ == 0 ? error : 0;  // those that live will do
    --waiting;
  }
  return 0;
}

int ThreadPool::StartOne() {
  threads_.reserve(std::size_t{2} * max_threads_);
  left_.reserve(std::size_t{2} * max_threads_);
  for (std::thread& thread : left_) thread.join();
  left_.clear();
  std::thread thread;
  const int error = StartThread(starter_, [this] { Work(); }, &thread);
  if (error != 0) return error;
  threads_.push_back(std::move(thread));
  ++live_;
  return 0;
}

void ThreadPool::Watch() {
  if (relief_.timer == nullptr || watch_ != 0 || queued_ == 0 || stopping_) return;
  begun_at_watch_ = begun_;
  watch_ = relief_.timer->Schedule(std::chrono::steady_clock::now() + relief_.after,
                                   [this] { Relieve(); });
}

void ThreadPool::Relieve() noexcept {
  const MutexLock lock(mutex_);
  watch_ = 0;
  if (stopping_) return;
  const bool stuck = queued_ > 0 && begun_ == begun_at_watch_ && live_ >= max_threads_;
  try {
    for (int i = 0; stuck && i < kReliefThreads && live_ < 2 * max_threads_; ++i) {
      if (StartOne() != 0) break;
    }
    Watch();
  } catch (const std::bad_alloc&) {  // out of memory: at the next push, then
  }
}

void ThreadPool::Leave() {
  --live_;
  const auto self = std::this_thread::get_id();
  for (std::thread& thread : threads_) {
    if (thread.get_id() != self) continue;
    left_.push_back(std::move(thread));  // has room
    std::swap(thread, threads_.back());
    threads_.pop_back();
    break;
  }
  ended_.NotifyAll();
}

Status ThreadPool::TryPush(std::span<Job* const> jobs, Lane lane, std::int32_t priority) noexcept {
  if (jobs.empty()) return Status::Ok();
  std::size_t idle = 0;
  {
    const MutexLock lock(mutex_);
    if (Status status = Enqueue(jobs, lane, priority); !status.ok()) return status;
    idle = idle_;
  }
  // Outside the lock, which those that wake want at once.
  if (jobs.size() < idle) {
    for (std::size_t i = 0; i < jobs.size(); ++i) work_.NotifyOne();
  } else if (idle > 0) {
    work_.NotifyAll();
  }
  return Status::Ok();
}

Status ThreadPool::Enqueue(std::span<Job* const> jobs, Lane lane, std::int32_t priority) noexcept {
  if (stopping_) return Status::Error(Code::kClosed, "the workers are stopped");
  Queue& queue = lanes_[static_cast<std::size_t>(lane)];
  Fifo* found = nullptr;
  try {
    // Threads first: without one, a queued job would never run.
    if (const int error = Grow(jobs.size()); error != 0) {
      return NoThreadStatus("worker thread", error);
    }
    found = &queue[priority];
  } catch (const std::bad_alloc&) {
    return Status::Error(Code::kLimit, "out of memory for the queue of jobs");
  }
  Fifo& fifo = *found;
  for (Job* job : jobs) {
    job->lane_ = lane;
    job->priority_ = priority;
    job->queued_ = true;
    job->next_ = nullptr;
    job->previous_ = fifo.tail;
    (fifo.tail != nullptr ? fifo.tail->next_ : fifo.head) = job;
    fifo.tail = job;
  }
  queued_ += jobs.size();
  LookAround();
  try {
    Watch();
  } catch (const std::bad_alloc&) {  // the jobs are queued all the same
  }
  return Status::Ok();
}

void ThreadPool::Unlink(Job& job) {
  Queue& queue = lanes_[static_cast<std::size_t>(job.lane_)];
  const auto entry = queue.find(job.priority_);
  Fifo& fifo = entry->second;
  (job.previous_ != nullptr ? job.previous_->next_ : fifo.head) = job.next_;
  (job.next_ != nullptr ? job.next_->previous_ : fifo.tail) = job.previous_;
  if (fifo.head == nullptr) queue.erase(entry);
  job.previous_ = job.next_ = nullptr;
  job.queued_ = false;
  --queued_;
  LookAround();
}

bool ThreadPool::Remove(Job& job) {
  const MutexLock lock(mutex_);
  if (!job.queued_) return false;
  Unlink(job);
  return true;
}

Job* ThreadPool::Pop() {
  if (queued_ == 0) return nullptr;
  std::size_t chosen = kLanes;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    if (lanes_[lane].empty()) continue;
    if (chosen == kLanes || passed_over_[lane] >= kPatience) chosen = lane;
  }
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    if (lane != chosen && !lanes_[lane].empty()) ++passed_over_[lane];
  }
  passed_over_[chosen] = 0;
  Job* job = lanes_[chosen].begin()->second.head;
  Unlink(*job);
  ++begun_;
  return job;
}

void ThreadPool::Work() {
  BecomeWorker();
  cpus_.store(UsableCpus(), std::memory_order_relaxed);
  for (;;) {
    Job* job = nullptr;
    {
      const MutexLock lock(mutex_);
      while ((job = Pop()) == nullptr && !stopping_ && live_ <= max_threads_) {
        ++idle_;
        LookAround();
        work_.Wait(mutex_);
        --idle_;
        LookAround();
      }
      if (job == nullptr) {
        Leave();
        return;
      }
    }
    job->Run();
  }
}

bool ThreadPool::Stop(milliseconds timeout) {
  const TimePoint until = std::chrono::steady_clock::now() + timeout;
  std::vector<std::thread> threads;
  Timer::EntryId watch = 0;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    watch = watch_;
    work_.NotifyAll();
  }
  if (watch != 0 && !relief_.timer->Cancel(watch)) relief_.timer->Barrier();
  {
    const MutexLock lock(mutex_);
    while (live_ > 0) {
      if (!ended_.WaitUntil(mutex_, until) && live_ > 0) return false;
    }
    threads.swap(threads_);
    for (std::thread& thread : left_) threads.push_back(std::move(thread));
    left_.clear();
  }
  for (std::thread& thread : threads) thread.join();
  return true;
}

std::size_t ThreadPool::QueuedJobs() const {
  const MutexLock lock(mutex_);
  return queued_;
}

std::uint32_t ThreadPool::Threads() const {
  const MutexLock lock(mutex_);
  return live_;
}

}  // namespace ucmstore
