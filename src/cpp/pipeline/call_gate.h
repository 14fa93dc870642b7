// SPDX-License-Identifier: Apache-2.0
//
// CallGate: counts the calls inside a store, so that Close can shut the door and wait until the
// last one has left. Entering and leaving an open gate is one atomic step each. Thread-safe.
//
//   word:  63                          1   0
//          +---------------------------+------+
//          | calls inside              | shut |
//          +---------------------------+------+
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/mutex.h"

namespace ucmstore {

class CallGate {
 public:
  // False: the gate is shut, and the call is not inside.
  [[nodiscard]] bool Enter() noexcept;
  void Leave() noexcept;

  void Shut() noexcept { word_.fetch_or(kShut, std::memory_order_acq_rel); }
  [[nodiscard]] bool shut() const noexcept {
    return (word_.load(std::memory_order_acquire) & kShut) != 0;
  }
  // Waits until no call is inside. Requires: shut. False: some still are at `until`.
  [[nodiscard]] bool AwaitEmpty(TimePoint until) noexcept;
  [[nodiscard]] std::uint64_t inside() const noexcept {
    return word_.load(std::memory_order_acquire) / kOne;
  }

 private:
  static constexpr std::uint64_t kShut = 1;
  static constexpr std::uint64_t kOne = 2;

  std::atomic<std::uint64_t> word_{0};
  Mutex mutex_;
  CondVar left_;
};

}  // namespace ucmstore
