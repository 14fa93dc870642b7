// SPDX-License-Identifier: Apache-2.0
//
// What an ObjectStage writes: a block as one object that says what it is and whether it is right.
// The only owner of these bytes: printer and parser side by side. PERSISTED; see docs/format.md.
// Pure functions; thread-safe. All numbers are little-endian:
//
//   offset  bytes
//        0      8  magic "UCMOBJCT"
//        8      4  version, 1
//       12      4  size of the header: 112 + 8 * k + 4
//       16     16  block id
//       32     32  fingerprint of the namespace
//       64      8  shard size
//       72      4  shards per block, k
//       76      4  zero
//       80     32  content, padded with zeros
//      112    8*k  for each shard: length (4), CRC-32C of that length (4)
//      ...      4  CRC-32C of all that is before it
//      then the shards, one behind the other, each of its length, and nothing else
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ucmstore/types.h"

namespace ucmstore {

inline constexpr std::uint32_t kObjectVersion = 1;

// What the objects of one store have in common.
struct ObjectKind {
  std::array<std::uint8_t, 32> fingerprint{};
  std::uint64_t shard_size = 0;
  std::uint32_t shards_per_block = 0;
  std::string content;  // at most 31 characters

  [[nodiscard]] std::size_t header_size() const noexcept {
    return 112 + 8 * std::size_t{shards_per_block} + 4;
  }
  // Of a block whose shards are all full.
  [[nodiscard]] std::uint64_t object_size() const noexcept {
    return header_size() + shard_size * shards_per_block;
  }
};

// "" if objects can be made of this kind; else the rule that it breaks.
[[nodiscard]] std::string CheckObjectKind(const ObjectKind& kind);

// Prints the header into the object's first header_size() bytes; the shards lie behind it already,
// of these lengths. Requires: lengths.size() == shards_per_block.
void PrintObjectHeader(const ObjectKind& kind, const BlockId& id,
                       std::span<const std::uint32_t> lengths,
                       std::span<std::byte> object) noexcept;

// Looks at what a medium gave for a block. kCorruption, in words, where it is not the object that
// was put; kUnsupported, if it is one of a newer version; kInvalidArgument, of another geometry or
// content. The shards themselves are checked one by one, by `Shard`.
class ParsedObject {
 public:
  [[nodiscard]] static Result<ParsedObject> Parse(const ObjectKind& kind, const BlockId& id,
                                                  std::span<const std::byte> object);
  // The shard's bytes; kCorruption if its checksum differs. Requires: the object is still there.
  [[nodiscard]] Result<std::span<const std::byte>> Shard(std::uint32_t index) const;

 private:
  struct Entry {
    std::span<const std::byte> bytes;
    std::uint32_t crc;
  };
  std::vector<Entry> shards_;
};

}  // namespace ucmstore
