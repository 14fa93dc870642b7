// SPDX-License-Identifier: Apache-2.0
//
// Printer and parser of `.capacity`.
#include "store/posix/limits.h"

#include <spdlog/fmt/fmt.h>

#include <charconv>
#include <span>

#include "base/checksum.h"

namespace ucmstore {
namespace {

constexpr std::string_view kMagic = "ucmstore capacity ";
constexpr std::uint64_t kFormat = 1;
constexpr std::string_view kCrcField = "crc32c: ";
constexpr std::string_view kAutoWord = "auto";

std::string CrcLine(std::string_view text) {
  return fmt::format("{}{:08x}\n", kCrcField,
                     Crc32c(std::as_bytes(std::span(text.data(), text.size()))));
}

// Takes "<name><number>\n" off the front. False: something else is there.
bool TakeField(std::string_view* rest, std::string_view name, std::uint64_t* value) {
  if (!rest->starts_with(name)) return false;
  rest->remove_prefix(name.size());
  const std::size_t end = rest->find('\n');
  if (end == std::string_view::npos) return false;
  const std::string_view text = rest->substr(0, end);
  rest->remove_prefix(end + 1);
  if (text == kAutoWord) {
    *value = Limits::kAuto;
    return true;
  }
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), *value);
  return parsed.ec == std::errc{} && parsed.ptr == text.data() + text.size();
}

std::string CapacityText(std::uint64_t bytes) {
  return bytes == Limits::kAuto ? std::string(kAutoWord) : fmt::format("{}", bytes);
}

}  // namespace

std::string PrintLimits(const Limits& limits) {
  std::string text =
      fmt::format("{}{}\ncapacity: {}\nhigh_mark: {}\nlow_mark: {}\n", kMagic, kFormat,
                  CapacityText(limits.capacity_bytes), limits.high_mark, limits.low_mark);
  text += CrcLine(text);
  return text;
}

Result<Limits> ParseLimits(std::string_view text) {
  const auto damaged = [] { return Failure(Code::kCorruption, "it is no whole text of limits"); };
  std::string_view rest = text;
  std::uint64_t format = 0;
  if (!TakeField(&rest, kMagic, &format) || format == 0) return damaged();
  if (format > kFormat) {
    return Failure(Code::kUnsupported,
                   fmt::format("it has format {}, this program knows up to {}", format, kFormat));
  }
  const std::size_t crc_at = text.find(kCrcField);
  if (crc_at == std::string_view::npos ||
      !text.substr(crc_at).starts_with(CrcLine(text.substr(0, crc_at)))) {
    return damaged();
  }
  Limits limits;
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  const bool whole = TakeField(&rest, "capacity: ", &limits.capacity_bytes) &&
                     TakeField(&rest, "high_mark: ", &high) && TakeField(&rest, "low_mark: ", &low);
  if (!whole || limits.capacity_bytes == 0 || high > 100 || low >= high) return damaged();
  limits.high_mark = static_cast<std::uint32_t>(high);
  limits.low_mark = static_cast<std::uint32_t>(low);
  return limits;
}

std::string LimitsInWords(const Limits& limits) {
  return fmt::format("capacity={}, high_mark={}, low_mark={}", CapacityText(limits.capacity_bytes),
                     limits.high_mark, limits.low_mark);
}

}  // namespace ucmstore
