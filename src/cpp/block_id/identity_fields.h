// SPDX-License-Identifier: Apache-2.0
//
// The encoding of what identities are hashed from: fields, each a number that says what it is, its
// length, and its bytes, so that two different lists of fields never give the same bytes.
// PERSISTENT: ids name blocks on disk. A change here is a new domain name, or every stored block is
// lost. Described byte by byte in docs/identity.md. Not synchronised.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "block_id/sha256.h"
#include "ucmstore/types.h"

namespace ucmstore {

inline constexpr std::string_view kDeriveDomain = "ucmstore/derive/1";
inline constexpr std::string_view kChainDomain = "ucmstore/chain/1";

// A number, once given, is never used for anything else.
enum class IdentityField : std::uint8_t {
  kDomain = 1,
  kFingerprint = 2,
  kTag = 3,
  kWidth = 4,
  kEvery = 5,
  kBlockTokens = 6,
  kSalt = 7,
  kAdapter = 8,
  kParent = 9,
  kTokens = 10,
  kMedia = 11,
};

// Numbers are hashed as 8 bytes, little-endian.
[[nodiscard]] inline std::array<std::byte, 8> LittleEndian64(std::uint64_t value) noexcept {
  if constexpr (std::endian::native == std::endian::big) value = __builtin_bswap64(value);
  return std::bit_cast<std::array<std::byte, 8>>(value);
}

// What comes before the `size` bytes of a field.
inline void AddFieldHead(Sha256& hash, IdentityField field, std::uint64_t size) noexcept {
  std::array<std::byte, 9> head;
  head[0] = static_cast<std::byte>(field);
  const auto length = LittleEndian64(size);
  std::memcpy(head.data() + 1, length.data(), length.size());
  hash.Update(head);
}
inline void AddField(Sha256& hash, IdentityField field, std::span<const std::byte> bytes) noexcept {
  AddFieldHead(hash, field, bytes.size());
  hash.Update(bytes);
}
inline void AddField(Sha256& hash, IdentityField field, std::string_view text) noexcept {
  AddField(hash, field, std::as_bytes(std::span(text)));
}
inline void AddField(Sha256& hash, IdentityField field, std::uint64_t number) noexcept {
  AddField(hash, field, LittleEndian64(number));
}

// A block id is the first 16 of the 32 bytes of a digest.
[[nodiscard]] inline BlockId FinishId(Sha256& hash) noexcept {
  const Sha256Digest digest = hash.Finish();
  BlockId id;
  std::memcpy(id.bytes.data(), digest.data(), id.bytes.size());
  return id;
}

}  // namespace ucmstore
