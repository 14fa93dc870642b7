// SPDX-License-Identifier: Apache-2.0
//
// Collector: keeps one root below its capacity. A cycle is measure, cut, sweep: how much is used;
// the age below which enough lies to come down to the low mark; one pass over all prefix folders
// that removes what is older. It is one job of the workers' background lane that does one folder
// and queues itself again, so loads and dumps go first and a close waits for one folder at most.
//
// Whoever lives collects, but one at a time: a cycle holds an exclusive lock on
// `<root>/.collector`. It is tried and never waited for; the kernel gives it back when a process
// dies, and the next one begins anew, for nothing of a cycle is kept anywhere. A stopped process
// keeps it: a lock under which nothing has moved for kTakeOver is passed over. That is safe, since
// two collectors only do the same work twice; whoever wakes up after so long drops its old plan.
//
// Nothing polls. A cycle begins when the store is opened, when this store's dumps since the last
// measure may have used up the room to the high mark, at a dump when others may have
// (kAtLeastEvery), and when the disk is full. A cycle that ends early for any reason (no thread, no
// descriptors, the folder gone) is begun anew by the next of these. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/result.h"
#include "io/file_system.h"
#include "store/posix/accord.h"
#include "store/posix/counters.h"
#include "store/posix/limits.h"
#include "task/thread_pool.h"

namespace ucmstore {

class Collector final : public Job {
 public:
  struct Services {
    FileSystem& fs;
    ThreadPool& pool;
    const Clock& clock;
    Log& log;
    PosixCounters& counters;
  };
  // `limits` have a capacity.
  Collector(const Services& services, std::string path, const Limits& limits, const Modes& modes);
  ~Collector() override;

  // With the stores that live here; see Accord::Join. Ok if the root cannot be reached now: each
  // cycle tries again. Called before the first cycle.
  [[nodiscard]] Status Agree();
  // The first cycle.
  void Begin() noexcept { Start(); }
  // A dump became visible.
  void Committed(std::uint64_t bytes) noexcept;
  // A dump found no room on the disk, whatever the capacity.
  void Full() noexcept;
  // Says if a folder hangs. Never waits.
  void LookForStall() noexcept;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::uint64_t used_bytes() const noexcept { return used_bytes_.load(); }
  [[nodiscard]] std::uint64_t capacity_bytes() const noexcept { return capacity_bytes_.load(); }

  // Ends within one folder. False: that hangs.
  [[nodiscard]] bool End(TimePoint until);

  void Run() noexcept override;

  static constexpr milliseconds kAtLeastEvery{10'000};  // while there are dumps
  static constexpr milliseconds kBackOff{1'000};  // another collects, or nothing could be freed
  static constexpr milliseconds kStall{30'000};   // a folder that takes longer is told of
  static constexpr milliseconds kTakeOver{60'000};
  static constexpr int kMaxRounds = 3;  // of one cycle, if a sweep frees less than was hoped for

 private:
  struct Cycle;

  void Start() noexcept;
  // What Run does; true: there is another folder to do.
  bool Slice();
  bool BeginCycle();
  bool TakeLock(Cycle& cycle);
  bool MayPassOver(int lock);
  void BeatNowAndThen(Cycle& cycle);
  bool KeepAccord();
  bool EndMeasure(Cycle& cycle);
  bool EndSweep(Cycle& cycle);
  bool EndCycle(Cycle& cycle);
  void Finish() noexcept;
  void Plan(std::uint64_t used_bytes) noexcept;
  template <typename Words>
  void WarnNowAndThen(TimePoint& next, Words&& words) noexcept;
  void SayOnce(std::atomic<bool>& said, const std::string& words) noexcept;
  [[nodiscard]] bool IsDue(std::uint64_t waiting_bytes) const noexcept;
  [[nodiscard]] bool stopping() const noexcept { return stop_.load(std::memory_order_relaxed); }

  const Services services_;
  const std::string path_;
  const Limits limits_;
  const Modes modes_;

  // Of the worker that runs a slice alone; Agree before.
  std::unique_ptr<Accord> accord_;
  std::unique_ptr<Cycle> cycle_;
  FileStat beat_;      // of a lock that another has, as it was when it last changed,
  TimePoint beat_at_;  // and when that was seen
  std::atomic<bool> said_no_accord_{false};
  std::atomic<bool> said_no_lock_{false};
  std::atomic<bool> said_no_size_{false};
  std::atomic<bool> said_partial_{false};
  TimePoint warn_of_stuck_ = TimePoint::min();
  TimePoint warn_of_use_ = TimePoint::min();

  // What the last cycle found, for the triggers.
  std::atomic<std::uint64_t> used_bytes_{0};
  std::atomic<std::uint64_t> capacity_bytes_{0};
  std::atomic<std::uint64_t> since_bytes_{0};  // dumped here since the measure began
  std::atomic<std::uint64_t> step_bytes_{UINT64_MAX};
  std::atomic<std::uint64_t> room_bytes_{UINT64_MAX};  // to the high mark
  std::atomic<TimePoint> not_before_{TimePoint::min()};
  std::atomic<TimePoint> pause_until_{TimePoint::min()};
  std::atomic<TimePoint> at_latest_{TimePoint::min()};
  std::atomic<bool> full_{false};  // a dump has found no room since the cycle began
  std::atomic<TimePoint> full_not_before_{TimePoint::min()};

  std::atomic<TimePoint> slice_began_{TimePoint::max()};
  std::atomic<bool> told_of_stall_{false};

  std::atomic<bool> stop_{false};
  Mutex mutex_;
  CondVar ended_;
  bool running_ UCMSTORE_GUARDED_BY(mutex_) = false;
};

}  // namespace ucmstore
