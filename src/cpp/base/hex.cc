// SPDX-License-Identifier: Apache-2.0
//
// Hex digits both ways, by table. See hex.h.
#include "base/hex.h"

#include <cstring>

namespace ucmstore {
namespace {

constexpr char kDigits[] = "0123456789abcdef";
constexpr std::uint8_t kBad = 0xFF;

// From a character to its value; kBad for everything that is not a lower-case hex digit.
constexpr std::array<std::uint8_t, 256> MakeValues() {
  std::array<std::uint8_t, 256> values{};
  values.fill(kBad);
  for (std::uint8_t i = 0; i < 16; ++i) values[static_cast<unsigned char>(kDigits[i])] = i;
  return values;
}
constexpr auto kValues = MakeValues();

// The two digits of each byte.
constexpr std::array<std::array<char, 2>, 256> MakePairs() {
  std::array<std::array<char, 2>, 256> pairs{};
  for (std::size_t i = 0; i < 256; ++i) pairs[i] = {kDigits[i >> 4], kDigits[i & 15U]};
  return pairs;
}
constexpr auto kPairs = MakePairs();

void WriteByte(std::uint8_t byte, char* out) noexcept { std::memcpy(out, &kPairs[byte], 2); }

}  // namespace

void WriteHex(const BlockId& id, char* out) noexcept {
  for (std::size_t i = 0; i < id.bytes.size(); ++i) {
    WriteByte(std::to_integer<std::uint8_t>(id.bytes[i]), out + 2 * i);
  }
}

std::string ToHex(const BlockId& id) {
  std::string text(kHexIdSize, '\0');
  WriteHex(id, text.data());
  return text;
}

std::string ToHex(std::span<const std::uint8_t> bytes) {
  std::string text(2 * bytes.size(), '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) WriteByte(bytes[i], text.data() + 2 * i);
  return text;
}

std::optional<BlockId> ParseHex(std::string_view text) noexcept {
  if (text.size() != kHexIdSize) return std::nullopt;
  BlockId id;
  for (std::size_t i = 0; i < id.bytes.size(); ++i) {
    const std::uint8_t high = kValues[static_cast<unsigned char>(text[2 * i])];
    const std::uint8_t low = kValues[static_cast<unsigned char>(text[2 * i + 1])];
    if (high == kBad || low == kBad) return std::nullopt;
    id.bytes[i] = static_cast<std::byte>(high << 4 | low);
  }
  return id;
}

}  // namespace ucmstore
