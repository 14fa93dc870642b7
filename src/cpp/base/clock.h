// SPDX-License-Identifier: Apache-2.0
//
// Clock: the one seam to time. Deadlines and ages are measured on it, so tests of both choose the
// time instead of sleeping. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>

namespace ucmstore {

using TimePoint = std::chrono::steady_clock::time_point;
using std::chrono::milliseconds;

class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual TimePoint Now() const noexcept { return std::chrono::steady_clock::now(); }
};

// A clock that moves only when told to. Begins at the present, since condition variables compare
// with the real clock.
class ManualClock final : public Clock {
 public:
  [[nodiscard]] TimePoint Now() const noexcept override {
    return TimePoint(TimePoint::duration(ticks_.load()));
  }
  void Advance(milliseconds by) noexcept { ticks_.fetch_add(TimePoint::duration(by).count()); }

 private:
  std::atomic<TimePoint::rep> ticks_{std::chrono::steady_clock::now().time_since_epoch().count()};
};

}  // namespace ucmstore
