// SPDX-License-Identifier: Apache-2.0
//
// UCMSTORE: the text file that says what a namespace's folder is. The only owner of this text,
// printer and parser side by side. PERSISTED; docs/format.md. Pure functions; thread-safe.
//
//   ucmstore 1                      magic and format number; a newer one is refused
//   shard_size: 131072
//   shards_per_block: 8
//   stride: 131072                  follows from the two above; written for the reader
//   content: raw                    how the stages above transformed the shards
//   prefix_digits: 3                of an id, that name its folder
//   fingerprint: <64 hex>           of the namespace
//   root_id: <32 hex>               random, given once
//   namespace:                      its description, each line behind "  "
//     model: example
//   crc32c: <8 hex>                 of all that is before this line
//
// Fields come in any order; one that a reader does not know is passed over.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "store/posix/layout.h"

namespace ucmstore {

inline constexpr std::uint32_t kRootFormat = 1;
inline constexpr std::size_t kMaxRootFileSize = std::size_t{1} << 20;

struct RootFile {
  BlockLayout layout;
  std::string content;
  std::uint32_t prefix_digits = 0;
  std::array<std::uint8_t, 32> fingerprint{};
  std::array<std::uint8_t, 16> root_id{};
  std::string namespace_text;

  friend bool operator==(const RootFile&, const RootFile&) = default;
};

[[nodiscard]] std::string PrintRootFile(const RootFile& file);

// kCorruption: it is no such file, or was changed. kUnsupported: a newer format.
[[nodiscard]] Result<RootFile> ParseRootFile(std::string_view text);

// "" if a store that wants `wanted` may use a folder that is `found` (root ids and prefix digits
// may differ). Else what differs, with both values.
[[nodiscard]] std::string Difference(const RootFile& wanted, const RootFile& found);

[[nodiscard]] std::array<std::uint8_t, 16> NewRootId();

}  // namespace ucmstore
