// SPDX-License-Identifier: Apache-2.0
//
// BlockLayout: where things are in a block file. PERSISTED: docs/format.md draws it; a change is a
// new format number (root_file.h). Pure arithmetic; thread-safe.
//
//   [shard 0][shard 1] ... [shard k-1][footer]            every shard as long as it may be: "full"
//   [shard 0][shard 1] ... [shard k-1][gap][footer]       some shard is short
//
// Shard i lies at i * stride; stride and footer are whole pages, so that no two shards ever share
// one and every transfer can be direct. The gap is a hole of one page: the file's size alone tells
// a full block from a short one, and both from a torn file. A reader that knows the block to be
// full reads shards and footer in one call, straight into the caller's memory, without fear of
// writing beyond what was stored.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/aligned_buffer.h"

namespace ucmstore {

[[nodiscard]] constexpr std::uint64_t WholePages(std::uint64_t bytes) noexcept {
  return (bytes + kPageSize - 1) / kPageSize * kPageSize;
}

struct BlockLayout {
  static constexpr std::uint64_t kMaxShardSize = (std::uint64_t{1} << 32) - 1;
  static constexpr std::uint32_t kMaxShards = 65536;
  static constexpr std::uint64_t kFooterHeader = 112;  // format.h
  static constexpr std::uint64_t kFooterEntry = 16;
  static constexpr std::uint64_t kFooterCrc = 4;

  std::uint64_t shard_size = 0;
  std::uint32_t shards_per_block = 0;

  friend bool operator==(const BlockLayout&, const BlockLayout&) = default;

  [[nodiscard]] constexpr bool valid() const noexcept {
    return shard_size >= 1 && shard_size <= kMaxShardSize && shards_per_block >= 1 &&
           shards_per_block <= kMaxShards;
  }
  [[nodiscard]] constexpr std::uint64_t stride() const noexcept { return WholePages(shard_size); }
  [[nodiscard]] constexpr std::uint64_t ShardOffset(std::uint32_t i) const noexcept {
    return i * stride();
  }
  [[nodiscard]] constexpr std::uint64_t ShardsEnd() const noexcept {
    return shards_per_block * stride();
  }
  [[nodiscard]] constexpr std::uint64_t footer_size() const noexcept {
    return WholePages(kFooterHeader + shards_per_block * kFooterEntry + kFooterCrc);
  }
  [[nodiscard]] constexpr std::uint64_t FooterOffset(bool full) const noexcept {
    return ShardsEnd() + (full ? 0 : kPageSize);
  }
  [[nodiscard]] constexpr std::uint64_t FileSize(bool full) const noexcept {
    return FooterOffset(full) + footer_size();
  }
  [[nodiscard]] constexpr bool IsBlockSize(std::uint64_t size) const noexcept {
    return size == FileSize(true) || size == FileSize(false);
  }
};

// The largest file still fits an off_t with room to spare.
static_assert(BlockLayout{BlockLayout::kMaxShardSize, BlockLayout::kMaxShards}.FileSize(false) <
              std::uint64_t{1} << 49);
static_assert(BlockLayout{1, 248}.footer_size() == kPageSize);
static_assert(BlockLayout{1, 249}.footer_size() == 2 * kPageSize);
static_assert(BlockLayout{4096 * 3 + 512, 4}.stride() == 4 * kPageSize);

}  // namespace ucmstore
