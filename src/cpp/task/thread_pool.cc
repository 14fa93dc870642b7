// SPDX-License-Identifier: Apache-2.0
//
// The worker loop, the order of jobs, and the growth of the pool.
#include "task/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <cstring>
#include <new>
#include <utility>

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

ThreadPool::ThreadPool(std::uint32_t max_threads, ThreadStarter starter)
    : max_threads_(max_threads), starter_(std::move(starter)) {}

ThreadPool::~ThreadPool() = default;

int ThreadPool::Grow(std::size_t jobs) {
  std::size_t waiting = queued_ + jobs;
  threads_.reserve(max_threads_);
  while (waiting > idle_ && live_ < max_threads_ && threads_.size() < max_threads_) {
    std::thread thread;
    const int error = StartThread(starter_, [this] { Work(); }, &thread);
    if (error != 0) return live_ == 0 ? error : 0;  // those that live will do
    threads_.push_back(std::move(thread));
    ++live_;
    --waiting;
  }
  return 0;
}

Status ThreadPool::TryPush(std::span<Job* const> jobs, Lane lane, std::int32_t priority) noexcept {
  if (jobs.empty()) return Status::Ok();
  const MutexLock lock(mutex_);
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
  if (jobs.size() == 1) {
    work_.NotifyOne();
  } else {
    work_.NotifyAll();
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
  return job;
}

void ThreadPool::Work() {
  BecomeWorker();
  for (;;) {
    Job* job = nullptr;
    {
      const MutexLock lock(mutex_);
      while ((job = Pop()) == nullptr && !stopping_) {
        ++idle_;
        work_.Wait(mutex_);
        --idle_;
      }
      if (job == nullptr) {
        --live_;
        ended_.NotifyAll();
        return;
      }
    }
    job->Run();
  }
}

bool ThreadPool::Stop(milliseconds timeout) {
  const TimePoint until = std::chrono::steady_clock::now() + timeout;
  std::vector<std::thread> threads;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    work_.NotifyAll();
    while (live_ > 0) {
      if (!ended_.WaitUntil(mutex_, until) && live_ > 0) return false;
    }
    threads.swap(threads_);
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
