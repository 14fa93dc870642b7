// SPDX-License-Identifier: Apache-2.0
//
// Breaker: keeps a root that has become slow, or hangs, from slowing down everything else. Every
// operation on the root is a Use. When one has taken longer than `slow`, whether it has ended or
// not, the root rests: its blocks are misses, and what is to be written fails, at once. It is
// probed meanwhile (Roots::LookAfter), and is used again once a probe is answered in time. Only
// time counts. An error that comes quickly costs nobody anything, and says little: one bad file,
// or a full disk, must not darken what is good.
// Writing may take four times as long, for it queues behind itself where the disk is the
// bottleneck. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/mutex.h"

namespace ucmstore {

class Breaker {
 public:
  enum class Kind : std::uint8_t { kRead, kWrite };
  static constexpr int kWritePatience = 4;  // times `slow`

  // `slow` 0: the root never rests.
  Breaker(const Clock& clock, milliseconds slow) noexcept : clock_(clock), slow_(slow) {}
  Breaker(const Breaker&) = delete;
  Breaker& operator=(const Breaker&) = delete;

  class Use {
   public:
    Use(Breaker& breaker, Kind kind) noexcept;
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use();

   private:
    friend class Breaker;
    Breaker& breaker_;
    const Kind kind_;
    TimePoint begun_;
    Use* previous_ = nullptr;  // begun earlier
    Use* next_ = nullptr;
  };

  [[nodiscard]] bool resting() const noexcept { return resting_.load(std::memory_order_relaxed); }
  // For who is about to use the root: true, and counted, if it must not.
  [[nodiscard]] bool Refuses() noexcept {
    if (!resting()) return false;
    refusals_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  [[nodiscard]] milliseconds slow() const noexcept { return slow_; }
  [[nodiscard]] std::uint64_t rests() const noexcept { return rests_.load(); }
  [[nodiscard]] std::uint64_t refusals() const noexcept { return refusals_.load(); }

  // Looks for a use that has not ended in time. Called now and then by those who come later.
  void Look() noexcept;
  // A probe that began then has been answered. True: that ended the rest.
  bool Probed(TimePoint begun) noexcept;
  // True once for each rest: it is to be told.
  [[nodiscard]] bool TakeNews() noexcept { return news_.exchange(false); }

 private:
  // Those in flight, the longest first.
  struct InFlight {
    Use* first = nullptr;
    Use* last = nullptr;
  };

  [[nodiscard]] milliseconds LimitOf(Kind kind) const noexcept {
    return kind == Kind::kWrite ? kWritePatience * slow_ : slow_;
  }
  [[nodiscard]] InFlight& ListOf(Kind kind) noexcept UCMSTORE_REQUIRES(mutex_) {
    return kind == Kind::kWrite ? writes_ : reads_;
  }
  void Rest() noexcept UCMSTORE_REQUIRES(mutex_);

  const Clock& clock_;
  const milliseconds slow_;
  std::atomic<bool> resting_{false};
  std::atomic<bool> news_{false};
  std::atomic<std::uint64_t> rests_{0};
  std::atomic<std::uint64_t> refusals_{0};
  Mutex mutex_;
  InFlight reads_ UCMSTORE_GUARDED_BY(mutex_);
  InFlight writes_ UCMSTORE_GUARDED_BY(mutex_);
  // Uses that began before are of the time before the last rest ended, and say nothing any more.
  TimePoint since_ UCMSTORE_GUARDED_BY(mutex_) = TimePoint::min();
};

}  // namespace ucmstore
