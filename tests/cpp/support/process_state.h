// SPDX-License-Identifier: Apache-2.0
//
// What this process holds of the system's resources, from /proc. For tests that look for leaks.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#if defined(__SANITIZE_ADDRESS__)
// Of the sanitizers' run time; g++ does not install the header that declares it.
extern "C" std::size_t __sanitizer_get_current_allocated_bytes();
#endif

namespace ucmstore::test {

[[nodiscard]] inline std::size_t OpenDescriptors() {
  std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

[[nodiscard]] inline std::size_t ThreadCount() {
  std::filesystem::directory_iterator all("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

// Memory that this process holds. AddressSanitizer keeps what was freed resident for a while, by
// design (its quarantine): there, what has been allocated and not freed is counted.
[[nodiscard]] inline std::uint64_t MemoryInUse() {
#if defined(__SANITIZE_ADDRESS__)
  return __sanitizer_get_current_allocated_bytes();
#else
  std::ifstream file("/proc/self/statm");
  std::uint64_t total = 0;
  std::uint64_t resident = 0;
  file >> total >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
#endif
}

}  // namespace ucmstore::test
