// SPDX-License-Identifier: Apache-2.0
//
// Copies between shards and segments, and the checks of a task before anything is touched.
#include "task/segments.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstring>
#include <limits>

namespace ucmstore {
namespace {

constexpr std::uint64_t kOverflow = std::numeric_limits<std::uint64_t>::max();

template <typename... Args>
Status Invalid(fmt::format_string<Args...> format, Args&&... args) {
  return Status::Error(Code::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...));
}

Status CheckSegments(const Shard& shard, std::uint32_t position, TaskKind kind,
                     std::uint64_t shard_size) {
  const bool dump = kind == TaskKind::kDump;
  if (shard.segment_count == 0) {
    if (!dump) return Status::Ok();  // prefetch
    return Invalid("shard {} of the task has no segments; a dump needs memory to read", position);
  }
  if (shard.segments == nullptr) {
    return Invalid("shard {} of the task has {} segments at a null pointer", position,
                   shard.segment_count);
  }
  const std::span segments(shard.segments, shard.segment_count);
  const std::uint64_t total = TotalBytes(segments);
  if (total == 0) {
    return Invalid("the segments of shard {} of the task hold no bytes at all", position);
  }
  if (total > shard_size) {
    return Invalid("the segments of shard {} of the task hold {} bytes, more than shard_size {}",
                   position, total, shard_size);
  }
  if (dump && HasSkips(segments)) {
    return Invalid("a segment of shard {} of the task is null; only a load may skip bytes",
                   position);
  }
  return Status::Ok();
}

}  // namespace

std::uint64_t TotalBytes(std::span<const Segment> segments) noexcept {
  std::uint64_t total = 0;
  for (const Segment& segment : segments) {
    if (__builtin_add_overflow(total, segment.size, &total)) return kOverflow;
  }
  return total;
}

bool HasSkips(std::span<const Segment> segments) noexcept {
  return std::ranges::any_of(
      segments, [](const Segment& segment) { return segment.data == nullptr && segment.size > 0; });
}

void Scatter(std::span<const std::byte> from, std::span<const Segment> segments) noexcept {
  for (const Segment& segment : segments) {
    const std::size_t size = std::min<std::uint64_t>(segment.size, from.size());
    if (segment.data != nullptr && size > 0) std::memcpy(segment.data, from.data(), size);
    from = from.subspan(size);
    if (from.empty()) return;
  }
}

std::uint64_t Gather(std::span<const Segment> segments, std::span<std::byte> to) noexcept {
  std::uint64_t copied = 0;
  for (const Segment& segment : segments) {
    const std::size_t size = std::min<std::uint64_t>(segment.size, to.size() - copied);
    if (size > 0) std::memcpy(to.data() + copied, segment.data, size);
    copied += size;
  }
  return copied;
}

Status CheckTask(const TaskDesc& desc, TaskKind kind, std::uint64_t shard_size,
                 std::uint32_t shards_per_block) {
  if (desc.struct_size < sizeof(TaskDesc)) {
    return Invalid("TaskDesc.struct_size is {}, not {}", desc.struct_size, sizeof(TaskDesc));
  }
  if (desc.flags != 0) return Invalid("TaskDesc.flags {:#x} are not known here", desc.flags);
  if (std::ranges::any_of(desc.reserved, [](std::uint64_t word) { return word != 0; })) {
    return Invalid("TaskDesc.reserved is not zero");
  }
  if (desc.device >= 0 || desc.stream != nullptr || desc.ready_event != nullptr ||
      desc.done_event != nullptr) {
    return Status::Error(
        Code::kUnsupported,
        fmt::format("memory of device {} cannot be reached; give host memory (device -1, no "
                    "stream, no events)",
                    desc.device));
  }
  if (desc.shard_count > 0 && desc.shards == nullptr) {
    return Invalid("TaskDesc.shards is null with shard_count {}", desc.shard_count);
  }
  for (std::uint32_t i = 0; i < desc.shard_count; ++i) {
    const Shard& shard = desc.shards[i];
    if (shard.index >= shards_per_block) {
      return Invalid("shard {} of the task has index {}; a block has shards 0 to {}", i,
                     shard.index, shards_per_block - 1);
    }
    if (Status status = CheckSegments(shard, i, kind, shard_size); !status.ok()) return status;
  }
  return Status::Ok();
}

Status CheckLookup(const LookupDesc& desc, const std::uint8_t* found) {
  if (desc.struct_size < sizeof(LookupDesc)) {
    return Invalid("LookupDesc.struct_size is {}, not {}", desc.struct_size, sizeof(LookupDesc));
  }
  if ((desc.flags & ~kLookupFlags) != 0) {
    return Invalid("LookupDesc.flags {:#x} are not known here", desc.flags);
  }
  if (desc.count > 0 && (desc.blocks == nullptr || found == nullptr)) {
    return Invalid("LookupDesc.blocks or the place for the answers is null with count {}",
                   desc.count);
  }
  return Status::Ok();
}

}  // namespace ucmstore
