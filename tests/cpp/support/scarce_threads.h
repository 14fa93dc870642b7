// SPDX-License-Identifier: Apache-2.0
//
// ScarceThreads: a machine on which so many threads are to be had and no more, as under
// RLIMIT_NPROC or a full pids cgroup, until a test says otherwise. Thread-safe.
#pragma once

#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

#include "task/thread_starter.h"

namespace ucmstore::test {

class ScarceThreads {
 public:
  explicit ScarceThreads(int left) : left_(left) {}
  void SetLeft(int left) { left_ = left; }
  // Must not outlive this.
  [[nodiscard]] ThreadStarter starter() {
    return [this](std::function<void()> function) {
      if (left_.fetch_sub(1) <= 0) {
        ++left_;
        throw std::system_error(EAGAIN, std::generic_category());
      }
      return std::thread(std::move(function));
    };
  }

 private:
  std::atomic<int> left_;
};

}  // namespace ucmstore::test
