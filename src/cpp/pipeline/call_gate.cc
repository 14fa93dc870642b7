// SPDX-License-Identifier: Apache-2.0
//
// The steps of the gate.
#include "pipeline/call_gate.h"

namespace ucmstore {

bool CallGate::Enter() noexcept {
  const std::uint64_t before = word_.fetch_add(kOne, std::memory_order_acq_rel);
  if ((before & kShut) == 0) return true;
  Leave();
  return false;
}

void CallGate::Leave() noexcept {
  std::uint64_t word = word_.load(std::memory_order_acquire);
  // While the gate is open nobody waits for us: after this step the gate may be gone.
  while ((word & kShut) == 0) {
    if (word_.compare_exchange_weak(word, word - kOne, std::memory_order_acq_rel)) return;
  }
  // Under the lock, so that whoever waits does not end the gate between our step and our notice.
  const MutexLock lock(mutex_);
  word_.fetch_sub(kOne, std::memory_order_acq_rel);
  left_.NotifyAll();
}

bool CallGate::AwaitEmpty(TimePoint until) noexcept {
  const MutexLock lock(mutex_);
  while (inside() != 0) {
    if (!left_.WaitUntil(mutex_, until)) return inside() == 0;
  }
  return true;
}

}  // namespace ucmstore
