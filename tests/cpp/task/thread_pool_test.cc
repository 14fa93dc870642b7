// SPDX-License-Identifier: Apache-2.0
//
// ThreadPool: every job runs once or is removed once, whatever races; order, fairness, growth and
// stopping as the header says.
#include "task/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <deque>
#include <functional>
#include <semaphore>

#include "support/batch.h"
#include "support/eventually.h"
#include "support/scarce_threads.h"

namespace ucmstore::test {
namespace {

class FunctionJob final : public Job {
 public:
  explicit FunctionJob(std::function<void()> function) : function_(std::move(function)) {}
  void Run() noexcept override { function_(); }

 private:
  std::function<void()> function_;
};

// Occupies a worker until it is let go.
class Blocker {
 public:
  Blocker()
      : job_([this] {
          begun_.release();
          go_.acquire();
        }) {}
  void AwaitBegun() { begun_.acquire(); }
  void LetGo() { go_.release(); }
  Job& job() { return job_; }

 private:
  std::binary_semaphore begun_{0};
  std::binary_semaphore go_{0};
  FunctionJob job_;
};

bool Push(ThreadPool& pool, Job& job, Lane lane, std::int32_t priority = 0) {
  Job* const one = &job;
  return pool.Push(std::span(&one, 1), lane, priority);
}

// Records the order in which jobs ran on one worker.
class Recorder {
 public:
  FunctionJob& Make(int name) {
    return jobs_.emplace_back([this, name] {
      const MutexLock lock(mutex_);
      ran_.push_back(name);
    });
  }
  std::vector<int> ran() {
    const MutexLock lock(mutex_);
    return ran_;
  }

 private:
  std::deque<FunctionJob> jobs_;
  Mutex mutex_;
  std::vector<int> ran_ UCMSTORE_GUARDED_BY(mutex_);
};

constexpr milliseconds kPatience{kPatienceMs};

TEST(ThreadPool, RunsJobsInOrderWithinALaneAndPriority) {
  ThreadPool pool(1);
  Blocker blocker;
  ASSERT_TRUE(Push(pool, blocker.job(), Lane::kLoad));
  blocker.AwaitBegun();
  Recorder recorder;
  ASSERT_TRUE(Push(pool, recorder.Make(1), Lane::kLoad, 0));
  ASSERT_TRUE(Push(pool, recorder.Make(2), Lane::kLoad, 0));
  ASSERT_TRUE(Push(pool, recorder.Make(3), Lane::kLoad, 5));
  ASSERT_TRUE(Push(pool, recorder.Make(4), Lane::kLoad, -5));
  ASSERT_TRUE(Push(pool, recorder.Make(5), Lane::kLoad, 5));
  ASSERT_TRUE(Push(pool, recorder.Make(6), Lane::kDump, 100));
  EXPECT_EQ(pool.QueuedJobs(), 6U);
  blocker.LetGo();
  ASSERT_TRUE(pool.Stop(kPatience));
  EXPECT_EQ(recorder.ran(), (std::vector<int>{3, 5, 1, 2, 4, 6}));
}

TEST(ThreadPool, NoLaneStarves) {
  ThreadPool pool(1);
  Blocker blocker;
  ASSERT_TRUE(Push(pool, blocker.job(), Lane::kLoad));
  blocker.AwaitBegun();
  Recorder recorder;
  for (int n = 0; n < 200; ++n) ASSERT_TRUE(Push(pool, recorder.Make(0), Lane::kLoad));
  for (int n = 0; n < 10; ++n) ASSERT_TRUE(Push(pool, recorder.Make(1), Lane::kDump));
  for (int n = 0; n < 10; ++n) ASSERT_TRUE(Push(pool, recorder.Make(2), Lane::kBackground));
  blocker.LetGo();
  ASSERT_TRUE(pool.Stop(kPatience));
  const std::vector<int> ran = recorder.ran();
  ASSERT_EQ(ran.size(), 220U);
  for (const int lane : {1, 2}) {
    std::size_t last = 0;
    for (int n = 0; n < 10; ++n) {
      const auto next = std::find(ran.begin() + static_cast<std::ptrdiff_t>(last), ran.end(), lane);
      const auto at = static_cast<std::size_t>(next - ran.begin());
      EXPECT_LE(at - last, 11U) << "lane " << lane << " waited too long for job " << n;
      last = at + 1;
    }
  }
  EXPECT_GE(std::count(ran.begin(), ran.begin() + 40, 0), 28) << "loads go first";
}

TEST(ThreadPool, RemoveSaysWhetherTheJobWillRun) {
  ThreadPool pool(1);
  Blocker blocker;
  ASSERT_TRUE(Push(pool, blocker.job(), Lane::kLoad));
  blocker.AwaitBegun();
  Recorder recorder;
  FunctionJob& removed = recorder.Make(1);
  FunctionJob& kept = recorder.Make(2);
  FunctionJob& never_pushed = recorder.Make(3);
  ASSERT_TRUE(Push(pool, removed, Lane::kLoad));
  ASSERT_TRUE(Push(pool, kept, Lane::kLoad));
  EXPECT_TRUE(pool.Remove(removed));
  EXPECT_FALSE(pool.Remove(removed)) << "twice";
  EXPECT_FALSE(pool.Remove(never_pushed));
  EXPECT_FALSE(pool.Remove(blocker.job())) << "it runs";
  EXPECT_EQ(pool.QueuedJobs(), 1U);
  blocker.LetGo();
  ASSERT_TRUE(pool.Stop(kPatience));
  EXPECT_EQ(recorder.ran(), std::vector<int>{2});
}

TEST(ThreadPool, ThreadsStartWhenNeededAndNoMore) {
  ThreadPool pool(4);
  EXPECT_EQ(pool.Threads(), 0U);
  std::counting_semaphore<> done(0);
  for (int n = 0; n < 50; ++n) {  // one after another: one worker is enough, two may be caught
    FunctionJob job([&] { done.release(); });
    ASSERT_TRUE(Push(pool, job, Lane::kDump));
    done.acquire();
    while (pool.Remove(job)) FAIL();
  }
  EXPECT_LE(pool.Threads(), 4U);
  std::array<Blocker, 6> blockers;
  for (Blocker& blocker : blockers) ASSERT_TRUE(Push(pool, blocker.job(), Lane::kLoad));
  for (std::size_t n = 0; n < 4; ++n) blockers[n].AwaitBegun();  // all four at once
  EXPECT_EQ(pool.Threads(), 4U);
  EXPECT_EQ(pool.QueuedJobs(), 2U);
  for (Blocker& blocker : blockers) blocker.LetGo();
  ASSERT_TRUE(pool.Stop(kPatience));
}

// A batch must not find itself on one worker while others could start (no lost wake-up).
TEST(ThreadPool, ABatchIsRunByAllWorkersAtOnce) {
  for (int round = 0; round < 50; ++round) {
    ThreadPool pool(4);
    std::array<Blocker, 4> blockers;
    std::vector<Job*> jobs;
    for (Blocker& blocker : blockers) jobs.push_back(&blocker.job());
    ASSERT_TRUE(pool.Push(jobs, Lane::kLoad));
    for (Blocker& blocker : blockers) blocker.AwaitBegun();  // hangs if one of them waits
    for (Blocker& blocker : blockers) blocker.LetGo();
    // And again, now that the workers sleep, or are about to.
    ASSERT_TRUE(pool.Push(jobs, Lane::kLoad));
    for (Blocker& blocker : blockers) blocker.AwaitBegun();
    for (Blocker& blocker : blockers) blocker.LetGo();
    ASSERT_TRUE(pool.Stop(kPatience));
  }
}

TEST(ThreadPool, EveryJobRunsOnceOrIsRemovedOnce) {
  Random random;
  for (int round = 0; round < 10; ++round) {
    ThreadPool pool(4);
    constexpr std::size_t kJobs = 2000;
    std::vector<std::atomic<int>> ran(kJobs);
    std::vector<std::atomic<int>> removed(kJobs);
    std::deque<FunctionJob> jobs;
    for (std::size_t n = 0; n < kJobs; ++n) jobs.emplace_back([&ran, n] { ++ran[n]; });
    std::atomic<std::size_t> pushed{0};
    {
      std::vector<std::jthread> threads;
      for (std::size_t t = 0; t < 2; ++t) {
        threads.emplace_back([&, t, mine = random.Fork()]() mutable {
          for (std::size_t n = t; n < kJobs; n += 2) {
            const auto lane = static_cast<Lane>(mine.Between(0, 2));
            const auto priority = static_cast<std::int32_t>(mine.Between(0, 3));
            ASSERT_TRUE(Push(pool, jobs[n], lane, priority));
            ++pushed;
          }
        });
      }
      threads.emplace_back([&, mine = random.Fork()]() mutable {
        while (pushed < kJobs) {
          const std::size_t n = mine.Between(0, kJobs - 1);
          if (pool.Remove(jobs[n])) ++removed[n];
        }
      });
    }
    while (pool.QueuedJobs() > 0) std::this_thread::yield();
    ASSERT_TRUE(pool.Stop(kPatience));
    for (std::size_t n = 0; n < kJobs; ++n) ASSERT_EQ(ran[n] + removed[n], 1) << n;
  }
}

TEST(ThreadPool, ItIsCrowdedWhileMoreJobsWaitThanWorkersSleep) {
  ThreadPool pool(1);
  EXPECT_FALSE(pool.Crowded());
  Blocker running;
  Blocker waiting;
  ASSERT_TRUE(Push(pool, running.job(), Lane::kLoad));
  running.AwaitBegun();
  EXPECT_FALSE(pool.Crowded());
  ASSERT_TRUE(Push(pool, waiting.job(), Lane::kDump));
  EXPECT_TRUE(pool.Crowded());
  EXPECT_TRUE(pool.Remove(waiting.job()));
  EXPECT_FALSE(pool.Crowded());
  ASSERT_TRUE(Push(pool, waiting.job(), Lane::kDump));
  running.LetGo();
  waiting.AwaitBegun();
  EXPECT_FALSE(pool.Crowded());
  waiting.LetGo();
  ASSERT_TRUE(pool.Stop(kPatience));
}

TEST(ThreadPool, NoMoreThreadsAreOfUseThanThereAreCpus) {
  ThreadPool pool(100'000);
  Blocker blocker;
  ASSERT_TRUE(Push(pool, blocker.job(), Lane::kLoad));
  blocker.AwaitBegun();  // the worker has looked
  EXPECT_GE(pool.UsefulThreads(), 1U);
  EXPECT_LE(pool.UsefulThreads(), static_cast<std::uint32_t>(::sysconf(_SC_NPROCESSORS_CONF)));
  blocker.LetGo();
  ASSERT_TRUE(pool.Stop(kPatience));
  EXPECT_EQ(ThreadPool(1).UsefulThreads(), 1U);
}

// A job may free itself, as those of a task do.
TEST(ThreadPool, AJobMayEndItself) {
  class Selfish final : public Job {
   public:
    explicit Selfish(std::atomic<int>& count) : count_(count) {}
    void Run() noexcept override {
      const std::unique_ptr<Selfish> self(this);
      ++count_;
    }

   private:
    std::atomic<int>& count_;
  };
  std::atomic<int> count{0};
  ThreadPool pool(3);
  for (int n = 0; n < 1000; ++n) {
    auto job = std::make_unique<Selfish>(count);
    ASSERT_TRUE(Push(pool, *job.release(), static_cast<Lane>(n % 3)));
  }
  while (count < 1000) std::this_thread::yield();
  ASSERT_TRUE(pool.Stop(kPatience));
}

TEST(ThreadPool, StopIsBoundedAndCanBeTriedAgain) {
  ThreadPool pool(2);
  Blocker blocker;
  ASSERT_TRUE(Push(pool, blocker.job(), Lane::kLoad));
  blocker.AwaitBegun();
  EXPECT_FALSE(pool.Stop(milliseconds(20)));
  Recorder recorder;
  EXPECT_FALSE(Push(pool, recorder.Make(1), Lane::kLoad)) << "it is stopped";
  EXPECT_EQ(pool.QueuedJobs(), 0U);
  blocker.LetGo();
  EXPECT_TRUE(pool.Stop(kPatience));
  EXPECT_TRUE(pool.Stop(kPatience));
  EXPECT_EQ(recorder.ran(), std::vector<int>{});
}

TEST(ThreadPool, WithoutAThreadItSaysSoInWordsAndTriesAgain) {
  ScarceThreads threads(0);
  ThreadPool pool(4, threads.starter());
  Recorder recorder;
  FunctionJob& job = recorder.Make(1);
  Job* const one = &job;
  const Status status = pool.TryPush({&one, 1}, Lane::kLoad);
  EXPECT_EQ(status.code, Code::kLimit);
  for (const std::string_view word : {"worker", "RLIMIT_NPROC", "ulimit -u", "pids cgroup"}) {
    EXPECT_NE(status.text().find(word), std::string_view::npos) << status.text();
  }
  EXPECT_EQ(pool.QueuedJobs(), 0U);
  threads.SetLeft(1);  // one is enough for all
  EXPECT_TRUE(Push(pool, job, Lane::kLoad));
  EXPECT_TRUE(Push(pool, recorder.Make(2), Lane::kLoad));
  EXPECT_TRUE(Push(pool, recorder.Make(3), Lane::kLoad));
  EXPECT_TRUE(pool.Stop(kPatience));
  EXPECT_EQ(recorder.ran(), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(pool.TryPush({&one, 1}, Lane::kLoad).code, Code::kClosed);
}

TEST(ThreadPool, WorkersBlockSignalsAndMayRunEverywhere) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(before), &before), 0);
  const int all = CPU_COUNT(&before);
  cpu_set_t pinned;
  CPU_ZERO(&pinned);
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &before)) {
      CPU_SET(cpu, &pinned);
      break;
    }
  }
  ASSERT_EQ(::sched_setaffinity(0, sizeof(pinned), &pinned), 0);
  int worker_cpus = 0;
  bool interrupt_blocked = false;
  {
    ThreadPool pool(1);
    std::binary_semaphore done{0};
    FunctionJob job([&] {
      cpu_set_t mine;
      (void)::sched_getaffinity(0, sizeof(mine), &mine);
      worker_cpus = CPU_COUNT(&mine);
      sigset_t mask;
      ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
      interrupt_blocked = sigismember(&mask, SIGINT) == 1;
      done.release();
    });
    ASSERT_TRUE(Push(pool, job, Lane::kLoad));
    done.acquire();
    ASSERT_TRUE(pool.Stop(kPatience));
  }
  ASSERT_EQ(::sched_setaffinity(0, sizeof(before), &before), 0);
  EXPECT_GE(worker_cpus, all);
  EXPECT_TRUE(interrupt_blocked);
  sigset_t mask;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  EXPECT_EQ(sigismember(&mask, SIGINT), 0) << "our own mask is as before";
}

// ---- relief ----------------------------------------------------------------------------------

TEST(ThreadPool, JobsThatHangAreNotTheEndOfAllOthers) {
  Timer timer;
  {
    ThreadPool pool(2, {}, {&timer, milliseconds(1)});
    Blocker hanging[2];
    for (Blocker& each : hanging) ASSERT_TRUE(Push(pool, each.job(), Lane::kLoad));
    for (Blocker& each : hanging) each.AwaitBegun();
    std::atomic<int> ran{0};
    FunctionJob job([&ran] { ++ran; });
    ASSERT_TRUE(Push(pool, job, Lane::kDump));
    EXPECT_TRUE(Eventually([&] { return ran == 1; }));
    EXPECT_TRUE(Eventually([&] { return pool.Threads() == 2; })) << "the relief has left";
    FunctionJob again([&ran] { ++ran; });
    ASSERT_TRUE(Push(pool, again, Lane::kDump));
    EXPECT_TRUE(Eventually([&] { return ran == 2; })) << "and comes again";
    for (Blocker& each : hanging) each.LetGo();
    EXPECT_TRUE(pool.Stop(milliseconds(kPatienceMs)));
  }
  EXPECT_TRUE(timer.Stop(milliseconds(kPatienceMs)));
}

TEST(ThreadPool, ReliefIsAsManyThreadsAgainAtMost) {
  Timer timer;
  {
    ThreadPool pool(3, {}, {&timer, milliseconds(1)});
    std::deque<Blocker> hanging(8);
    for (Blocker& each : hanging) ASSERT_TRUE(Push(pool, each.job(), Lane::kLoad));
    for (std::size_t i = 0; i < 6; ++i) hanging[i].AwaitBegun();
    EXPECT_EQ(pool.Threads(), 6U);
    EXPECT_EQ(pool.QueuedJobs(), 2U);
    for (Blocker& each : hanging) each.LetGo();
    EXPECT_TRUE(pool.Stop(milliseconds(kPatienceMs)));
  }
  EXPECT_TRUE(timer.Stop(milliseconds(kPatienceMs)));
}

// What the timer would call is gone with the pool, though the timer lives on.
TEST(ThreadPool, StoppingEndsTheWatch) {
  Timer timer;
  {
    ThreadPool pool(1, {}, {&timer, milliseconds(60'000)});
    FunctionJob job([] {});
    ASSERT_TRUE(Push(pool, job, Lane::kLoad));
    EXPECT_TRUE(pool.Stop(milliseconds(kPatienceMs)));
  }
  EXPECT_TRUE(timer.Stop(milliseconds(kPatienceMs)));
}

}  // namespace
}  // namespace ucmstore::test
