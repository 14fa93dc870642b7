// SPDX-License-Identifier: Apache-2.0
//
// Test content that betrays its history. Every 64 bytes carry the writer's nonce, the block id, the
// shard's index, the offset, and filler derived from all of them; so a shard that mixes two dumps,
// belongs to another block, is shifted, torn or stale is told apart from a good one, which content
// that is only a function of the id could not do. Pure functions; NextNonce is thread-safe and
// gives values that no other process gives.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "ucmstore/types.h"

namespace ucmstore::test {

inline constexpr std::size_t kCellBytes = 64;

// A nonce of its own for each dump. Never 0.
[[nodiscard]] std::uint64_t NextNonce();

// The i-th id of a family. Uniform, different for different (family, i).
[[nodiscard]] BlockId MakeId(std::uint64_t family, std::uint64_t i);

// Writes what a dump with this nonce stores as the first `out.size()` bytes of the shard.
void Fill(std::span<std::byte> out, const BlockId& block, std::uint32_t shard, std::uint64_t nonce);

struct Verdict {
  std::string why;          // empty: good
  std::uint64_t nonce = 0;  // of the dump that wrote it; 0 if too short to tell (below 8 bytes)
  [[nodiscard]] bool good() const { return why.empty(); }
};

// Checks that `bytes` are the beginning of this shard as one single dump wrote it, and says which.
// With `nonce`: and that it was that dump.
[[nodiscard]] Verdict Inspect(std::span<const std::byte> bytes, const BlockId& block,
                              std::uint32_t shard,
                              std::optional<std::uint64_t> nonce = std::nullopt);

}  // namespace ucmstore::test
