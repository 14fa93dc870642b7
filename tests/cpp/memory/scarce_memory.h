// SPDX-License-Identifier: Apache-2.0
//
// ScarceMemory: makes operator new fail, on one thread, from a chosen call on, as the kernel does
// in a container that is full. Only for programs that link scarce_memory.cc, which replaces
// operator new. Each thread has its own state.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ucmstore::test {

class ScarceMemory {
 public:
  // This thread's next `left` allocations succeed, those after that throw.
  static void Begin(std::uint64_t left = 0) noexcept;
  static void End() noexcept;
  // On all threads: whatever has begun anywhere.
  static void EndAll() noexcept;
  // How many of this thread's allocations have failed since Begin.
  [[nodiscard]] static std::uint64_t Failures() noexcept;
};

// Memory is short on this thread while it lives.
class NoMemory {
 public:
  explicit NoMemory(std::uint64_t left = 0) noexcept { ScarceMemory::Begin(left); }
  NoMemory(const NoMemory&) = delete;
  NoMemory& operator=(const NoMemory&) = delete;
  ~NoMemory() { ScarceMemory::End(); }
};

}  // namespace ucmstore::test
