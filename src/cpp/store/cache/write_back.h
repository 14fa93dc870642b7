// SPDX-License-Identifier: Apache-2.0
//
// WriteBack: sees to it that this process's dirty slots get below, a few at a time. A dump below
// that fails is tried again, each time after a longer pause, and given up at last: then the block
// stays in the ring as long as there is room, it is said in the log and in the figures, and to the
// tasks that still wait for it. No thread of its own. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "base/mutex.h"
#include "shm/ring.h"
#include "store/cache/cache_task.h"
#include "task/stage_figures.h"
#include "ucmstore/plugin_v1.h"

namespace ucmstore {

class CacheStage;

class WriteBack {
 public:
  struct Limits {
    std::uint32_t in_flight = 8;    // dumps below at once
    milliseconds first_pause{100};  // after the first failure; doubled after each
    milliseconds longest_pause{5'000};
    milliseconds give_up{60'000};  // after the first failure
  };
  WriteBack(CacheStage& stage, Ring& ring, const Limits& limits)
      : stage_(stage), ring_(ring), limits_(limits) {}
  WriteBack(const WriteBack&) = delete;
  WriteBack& operator=(const WriteBack&) = delete;

  // Shards whose task waits until the block in the slot is below. Call before Add.
  void Follow(std::uint32_t slot, const CacheTaskPtr& task, std::vector<std::uint32_t> positions);
  // The slot is dirty and ours. Again is harmless.
  void Add(std::uint32_t slot) {
    Note(slot);
    Pump();
  }
  // The same, but nothing is begun yet: a Pump must follow. For who has more to bring at once.
  void Note(std::uint32_t slot);
  // Begins what may begin. One thread at a time; another's work is seen by it.
  void Pump();
  // For who comes by now and then: begins what a Pump should have, and tries what should have
  // paused and could not. As a rule nothing.
  void Nudge();
  // Waits until nothing is left to do, or until the time has come. False: something is left.
  bool Drain(TimePoint until);
  // Begins nothing more; cancels below what has not begun. Followers end kCancelled.
  void Stop();

  [[nodiscard]] std::size_t Waiting() const;
  [[nodiscard]] std::uint32_t InFlight() const;
  void VisitMetrics(const MetricVisitor& metric) const;

 private:
  class Move;
  struct Follower {
    CacheTaskPtr task;
    std::vector<std::uint32_t> positions;
  };
  struct Entry {
    std::uint64_t generation = 0;  // of the slot
    std::uint32_t failures = 0;
    TimePoint first_failure{};
    Timer::EntryId timer = 0;  // while it pauses
    bool queued = false;       // in ready_
    bool moving = false;
    TaskId below = 0;
    std::vector<Follower> followers;
  };

  void Begin(std::uint32_t slot, const BlockId& block);
  void End(std::uint32_t slot, const Status& status);
  void Lost(std::uint32_t slot);
  void Queue(std::uint32_t slot, Entry& entry) UCMSTORE_REQUIRES(mutex_);
  void Retry(std::uint32_t slot, Entry& entry) UCMSTORE_REQUIRES(mutex_);
  void Pause(std::uint32_t slot, Entry& entry, milliseconds pause) UCMSTORE_REQUIRES(mutex_);
  static void Tell(std::vector<Follower>& followers, const Status& status);

  CacheStage& stage_;
  Ring& ring_;
  const Limits limits_;
  Counter blocks_, bytes_, failures_, lost_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::map<std::uint32_t, Entry> entries_ UCMSTORE_GUARDED_BY(mutex_);
  std::deque<std::uint32_t> ready_ UCMSTORE_GUARDED_BY(mutex_);
  std::uint32_t in_flight_ UCMSTORE_GUARDED_BY(mutex_) = 0;
  bool pumping_ UCMSTORE_GUARDED_BY(mutex_) = false;
  // A block is queued that should pause, but there is no thread for that: nothing is begun before
  // somebody comes by, once for each time.
  bool starved_ UCMSTORE_GUARDED_BY(mutex_) = false;
  bool stopped_ UCMSTORE_GUARDED_BY(mutex_) = false;
};

}  // namespace ucmstore
