// SPDX-License-Identifier: Apache-2.0
//
// BootClockNs: nanoseconds since the machine started, the same in all of its processes, whatever
// anybody does to the wall clock. Thread-safe.
#pragma once

#include <ctime>

#include <cstdint>

namespace ucmstore {

[[nodiscard]] inline std::uint64_t BootClockNs() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace ucmstore
