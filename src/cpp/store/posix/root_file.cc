// SPDX-License-Identifier: Apache-2.0
//
// Printer and parser of UCMSTORE.
#include "store/posix/root_file.h"

#include <spdlog/fmt/fmt.h>

#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <span>

#include "base/checksum.h"
#include "base/hex.h"
#include "store/posix/footer.h"
#include "store/posix/names.h"

namespace ucmstore {
namespace {

constexpr std::string_view kMagic = "ucmstore ";
constexpr std::string_view kCrcField = "crc32c: ";
constexpr std::string_view kIndent = "  ";

std::uint32_t CrcOf(std::string_view text) {
  return Crc32c(std::as_bytes(std::span(text.data(), text.size())));
}

std::string_view TakeLine(std::string_view* rest) {
  const std::size_t end = rest->find('\n');
  const std::string_view line = rest->substr(0, end);
  *rest = end == std::string_view::npos ? std::string_view{} : rest->substr(end + 1);
  return line;
}

template <typename T>
std::optional<T> ParseNumber(std::string_view text, int base = 10) {
  T value{};
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (parsed.ec != std::errc{} || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

template <std::size_t kSize>
bool ParseBytes(std::string_view hex, std::array<std::uint8_t, kSize>* out) {
  if (hex.size() != 2 * kSize) return false;
  for (std::size_t i = 0; i < kSize; ++i) {
    const auto byte = ParseNumber<std::uint8_t>(hex.substr(2 * i, 2), 16);
    if (!byte) return false;
    (*out)[i] = *byte;
  }
  return true;
}

using Fields = std::map<std::string_view, std::string_view>;

// The lines after the first: fields, and the indented lines under "namespace:".
bool ParseFields(std::string_view rest, Fields* fields, std::string* namespace_text) {
  bool in_namespace = false;
  while (!rest.empty()) {
    const std::string_view line = TakeLine(&rest);
    if (in_namespace && line.starts_with(kIndent)) {
      namespace_text->append(line.substr(kIndent.size())).push_back('\n');
      continue;
    }
    in_namespace = line == "namespace:";
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) return false;
    const bool has_value = line.size() > colon + 2;
    (*fields)[line.substr(0, colon)] = has_value ? line.substr(colon + 2) : std::string_view{};
  }
  return true;
}

// The name of the first field that is missing or out of range; "" if none is.
std::string_view FillFrom(const Fields& fields, RootFile* file) {
  const auto text = [&](std::string_view name) {
    const auto found = fields.find(name);
    return found == fields.end() ? std::string_view{} : found->second;
  };
  file->layout.shard_size = ParseNumber<std::uint64_t>(text("shard_size")).value_or(0);
  file->layout.shards_per_block = ParseNumber<std::uint32_t>(text("shards_per_block")).value_or(0);
  file->prefix_digits = ParseNumber<std::uint32_t>(text("prefix_digits")).value_or(0);
  file->content = text("content");
  if (!file->layout.valid()) return "shard_size or shards_per_block";
  if (ParseNumber<std::uint64_t>(text("stride")) != file->layout.stride()) return "stride";
  if (file->content.empty() || file->content.size() > kMaxContentSize) return "content";
  if (file->prefix_digits < kMinPrefixDigits || file->prefix_digits > kMaxPrefixDigits) {
    return "prefix_digits";
  }
  if (!ParseBytes(text("fingerprint"), &file->fingerprint)) return "fingerprint";
  if (!ParseBytes(text("root_id"), &file->root_id)) return "root_id";
  return "";
}

}  // namespace

std::string PrintRootFile(const RootFile& file) {
  std::string text = fmt::format(
      "{}{}\nshard_size: {}\nshards_per_block: {}\nstride: {}\ncontent: {}\nprefix_digits: {}\n"
      "fingerprint: {}\nroot_id: {}\nnamespace:\n",
      kMagic, kRootFormat, file.layout.shard_size, file.layout.shards_per_block,
      file.layout.stride(), file.content, file.prefix_digits, ToHex(file.fingerprint),
      ToHex(file.root_id));
  std::string_view rest = file.namespace_text;
  while (!rest.empty()) text.append(kIndent).append(TakeLine(&rest)).push_back('\n');
  text += fmt::format("{}{:08x}\n", kCrcField, CrcOf(text));
  return text;
}

Result<RootFile> ParseRootFile(std::string_view text) {
  if (!text.starts_with(kMagic)) {
    return Failure(Code::kCorruption,
                   fmt::format("its {} bytes are not those of such a file", text.size()));
  }
  std::string_view rest = text.substr(kMagic.size());
  const auto format = ParseNumber<std::uint32_t>(TakeLine(&rest));
  if (!format || *format == 0) return Failure(Code::kCorruption, "its first line is damaged");
  if (*format > kRootFormat) {
    return Failure(Code::kUnsupported, fmt::format("it has format {}, this program knows up to {}",
                                                   *format, kRootFormat));
  }
  const std::size_t crc_at = text.rfind(kCrcField);
  if (crc_at == std::string_view::npos || text[crc_at - 1] != '\n' ||
      text.substr(crc_at) != fmt::format("{}{:08x}\n", kCrcField, CrcOf(text.substr(0, crc_at)))) {
    return Failure(Code::kCorruption, "its checksum differs: it is cut short, or was edited");
  }
  rest.remove_suffix(text.size() - crc_at);
  RootFile file;
  Fields fields;
  const std::string_view wrong = ParseFields(rest, &fields, &file.namespace_text)
                                     ? FillFrom(fields, &file)
                                     : "a line without a colon";
  if (!wrong.empty()) {
    return Failure(Code::kCorruption, fmt::format("missing or out of range: {}", wrong));
  }
  return file;
}

std::string Difference(const RootFile& wanted, const RootFile& found) {
  std::string text;
  const auto compare = [&text](std::string_view what, const auto& there, const auto& here) {
    if (there == here) return;
    text +=
        fmt::format("{}{} is {} there, {} asked for", text.empty() ? "" : "; ", what, there, here);
  };
  compare("shard_size", found.layout.shard_size, wanted.layout.shard_size);
  compare("shards_per_block", found.layout.shards_per_block, wanted.layout.shards_per_block);
  compare("content", found.content, wanted.content);
  if (found.fingerprint != wanted.fingerprint) {
    compare("the namespace's fingerprint", ToHex(found.fingerprint).substr(0, 16) + "...",
            ToHex(wanted.fingerprint).substr(0, 16) + "...");
  }
  return text;
}

std::array<std::uint8_t, 16> NewRootId() {
  std::array<std::uint8_t, 16> id{};
  const std::uint64_t high = NewWriterId();
  const std::uint64_t low = NewWriterId();
  std::memcpy(id.data(), &high, sizeof(high));
  std::memcpy(id.data() + sizeof(high), &low, sizeof(low));
  return id;
}

}  // namespace ucmstore
