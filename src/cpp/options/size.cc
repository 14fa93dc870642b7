// SPDX-License-Identifier: Apache-2.0
//
// Sizes in exact integers; no floating point, so "0.1GB" is 100,000,000 and not nearly so.
#include "options/size.h"

#include <array>

#include "options/words.h"

namespace ucmstore {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr std::size_t kMaxFractionDigits = 18;  // 10^18 * 2^60 < 2^128
constexpr std::string_view kPrefixes = "KMGTPE";
constexpr std::string_view kExample = "write it as 4096B, 64KiB, 1.5GiB or 2GB";

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
char Upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

std::string_view Trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::string_view TakeDigits(std::string_view& text) {
  std::size_t size = 0;
  while (size < text.size() && IsDigit(text[size])) ++size;
  const std::string_view digits = text.substr(0, size);
  text.remove_prefix(size);
  return digits;
}

std::unexpected<Status> Refuse(std::string_view rule) {
  return Failure(Code::kInvalidArgument, rule);
}

Result<std::uint64_t> ParseUnit(std::string_view unit) {
  if (unit.empty() || unit == "B" || unit == "b") return 1;
  const std::size_t power = kPrefixes.find(Upper(unit[0]));
  const std::string_view rest = unit.substr(1);
  const bool binary = rest.size() == 2 && Upper(rest[0]) == 'I' && Upper(rest[1]) == 'B';
  const bool decimal = rest.size() == 1 && Upper(rest[0]) == 'B';
  const bool lone = rest.empty() || (rest.size() == 1 && Upper(rest[0]) == 'I');
  if (power == std::string_view::npos || (!binary && !decimal && !lone)) {
    return Refuse(Quote(unit) + " is no unit of bytes; " + std::string(kExample));
  }
  const char prefix = kPrefixes[power];
  if (lone) {
    return Refuse(Quote(unit) + " is half a unit; write " + prefix + "iB (powers of 1024) or " +
                  prefix + "B (powers of 1000)");
  }
  if (decimal && unit == std::string{prefix, 'b'}) {
    return Refuse(Quote(unit) + " reads as bits; write " + prefix + "iB (powers of 1024) or " +
                  prefix + "B (powers of 1000)");
  }
  std::uint64_t factor = 1;
  for (std::size_t i = 0; i <= power; ++i) factor *= binary ? 1024U : 1000U;
  return factor;
}

Result<std::uint64_t> TooLarge() { return Refuse("the largest size is 8EiB - 1 byte"); }

}  // namespace

Result<std::uint64_t> ParseSize(std::string_view text) {
  std::string_view rest = Trim(text);
  if (rest.empty()) return Refuse("a size is missing; " + std::string(kExample));
  if (rest.front() == '-') return Refuse("a size cannot be negative");
  const std::string_view whole_digits = TakeDigits(rest);
  std::string_view fraction_digits;
  const bool has_point = !rest.empty() && rest.front() == '.';
  if (has_point) {
    rest.remove_prefix(1);
    fraction_digits = TakeDigits(rest);
  }
  if (whole_digits.empty() || (has_point && fraction_digits.empty())) {
    return Refuse("not a size; " + std::string(kExample));
  }
  const Result<std::uint64_t> unit = ParseUnit(Trim(rest));
  if (!unit) return unit;

  Wide whole = 0;
  for (const char digit : whole_digits) {
    whole = whole * 10 + static_cast<unsigned>(digit - '0');
    if (whole > kMaxSize) return TooLarge();
  }
  while (!fraction_digits.empty() && fraction_digits.back() == '0') {
    fraction_digits.remove_suffix(1);
  }
  if (fraction_digits.size() > kMaxFractionDigits) {
    return Refuse("more than 18 digits after the point");
  }
  Wide fraction = 0;
  Wide scale = 1;
  for (const char digit : fraction_digits) {
    fraction = fraction * 10 + static_cast<unsigned>(digit - '0');
    scale *= 10;
  }
  fraction *= *unit;
  if (fraction % scale != 0) return Refuse("not a whole number of bytes");
  const Wide bytes = whole * *unit + fraction / scale;
  if (bytes > kMaxSize) return TooLarge();
  return static_cast<std::uint64_t>(bytes);
}

bool IsBareNumber(std::string_view text) noexcept {
  text = Trim(text);
  for (const char c : text) {
    if (!IsDigit(c)) return false;
  }
  return !text.empty();
}

std::string FormatSize(std::uint64_t bytes) {
  std::size_t power = 0;
  while (bytes != 0 && bytes % 1024 == 0 && power < kPrefixes.size()) {
    bytes /= 1024;
    ++power;
  }
  std::string text = std::to_string(bytes);
  if (power == 0) return text + "B";
  return text + kPrefixes[power - 1] + "iB";
}

}  // namespace ucmstore
