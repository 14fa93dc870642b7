// SPDX-License-Identifier: Apache-2.0
//
// Prefault: has the kernel map the ring's pages into this process, in the background, soon after
// the ring was opened. Otherwise the first dump into each page of a fresh ring pays for a fault and
// for zeroing it: several times the copy. It changes no byte. A few megabytes a step, so that it
// never holds up for long whoever maps or unmaps memory meanwhile. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>

#include "task/thread_starter.h"

namespace ucmstore {

class Prefault {
 public:
  explicit Prefault(ThreadStarter starter) : starter_(std::move(starter)) {}
  Prefault(const Prefault&) = delete;
  Prefault& operator=(const Prefault&) = delete;
  ~Prefault() { Stop(); }

  // Call once. `pages` stay mapped until Stop has returned and begin on a page. Without a thread,
  // or on a kernel that cannot do it (before Linux 5.14), the pages wait for who needs them.
  void Start(std::span<std::byte> pages);
  // Not thread-safe against itself.
  void Stop() noexcept;

  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_.load(); }

 private:
  void Work(std::span<std::byte> pages) noexcept;

  const ThreadStarter starter_;
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace ucmstore
