// SPDX-License-Identifier: Apache-2.0
//
// RingMemory: typed pointers into a ring's segment, wherever it is mapped. Owns nothing. Plain
// value; what it points to is synchronised as ring.h says.
#pragma once

#include <span>

#include "shm/layout.h"

namespace ucmstore {

struct RingMemory {
  const RingHeader* header = nullptr;
  RingShared* shared = nullptr;
  Bucket* buckets = nullptr;
  Slot* slots = nullptr;
  std::atomic<std::uint8_t>* states = nullptr;
  std::atomic<std::uint32_t>* lengths = nullptr;
  std::byte* data = nullptr;

  // Of an open RingSegment, or of whatever has the same members.
  template <typename Segment>
  [[nodiscard]] static RingMemory Of(const Segment& segment) noexcept {
    return {.header = &segment.header(),
            .shared = &segment.shared(),
            .buckets = segment.buckets(),
            .slots = segment.slots(),
            .states = segment.states(),
            .lengths = segment.lengths(),
            .data = segment.data()};
  }

  [[nodiscard]] std::uint32_t shards() const noexcept { return header->shards_per_block; }
  [[nodiscard]] std::uint32_t slot_count() const noexcept { return header->slot_count; }
  [[nodiscard]] std::span<std::atomic<std::uint8_t>> StatesOf(std::uint32_t slot) const noexcept {
    const std::uint64_t stride = (shards() + 7ULL) / 8 * 8;
    return {states + slot * stride, shards()};
  }
  [[nodiscard]] std::atomic<std::uint32_t>& LengthOf(std::uint32_t slot,
                                                     std::uint32_t shard) const noexcept {
    return lengths[std::uint64_t{slot} * shards() + shard];
  }
  [[nodiscard]] std::byte* DataOf(std::uint32_t slot, std::uint32_t shard) const noexcept {
    return data + (std::uint64_t{slot} * shards() + shard) * header->shard_stride;
  }
};

}  // namespace ucmstore
