// SPDX-License-Identifier: Apache-2.0
//
// Watch: the shards of this store's tasks that wait for something in the ring: a shard that is
// being copied in by another, or a slot to be free. One thread looks at them whenever the ring
// announces a change, in whatever process it happened; it sleeps while nothing changes, and there
// is no thread before the first wait. Shards whose wait is over are handed back to the stage, which
// looks at the slot again. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "shm/ring.h"
#include "store/cache/cache_task.h"
#include "task/thread_starter.h"

namespace ucmstore {

// Whoever waits for another process's copy does without it after this: it may have stopped.
inline constexpr milliseconds kPatienceWithOthers{100};
// A dump waits so long for a shard that another dump of this process is bringing.
inline constexpr milliseconds kPatienceWithOwn{10'000};

struct ShardWait {
  CacheTaskPtr task;
  std::vector<std::uint32_t> positions;
  Pin pin;                  // null: waits for a slot, that is for any change at all
  std::uint32_t shard = 0;  // of the pinned slot: until nobody is copying it in
  TimePoint give_up;        // max: the task's own deadline is enough
};

class Watch {
 public:
  // `over`: something has changed, look again; `given_up`: it has not, in time. Called on the
  // watch's thread; must not throw.
  struct Callbacks {
    std::function<void(ShardWait)> over;
    std::function<void(ShardWait)> given_up;
  };
  Watch(Ring& ring, ThreadStarter starter, Callbacks callbacks)
      : ring_(ring), starter_(std::move(starter)), callbacks_(std::move(callbacks)) {}
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() { Stop(); }

  // An error: no thread is to be had, and `wait` is untouched.
  [[nodiscard]] Status Add(ShardWait& wait);
  // Takes out those that wait for this shard of the slot, which will not come.
  [[nodiscard]] std::list<ShardWait> Take(const Pin& pin, std::uint32_t shard);
  // Nobody is copying it in.
  [[nodiscard]] bool IsOver(const Pin& pin, std::uint32_t shard) const noexcept;
  // Drops all waits and joins the thread. Not to be called on it.
  void Stop();

  [[nodiscard]] std::size_t size() const;

 private:
  void Work();
  TimePoint TakeDone(bool woken, std::list<ShardWait>* over, std::list<ShardWait>* given_up)
      UCMSTORE_REQUIRES(mutex_);

  Ring& ring_;
  const ThreadStarter starter_;
  const Callbacks callbacks_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::list<ShardWait> waits_ UCMSTORE_GUARDED_BY(mutex_);
  bool running_ UCMSTORE_GUARDED_BY(mutex_) = false;
  bool stopping_ UCMSTORE_GUARDED_BY(mutex_) = false;
  std::thread thread_ UCMSTORE_GUARDED_BY(mutex_);
};

}  // namespace ucmstore
