// SPDX-License-Identifier: Apache-2.0
//
// Block ids as 32 lower-case hex digits: the name of a block in files, logs and errors. The two
// functions are inverse to each other; nothing else in the tree prints or parses an id.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ucmstore/types.h"

namespace ucmstore {

inline constexpr std::size_t kHexIdSize = 32;

// Writes exactly kHexIdSize digits to `out`, no terminator.
void WriteHex(const BlockId& id, char* out) noexcept;
[[nodiscard]] std::string ToHex(const BlockId& id);
[[nodiscard]] std::string ToHex(std::span<const std::uint8_t> bytes);
// Exactly 32 digits, lower case only: a file name has one spelling. Else nothing.
[[nodiscard]] std::optional<BlockId> ParseHex(std::string_view text) noexcept;

}  // namespace ucmstore
