// SPDX-License-Identifier: Apache-2.0
//
// Eventually: waits for what happens on another thread and cannot be waited for otherwise, such as
// a figure of a store. Bounded. Thread-safe.
#pragma once

#include <chrono>

#include "base/mutex.h"
#include "support/batch.h"

namespace ucmstore::test {

// True as soon as `condition()` is, false if it is not within kPatienceMs.
template <typename Condition>
[[nodiscard]] bool Eventually(Condition&& condition) {
  const auto until = std::chrono::steady_clock::now() + milliseconds(kPatienceMs);
  Mutex mutex;
  CondVar never_signalled;
  const MutexLock lock(mutex);
  while (!condition()) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= until) return false;
    (void)never_signalled.WaitUntil(mutex, now + milliseconds(1));
  }
  return true;
}

}  // namespace ucmstore::test
