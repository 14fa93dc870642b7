// SPDX-License-Identifier: Apache-2.0
//
// Namespace: a fingerprint of everything that makes bytes mean the same: model content, dtype,
// layout, block length in tokens; never the rank. Blocks of different namespaces never meet: the
// fingerprint is folded into every derived id and written beside the data. Immutable; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "ucmstore/types.h"

namespace ucmstore {

class UCMSTORE_EXPORT Namespace {
 public:
  // `fields`: name to value, any text without a NUL (names: [a-z][a-z0-9_]*). Every field, known or
  // not, goes into the fingerprint; an absent field differs from an empty one. Order is irrelevant.
  [[nodiscard]] static Result<Namespace> FromFields(
      const std::map<std::string, std::string>& fields);

  static constexpr std::size_t kMaxText = 16384;

  [[nodiscard]] const std::map<std::string, std::string>& fields() const noexcept {
    return fields_;
  }
  // One line "name: value\n" for each field, sorted by name; in values \ is written \\, a line feed
  // \n, any other control character \x and two digits. The same text means the same fields.
  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  [[nodiscard]] const std::array<std::uint8_t, 32>& fingerprint() const noexcept {
    return fingerprint_;  // SHA-256 of text()
  }
  // A folder name: the field "model" made harmless ([A-Za-z0-9._-], at most 60, no leading dot),
  // then '-' and 16 hex digits of the fingerprint. Never leaves a root, whatever the fields hold.
  [[nodiscard]] const std::string& label() const noexcept { return label_; }

  // Turns an engine's own chained hashes, `width` bytes each (1 ..= 1024), into block ids, many at
  // a time. Takes each `every`-th hash (at least 1), the last of each group, since it already
  // covers the group; a rest is dropped. ids must have room for hashes.size() / width / every.
  // `tag` keeps apart what shares a hash but not its bytes: a rank (Layout::Tag), a layer group; ""
  // if nothing. The id depends on fingerprint, tag, width, every and hash; its exact bytes:
  // docs/identity.md.
  [[nodiscard]] Status Derive(std::span<const std::uint8_t> hashes, std::uint32_t width,
                              std::uint32_t every, std::string_view tag,
                              std::span<BlockId> ids) const;

 private:
  Namespace() = default;
  std::map<std::string, std::string> fields_;
  std::string text_;
  std::string label_;
  std::array<std::uint8_t, 32> fingerprint_{};
};

}  // namespace ucmstore
