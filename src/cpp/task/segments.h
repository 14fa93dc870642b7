// SPDX-License-Identifier: Apache-2.0
//
// Moving bytes between a shard and its list of segments, and the rules for such lists. Pure
// functions; thread-safe as far as the memory is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "ucmstore/store_v1.h"

namespace ucmstore {

enum class TaskKind : std::uint8_t { kLoad, kDump };

// The bytes of all segments together; UINT64_MAX if the sum overflows.
[[nodiscard]] std::uint64_t TotalBytes(std::span<const Segment> segments) noexcept;

// True if some segment's data is null and its size is not: bytes to be skipped.
[[nodiscard]] bool HasSkips(std::span<const Segment> segments) noexcept;

// Copies `from` into the segments in order, skipping where data is null. Stops at the shorter end.
void Scatter(std::span<const std::byte> from, std::span<const Segment> segments) noexcept;

// Copies the segments into `to` in order; `to` must have room for all. Returns the bytes copied.
std::uint64_t Gather(std::span<const Segment> segments, std::span<std::byte> to) noexcept;

// Checks a task against the geometry by the rules of store_v1.h (promises 6 and 7), before
// anything is touched. The message names the shard's position in the task and the rule.
[[nodiscard]] Status CheckTask(const TaskDesc& desc, TaskKind kind, std::uint64_t shard_size,
                               std::uint32_t shards_per_block);
[[nodiscard]] Status CheckLookup(const LookupDesc& desc, const std::uint8_t* found);

}  // namespace ucmstore
