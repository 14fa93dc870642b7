// SPDX-License-Identifier: Apache-2.0
//
// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78; RFC 3720, section 12.1), as block files
// keep it for each shard. Uses what the CPU has for it, found at run time, and runs about as fast
// as memory can be read; every path gives the same value. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ucmstore {

// The checksum of `bytes` appended to data whose checksum is `crc`; start with 0.
[[nodiscard]] std::uint32_t Crc32c(std::span<const std::byte> bytes,
                                   std::uint32_t crc = 0) noexcept;

// The ways to compute it that this CPU has, fastest first, "portable" (tables) last. Crc32c takes
// the first; tests compare them all.
struct Crc32cPath {
  const char* name;
  std::uint32_t (*run)(std::span<const std::byte> bytes, std::uint32_t crc) noexcept;
};
[[nodiscard]] std::span<const Crc32cPath> Crc32cPaths() noexcept;

}  // namespace ucmstore
