// SPDX-License-Identifier: Apache-2.0
//
// Room: how much memory this process may use, by the machine and by every cgroup around it, and how
// much a mount has left. What a new ring may take follows from both. The readers take the root of
// the file system to look in, so that tests can show them any machine. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ucmstore {

struct MemoryRoom {
  std::uint64_t total_bytes = 0;      // never more than this: the machine's, or a cgroup's limit
  std::uint64_t available_bytes = 0;  // now, before the kernel starts to kill
  std::string total_of;               // "this machine's memory", "the limit of cgroup /a/b"
  std::string available_of;
};

// Never fails: what cannot be read is no bound.
[[nodiscard]] MemoryRoom ReadMemoryRoom(const std::string& root = "");

struct MountRoom {
  std::string mount_point;
  std::string type;              // "tmpfs"
  std::uint64_t free_bytes = 0;  // for this user; UINT64_MAX where the mount has no size
  bool in_memory = false;        // its pages are memory, whatever the mount's own size
  bool local = false;            // no other machine sees it
};
[[nodiscard]] Result<MountRoom> ReadMountRoom(int folder, const std::string& path);

// What `capacity: auto` is: a quarter of the memory or 80 % of what is free, whichever is smaller,
// of the mount if there is one.
[[nodiscard]] std::uint64_t AutoCapacity(const MemoryRoom& memory,
                                         const std::optional<MountRoom>& mount) noexcept;

// Whether so much may be asked for at all, on this machine, in words with both numbers. Ok for 0.
[[nodiscard]] Status JudgeCapacity(std::uint64_t capacity_bytes, const MemoryRoom& memory);
// Whether pages for `bytes` can be had now without the kernel killing for them.
[[nodiscard]] Status JudgeMemory(std::uint64_t bytes, const MemoryRoom& memory);

// "64.0 MiB", "1.5 GiB": for people.
[[nodiscard]] std::string BytesText(std::uint64_t bytes);

// ---- the parsers, each for one file of the kernel -----------------------------------------------

// The value of "Name:   123 kB" in bytes (/proc/meminfo).
[[nodiscard]] std::optional<std::uint64_t> MeminfoBytes(std::string_view text,
                                                        std::string_view name) noexcept;
// The value of "name 123" (memory.stat).
[[nodiscard]] std::optional<std::uint64_t> StatBytes(std::string_view text,
                                                     std::string_view name) noexcept;
// A lone number; nothing for "max".
[[nodiscard]] std::optional<std::uint64_t> LimitBytes(std::string_view text) noexcept;

// A place in a hierarchy that accounts memory.
struct CgroupPlace {
  std::string mount_point;
  std::string path;  // below the mount point, "/" for itself
  bool v2 = false;
};
// From /proc/self/cgroup and /proc/self/mountinfo: none, one, or (in a hybrid set-up) two.
[[nodiscard]] std::vector<CgroupPlace> MemoryCgroups(std::string_view cgroup,
                                                     std::string_view mountinfo);

}  // namespace ucmstore
