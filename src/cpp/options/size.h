// SPDX-License-Identifier: Apache-2.0
//
// Sizes in bytes, as people write them: "512KiB", "1.5 GiB", "2TB", "4096". Parser and printer side
// by side. Pure functions; thread-safe.
//
//   size   = number [ spaces ] [ unit ]
//   number = digit { digit } [ "." digit { digit } ]
//   unit   = "B" | ( "K" | "M" | "G" | "T" | "P" | "E" ) ( "iB" | "B" )     KiB = 1024, KB = 1000
//
// Letter case of a unit is free, but for "Kb", "Mb" ..., which mean bits elsewhere and are refused.
// So is a lone "K", "M" ..., which could be either. A fraction must give whole bytes, exactly.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace ucmstore {

inline constexpr std::uint64_t kMaxSize = INT64_MAX;  // OptionValueV1::integer holds it

// The message is a rule without its subject: "a size cannot be negative". No unit: bytes.
[[nodiscard]] Result<std::uint64_t> ParseSize(std::string_view text);

// True for digits alone: a size whose unit somebody may have forgotten.
[[nodiscard]] bool IsBareNumber(std::string_view text) noexcept;

// The shortest exact form with a binary unit: "512KiB", "1000B". ParseSize gives it back.
[[nodiscard]] std::string FormatSize(std::uint64_t bytes);

}  // namespace ucmstore
