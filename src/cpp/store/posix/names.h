// SPDX-License-Identifier: Apache-2.0
//
// Names of files in a namespace's folder: the only place where they are printed and parsed.
// PERSISTED: docs/format.md. Pure functions on stack memory; thread-safe.
//
//   UCMSTORE                                              root_file.h
//   writers/<writer>                                      the mark of a writer
//   writers/<writer>.tmp                                  a file in the making; nothing of value
//   <p>/<id>                                              a block
//   <p>/<id>.<writer>.<attempt>.activated                 a block being written
//   <p>/<id>.<writer>.moved                               a block on its way aside, for an instant
//   <p>/<id>.corrupt                                      a block set aside; the last one wins
//
//   <id>       32 hex digits, the block id          <p>        its first digits, 1 to 5 of them
//   <writer>   16 hex digits, random                <attempt>  1 to 16 hex digits, counted up
// All digits are lower case. Everything else is foreign: never read, moved or removed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "ucmstore/types.h"

namespace ucmstore {

inline constexpr const char* kRootFileName = "UCMSTORE";
inline constexpr const char* kWritersName = "writers";
inline constexpr std::uint32_t kMinPrefixDigits = 1;
inline constexpr std::uint32_t kMaxPrefixDigits = 5;

// Random; 0 is never a writer.
using WriterId = std::uint64_t;
[[nodiscard]] WriterId NewWriterId();

// A name relative to the namespace's folder, or a part of one; always terminated.
class Name {
 public:
  static constexpr std::size_t kRoom = 128;

  [[nodiscard]] const char* c_str() const noexcept { return text_.data(); }
  [[nodiscard]] std::string_view text() const noexcept { return {text_.data(), size_}; }

 private:
  friend class NamePrinter;
  std::array<char, kRoom> text_;  // beyond size_ + 1 not initialised: a lookup prints thousands
  std::size_t size_ = 0;
};

// "<p>", "<p>/<id>", ...
[[nodiscard]] Name FolderName(const BlockId& id, std::uint32_t prefix_digits) noexcept;
[[nodiscard]] Name BlockName(const BlockId& id, std::uint32_t prefix_digits) noexcept;
[[nodiscard]] Name ActivatedName(const BlockId& id, std::uint32_t prefix_digits, WriterId writer,
                                 std::uint64_t attempt) noexcept;
[[nodiscard]] Name MovedName(const BlockId& id, std::uint32_t prefix_digits, WriterId by) noexcept;
[[nodiscard]] Name SetAsideName(const BlockId& id, std::uint32_t prefix_digits) noexcept;
[[nodiscard]] Name MarkName(WriterId writer) noexcept;
[[nodiscard]] Name TemporaryName(WriterId writer) noexcept;
[[nodiscard]] Name WriterText(WriterId writer) noexcept;  // the 16 digits alone

enum class NameKind : std::uint8_t { kForeign, kBlock, kActivated, kMoved, kSetAside };

struct ParsedName {
  NameKind kind = NameKind::kForeign;
  BlockId id{};
  WriterId writer = 0;  // of kActivated and kMoved
};

// A name inside the prefix folder `folder`. Foreign if it belongs into another one.
[[nodiscard]] ParsedName ParseBlockFile(std::string_view folder, std::string_view name) noexcept;
[[nodiscard]] bool IsPrefixFolder(std::string_view name, std::uint32_t prefix_digits) noexcept;

struct ParsedMark {
  WriterId writer = 0;  // 0: foreign
  bool temporary = false;
};
// A name inside writers/.
[[nodiscard]] ParsedMark ParseMark(std::string_view name) noexcept;

// Of several roots, the one of the highest score keeps a block. PERSISTED. The seed is made once of
// the id in the root's UCMSTORE, so a root's blocks stay its own wherever it is in the list, and
// however many others there are.
[[nodiscard]] std::uint64_t RootSeed(const std::array<std::uint8_t, 16>& root_id) noexcept;
[[nodiscard]] std::uint64_t RootScore(const BlockId& id, std::uint64_t seed) noexcept;

}  // namespace ucmstore
