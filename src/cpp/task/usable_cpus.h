// SPDX-License-Identifier: Apache-2.0
//
// How many threads of this process can compute at once: the CPUs that the calling thread may run
// on, or fewer where a cgroup lets it have only so much of them. Thread-safe; needs no memory.
#pragma once

#include <cstdint>
#include <string_view>

namespace ucmstore {

// At least 1. `root`: of the file system to look in for cgroups, so that tests can show it any.
[[nodiscard]] std::uint32_t UsableCpus(std::string_view root = "") noexcept;

}  // namespace ucmstore
