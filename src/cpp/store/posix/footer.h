// SPDX-License-Identifier: Apache-2.0
//
// The footer: the last pages of a block file, which say what the file is and whether it is right.
// The only owner of these bytes: printer and parser side by side. PERSISTED; docs/format.md holds
// a worked example, tests/data the golden files. Pure functions; thread-safe. All numbers are
// little-endian:
//
//   offset  bytes
//        0      8  magic "UCMBLOCK"
//        8      4  version, 1
//       12      4  size of the footer: whole pages
//       16     16  block id
//       32     32  fingerprint of the namespace
//       64      8  shard size
//       72      4  shards per block, k
//       76      4  flags: bit 0, some shard is short; the others are zero
//       80     32  content, padded with zeros
//      112   16*k  for each shard: offset in the file (8), length (4), CRC-32C of that length (4)
//      ...         zeros
//   size-4      4  CRC-32C of all that is before it
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "store/posix/layout.h"
#include "ucmstore/types.h"

namespace ucmstore {

inline constexpr std::uint32_t kFooterVersion = 1;
inline constexpr std::size_t kMaxContentSize = 31;  // at least one zero follows

struct StoredShard {
  std::uint32_t length = 0;
  std::uint32_t crc = 0;

  friend bool operator==(const StoredShard&, const StoredShard&) = default;
};

struct Footer {
  BlockId id{};
  std::array<std::uint8_t, 32> fingerprint{};
  BlockLayout layout;
  std::string content;
  std::vector<StoredShard> shards;  // shards_per_block of them

  friend bool operator==(const Footer&, const Footer&) = default;

  // Every shard is as long as it may be.
  [[nodiscard]] bool full() const noexcept;
};

// Prints into exactly layout.footer_size() bytes. Requires: `footer` is complete and in range.
void PrintFooter(const Footer& footer, std::span<std::byte> out) noexcept;

// Parses a whole footer. kCorruption, in words, if it is not one; kUnsupported if it is one of a
// newer version, which is nobody's fault. What it returns is consistent in itself; whether it
// belongs where it was found is for the caller.
[[nodiscard]] Result<Footer> ParseFooter(std::span<const std::byte> bytes);

// For who knows nothing about a file: the footer's size, from the first page of what may be one.
// 0: it is none.
[[nodiscard]] std::uint64_t PeekFooterSize(std::span<const std::byte> page) noexcept;

}  // namespace ucmstore
