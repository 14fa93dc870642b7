// SPDX-License-Identifier: Apache-2.0
//
// Timer: entries run in order and never early; Cancel, Barrier and Stop tell the truth while others
// run.
#include "task/timer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <semaphore>
#include <vector>

#include "support/batch.h"
#include "support/scarce_threads.h"

namespace ucmstore::test {
namespace {

TimePoint After(int ms) { return std::chrono::steady_clock::now() + milliseconds(ms); }
constexpr milliseconds kPatience{kPatienceMs};

TEST(Timer, RunsInOrderOfTimeAndNeverEarly) {
  Timer timer;
  std::vector<int> ran;  // touched by the timer's thread alone, until Stop
  std::vector<TimePoint> due(6);
  std::atomic<int> count{0};
  std::atomic<bool> early{false};
  // Its thread waits until all entries are there, however long this one is kept from running.
  std::binary_semaphore begun{0};
  std::binary_semaphore go{0};
  (void)timer.Schedule(TimePoint{}, [&] {
    begun.release();
    go.acquire();
  });
  begun.acquire();
  for (const int n : {3, 1, 5, 0, 4, 2}) {
    due[static_cast<std::size_t>(n)] = After(5 + n * 4);
    const TimePoint when = due[static_cast<std::size_t>(n)];
    ASSERT_NE(timer.Schedule(when,
                             [&, n, when] {
                               if (std::chrono::steady_clock::now() < when) early = true;
                               ran.push_back(n);
                               ++count;
                               count.notify_all();
                             }),
              0U);
  }
  go.release();
  while (count < 6) std::this_thread::yield();
  ASSERT_TRUE(timer.Stop(kPatience));
  EXPECT_EQ(ran, (std::vector<int>{0, 1, 2, 3, 4, 5}));
  EXPECT_FALSE(early);
}

TEST(Timer, AnEarlierEntryOvertakesALaterOne) {
  Timer timer;
  std::binary_semaphore done{0};
  (void)timer.Schedule(After(60'000), [] {});
  (void)timer.Schedule(After(1), [&] { done.release(); });
  EXPECT_TRUE(done.try_acquire_for(kPatience));
  (void)timer.Schedule(TimePoint{}, [&] { done.release(); });  // long past
  EXPECT_TRUE(done.try_acquire_for(kPatience));
  EXPECT_TRUE(timer.Stop(kPatience));
}

TEST(Timer, CancelSaysWhetherItWillRun) {
  Timer timer;
  std::atomic<int> ran{0};
  const Timer::EntryId entry = timer.Schedule(After(60'000), [&] { ++ran; });
  EXPECT_TRUE(timer.Cancel(entry));
  EXPECT_FALSE(timer.Cancel(entry));
  EXPECT_FALSE(timer.Cancel(0));
  EXPECT_FALSE(timer.Cancel(4711));
  std::binary_semaphore done{0};
  const Timer::EntryId soon = timer.Schedule(After(0), [&] { done.release(); });
  done.acquire();
  EXPECT_FALSE(timer.Cancel(soon));
  EXPECT_TRUE(timer.Stop(kPatience));
  EXPECT_EQ(ran, 0);
}

TEST(Timer, CancelReleasesWhatTheFunctionHolds) {
  Timer timer;
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = held;
  const Timer::EntryId entry = timer.Schedule(After(60'000), [held] {});
  held.reset();
  EXPECT_FALSE(seen.expired());
  EXPECT_TRUE(timer.Cancel(entry));
  EXPECT_TRUE(seen.expired());
  EXPECT_TRUE(timer.Stop(kPatience));
}

TEST(Timer, EveryEntryRunsOnceOrIsCancelledOnce) {
  Random random;
  Timer timer;
  constexpr std::size_t kEntries = 4000;
  std::vector<std::atomic<int>> ran(kEntries);
  std::vector<int> cancelled(kEntries);
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t, mine = random.Fork()]() mutable {
        for (std::size_t n = t; n < kEntries; n += 4) {
          const auto when =
              std::chrono::steady_clock::now() + std::chrono::microseconds(mine.Between(0, 500));
          const Timer::EntryId entry = timer.Schedule(when, [&ran, n] { ++ran[n]; });
          if (mine.OneIn(2)) cancelled[n] = timer.Cancel(entry) ? 1 : 0;
        }
      });
    }
  }
  const TimePoint until = After(kPatienceMs);
  for (std::size_t n = 0; n < kEntries; ++n) {
    while (ran[n] + cancelled[n] == 0 && std::chrono::steady_clock::now() < until) {
      std::this_thread::yield();
    }
  }
  EXPECT_TRUE(timer.Stop(kPatience));
  for (std::size_t n = 0; n < kEntries; ++n) ASSERT_EQ(ran[n] + cancelled[n], 1) << n;
}

TEST(Timer, BarrierWaitsForWhatRuns) {
  Timer timer;
  std::binary_semaphore begun{0};
  std::binary_semaphore go{0};
  std::atomic<bool> ended{false};
  (void)timer.Schedule(After(0), [&] {
    begun.release();
    go.acquire();
    ended = true;
  });
  begun.acquire();
  std::atomic<bool> passed{false};
  std::jthread other([&] {
    timer.Barrier();
    EXPECT_TRUE(ended);
    passed = true;
  });
  EXPECT_FALSE(passed);
  go.release();
  other.join();
  timer.Barrier();  // nothing runs: at once
  std::binary_semaphore inside{0};
  (void)timer.Schedule(After(0), [&] {
    timer.Barrier();  // called by the function itself: at once
    inside.release();
  });
  EXPECT_TRUE(inside.try_acquire_for(kPatience));
  EXPECT_TRUE(timer.Stop(kPatience));
}

TEST(Timer, AFunctionMayScheduleAndCancel) {
  Timer timer;
  std::binary_semaphore done{0};
  std::atomic<int> ran{0};
  const Timer::EntryId doomed = timer.Schedule(After(60'000), [&] { ran += 100; });
  (void)timer.Schedule(After(0), [&] {
    ++ran;
    EXPECT_TRUE(timer.Cancel(doomed));
    (void)timer.Schedule(After(0), [&] {
      ++ran;
      done.release();
    });
  });
  EXPECT_TRUE(done.try_acquire_for(kPatience));
  EXPECT_EQ(ran, 2);
  EXPECT_TRUE(timer.Stop(kPatience));
}

TEST(Timer, StopDropsEntriesAndIsBounded) {
  Timer idle;
  EXPECT_TRUE(idle.Stop(milliseconds(0)));
  EXPECT_EQ(idle.Schedule(After(0), [] {}), 0U);
  Timer timer;
  std::binary_semaphore begun{0};
  std::binary_semaphore go{0};
  std::atomic<int> ran{0};
  auto held = std::make_shared<int>(1);
  (void)timer.Schedule(After(60'000), [&ran, held] { ++ran; });
  (void)timer.Schedule(After(0), [&] {
    begun.release();
    go.acquire();
  });
  begun.acquire();
  EXPECT_FALSE(timer.Stop(milliseconds(20)));
  EXPECT_EQ(timer.Schedule(After(0), [&] { ++ran; }), 0U) << "it is stopped";
  go.release();
  EXPECT_TRUE(timer.Stop(kPatience));
  EXPECT_TRUE(timer.Stop(kPatience));
  EXPECT_EQ(ran, 0);
}

TEST(Timer, WithoutAThreadItSaysSoInWordsAndTriesAgain) {
  ScarceThreads threads(0);
  Timer timer(threads.starter());
  const Status status = timer.Start();
  EXPECT_EQ(status.code, Code::kLimit);
  EXPECT_EQ(status.sys_errno, EAGAIN);
  for (const std::string_view word : {"deadlines", "RLIMIT_NPROC", "ulimit -u", "pids cgroup"}) {
    EXPECT_NE(status.text().find(word), std::string_view::npos) << status.text();
  }
  EXPECT_EQ(timer.Schedule(After(0), [] {}), 0U);
  threads.SetLeft(1);
  EXPECT_TRUE(timer.Start().ok());
  EXPECT_TRUE(timer.Start().ok()) << "it runs already";
  std::binary_semaphore done{0};
  EXPECT_NE(timer.Schedule(After(0), [&] { done.release(); }), 0U);
  EXPECT_TRUE(done.try_acquire_for(kPatience));
  EXPECT_TRUE(timer.Stop(kPatience));
  EXPECT_EQ(timer.Start().code, Code::kClosed);
}

#if !defined(__SANITIZE_THREAD__)  // which cannot follow a forked child that starts threads
// The kernel's own refusal, in a child that is under a limit which binds it.
TEST(Timer, TheKernelsOwnRefusalIsTheSame) {
  constexpr int kNotBound = 3;
  const pid_t child = ::fork();
  ASSERT_NE(child, -1);
  if (child == 0) {
    const rlimit none{.rlim_cur = 1, .rlim_max = 1};
    // The limit does not bind root.
    const bool bound = ::setrlimit(RLIMIT_NPROC, &none) == 0 &&
                       (::geteuid() != 0 || (::setgid(65534) == 0 && ::setuid(65534) == 0));
    if (!bound) ::_exit(kNotBound);
    Timer timer;
    const Status status = timer.Start();
    ::_exit(status.code == Code::kLimit && status.sys_errno == EAGAIN ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNotBound) GTEST_SKIP() << "root here cannot become another user";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}
#endif

}  // namespace
}  // namespace ucmstore::test
