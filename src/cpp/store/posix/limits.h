// SPDX-License-Identifier: Apache-2.0
//
// Limits: how much of a root's file system its blocks may take, and at which use reclaim begins and
// ends. The text of `.capacity`, in which the stores of a root agree on them: printer and parser
// side by side. PERSISTED while a store lives; docs/format.md. Pure values; thread-safe.
//
//   ucmstore capacity 1
//   capacity: 2199023255552         bytes, or: auto
//   high_mark: 97                   per cent of it
//   low_mark: 95
//   crc32c: <8 hex>                 of all that is before this line; what follows it is of no value
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace ucmstore {

inline constexpr std::size_t kMaxLimitsText = 256;

struct Limits {
  static constexpr std::uint64_t kAuto = UINT64_MAX;  // kAutoPercent of the file system
  static constexpr std::uint64_t kAutoPercent = 80;

  std::uint64_t capacity_bytes = kAuto;
  std::uint32_t high_mark = 97;
  std::uint32_t low_mark = 95;

  friend bool operator==(const Limits&, const Limits&) = default;

  // 0: the file system does not say how large it is, and nothing else was said.
  [[nodiscard]] std::uint64_t BytesOn(std::uint64_t file_system_bytes) const noexcept {
    return capacity_bytes == kAuto ? file_system_bytes / 100 * kAutoPercent : capacity_bytes;
  }
  // A mark in bytes, without overflow.
  [[nodiscard]] static std::uint64_t PerCent(std::uint64_t bytes, std::uint32_t percent) noexcept {
    return bytes / 100 * percent + bytes % 100 * percent / 100;
  }
};

[[nodiscard]] std::string PrintLimits(const Limits& limits);
// kCorruption: half-written, or no such text. kUnsupported: a newer format.
[[nodiscard]] Result<Limits> ParseLimits(std::string_view text);
// "capacity=2199023255552, high_mark=97, low_mark=95"
[[nodiscard]] std::string LimitsInWords(const Limits& limits);

}  // namespace ucmstore
