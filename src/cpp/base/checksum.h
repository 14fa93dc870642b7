// SPDX-License-Identifier: Apache-2.0
//
// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78; RFC 3720, section 12.1), as block files
// keep it for each shard. Uses the CPU's instruction where there is one (found at run time) and
// three interleaved streams for long inputs; every path gives the same value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ucmstore {

// The checksum of `bytes` appended to data whose checksum is `crc`; start with 0.
[[nodiscard]] std::uint32_t Crc32c(std::span<const std::byte> bytes,
                                   std::uint32_t crc = 0) noexcept;

// The table-driven path, for tests that compare the two.
[[nodiscard]] std::uint32_t Crc32cPortable(std::span<const std::byte> bytes,
                                           std::uint32_t crc = 0) noexcept;

}  // namespace ucmstore
