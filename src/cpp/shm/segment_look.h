// SPDX-License-Identifier: Apache-2.0
//
// Looking at a segment without joining it: whose it is, who uses it, what its slots hold. Only
// reads, and asks the kernel who lives; so it may be used while engines run, on any file at all.
// Pure functions over the file system; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "shm/layout.h"
#include "shm/slot_word.h"

namespace ucmstore {

struct SegmentLook {
  struct Process {
    std::uint32_t place;
    std::uint32_t pid;     // as it saw itself
    bool alive;            // false: it has died, and its traces wait for the next process
    std::uint64_t leases;  // that it has out
  };
  RingHeader header{};
  std::string identity;
  std::vector<Process> processes;
  std::array<std::uint64_t, kSlotStates> slots{};  // how many are in each state, just now
  std::uint64_t evictions = 0;

  [[nodiscard]] bool in_use() const noexcept;
};

// kNotFound; kUnsupported: no segment of this version; kCorruption: damaged; else from an errno.
[[nodiscard]] Result<SegmentLook> LookAtSegment(const std::string& path);

// "ucmstore.<name>.r<version>" -> name; "" for any other file name.
[[nodiscard]] std::string_view SegmentNameOf(std::string_view file_name) noexcept;

}  // namespace ucmstore
