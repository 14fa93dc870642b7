// SPDX-License-Identifier: Apache-2.0
//
// Printer and parser of file names.
#include "store/posix/names.h"

#include <sys/random.h>

#include <cassert>
#include <charconv>
#include <cstring>
#include <random>

#include "base/hex.h"

namespace ucmstore {

// Appends to a name. Every name below is far shorter than the room: the longest has
// 5 + 1 + 32 + 1 + 16 + 1 + 16 + 10 = 82 characters.
class NamePrinter {
 public:
  NamePrinter& Text(std::string_view text) noexcept {
    assert(name_.size_ + text.size() < Name::kRoom);
    std::memcpy(name_.text_.data() + name_.size_, text.data(), text.size());
    name_.size_ += text.size();
    return *this;
  }
  NamePrinter& Id(const BlockId& id, std::uint32_t digits = kHexIdSize) noexcept {
    WriteHex(id, name_.text_.data() + name_.size_);
    name_.size_ += digits;
    return *this;
  }
  NamePrinter& File(const BlockId& id, std::uint32_t prefix_digits) noexcept {
    return Id(id, prefix_digits).Text("/").Id(id);
  }
  NamePrinter& Hex(std::uint64_t number, std::size_t width) noexcept {
    std::array<char, 16> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number, 16).ptr;
    const std::string_view text(digits.data(), static_cast<std::size_t>(end - digits.data()));
    if (text.size() < width) Text(std::string_view("0000000000000000").substr(text.size()));
    return Text(text);
  }
  [[nodiscard]] Name Done() noexcept {
    name_.text_[name_.size_] = '\0';
    return name_;
  }

 private:
  Name name_;
};

namespace {

constexpr std::size_t kWriterDigits = 16;

bool IsHexDigit(char c) noexcept { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

bool AllHex(std::string_view text) noexcept {
  for (const char c : text) {
    if (!IsHexDigit(c)) return false;
  }
  return !text.empty();
}

// 0 if it is none.
WriterId ParseWriter(std::string_view text) noexcept {
  WriterId writer = 0;
  if (text.size() != kWriterDigits || !AllHex(text)) return 0;
  std::from_chars(text.data(), text.data() + text.size(), writer, 16);
  return writer;
}

// Takes "<text>" off the front of `rest`, up to the next dot, which goes as well.
std::string_view TakeField(std::string_view* rest) noexcept {
  const std::size_t dot = rest->find('.');
  const std::string_view field = rest->substr(0, dot);
  *rest = dot == std::string_view::npos ? std::string_view{} : rest->substr(dot + 1);
  return field;
}

std::uint64_t Mix(std::uint64_t x) noexcept {  // the finaliser of splitmix64
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

// 16 bytes in 8; both halves are read little-endian.
std::uint64_t Fold(const void* bytes) noexcept {
  std::array<std::uint64_t, 2> half;
  std::memcpy(half.data(), bytes, sizeof(half));
  return Mix(Mix(half[0] + 0x9E3779B97F4A7C15U) ^ half[1]);
}

}  // namespace

WriterId NewWriterId() {
  WriterId writer = 0;
  while (writer == 0) {
    if (::getrandom(&writer, sizeof(writer), 0) == sizeof(writer)) continue;
    std::random_device device;  // very old kernels, seccomp
    writer = (std::uint64_t{device()} << 32) | device();
  }
  return writer;
}

Name FolderName(const BlockId& id, std::uint32_t prefix_digits) noexcept {
  return NamePrinter().Id(id, prefix_digits).Done();
}

Name BlockName(const BlockId& id, std::uint32_t prefix_digits) noexcept {
  return NamePrinter().File(id, prefix_digits).Done();
}

Name ActivatedName(const BlockId& id, std::uint32_t prefix_digits, WriterId writer,
                   std::uint64_t attempt) noexcept {
  return NamePrinter()
      .File(id, prefix_digits)
      .Text(".")
      .Hex(writer, kWriterDigits)
      .Text(".")
      .Hex(attempt, 1)
      .Text(".activated")
      .Done();
}

Name MovedName(const BlockId& id, std::uint32_t prefix_digits, WriterId by) noexcept {
  NamePrinter printer;
  return printer.File(id, prefix_digits).Text(".").Hex(by, kWriterDigits).Text(".moved").Done();
}

Name SetAsideName(const BlockId& id, std::uint32_t prefix_digits) noexcept {
  return NamePrinter().File(id, prefix_digits).Text(".corrupt").Done();
}

Name MarkName(WriterId writer) noexcept {
  return NamePrinter().Text(kWritersName).Text("/").Hex(writer, kWriterDigits).Done();
}

Name TemporaryName(WriterId writer) noexcept {
  NamePrinter printer;
  return printer.Text(kWritersName).Text("/").Hex(writer, kWriterDigits).Text(".tmp").Done();
}

Name WriterText(WriterId writer) noexcept {
  return NamePrinter().Hex(writer, kWriterDigits).Done();
}

ParsedName ParseBlockFile(std::string_view folder, std::string_view name) noexcept {
  const ParsedName foreign;
  if (!name.starts_with(folder)) return foreign;
  std::string_view rest = name;
  const std::optional<BlockId> id = ParseHex(TakeField(&rest));
  if (!id) return foreign;
  if (name.size() == kHexIdSize) return {.kind = NameKind::kBlock, .id = *id};
  if (rest == "corrupt") return {.kind = NameKind::kSetAside, .id = *id};
  const WriterId writer = ParseWriter(TakeField(&rest));
  if (writer == 0) return foreign;
  if (rest == "moved") return {.kind = NameKind::kMoved, .id = *id, .writer = writer};
  const std::string_view attempt = TakeField(&rest);
  if (attempt.size() > 16 || !AllHex(attempt) || rest != "activated") return foreign;
  return {.kind = NameKind::kActivated, .id = *id, .writer = writer};
}

bool IsPrefixFolder(std::string_view name, std::uint32_t prefix_digits) noexcept {
  return name.size() == prefix_digits && AllHex(name);
}

ParsedMark ParseMark(std::string_view name) noexcept {
  constexpr std::string_view kTemporary = ".tmp";
  const bool temporary = name.ends_with(kTemporary);
  if (temporary) name.remove_suffix(kTemporary.size());
  return {.writer = ParseWriter(name), .temporary = temporary};
}

std::uint64_t RootSeed(const std::array<std::uint8_t, 16>& root_id) noexcept {
  return Fold(root_id.data());
}

std::uint64_t RootScore(const BlockId& id, std::uint64_t seed) noexcept {
  return Mix(Fold(id.bytes.data()) ^ seed);
}

}  // namespace ucmstore
