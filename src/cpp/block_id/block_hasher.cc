// SPDX-License-Identifier: Apache-2.0
//
// The chain of block ids over tokens. See block_hasher.h; the bytes are described in
// docs/identity.md.
#include "block_id/block_hasher.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "block_id/identity_fields.h"

namespace ucmstore {
namespace {

constexpr std::uint64_t kMaxPosition = std::numeric_limits<std::uint64_t>::max();

Status Refuse(std::string_view text) { return Status::Error(Code::kInvalidArgument, text); }

// The namespace's own block length; 0 if it has none.
Result<std::uint32_t> BlockTokensOf(const Namespace& name_space) {
  const auto field = name_space.fields().find("block_tokens");
  if (field == name_space.fields().end()) return std::uint32_t{0};
  const std::string& text = field->second;
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value == 0) {
    return std::unexpected(Refuse("block hasher: the namespace's block_tokens is \"" + text +
                                  "\", must be a number from 1 to 4294967295"));
  }
  return value;
}

// Hashes one block's tokens, each as 8 bytes, little-endian.
template <typename Token>
void AddTokens(Sha256& hash, std::span<const Token> tokens) noexcept {
  AddFieldHead(hash, IdentityField::kTokens, tokens.size() * 8);
  if constexpr (sizeof(Token) == 8 && std::endian::native == std::endian::little) {
    hash.Update(std::as_bytes(tokens));
    return;
  }
  constexpr std::size_t kAtOnce = 64;
  std::array<std::array<std::byte, 8>, kAtOnce> wide;
  while (!tokens.empty()) {
    const std::size_t count = std::min(tokens.size(), kAtOnce);
    for (std::size_t i = 0; i < count; ++i) {
      wide[i] = LittleEndian64(static_cast<std::uint64_t>(tokens[i]));
    }
    hash.Update(std::as_bytes(std::span(wide).first(count)));
    tokens = tokens.subspan(count);
  }
}

void AddMedia(Sha256& hash, const MediaItem& item) noexcept {
  AddFieldHead(hash, IdentityField::kMedia, 16 + item.content_hash.size());
  hash.Update(LittleEndian64(item.offset));
  hash.Update(LittleEndian64(item.length));
  hash.Update(item.content_hash);
}

// The items in one order, whatever order they were given in; or what is wrong with one of them.
Result<std::vector<MediaItem>> SortedMedia(std::span<const MediaItem> media) {
  for (std::size_t i = 0; i < media.size(); ++i) {
    const MediaItem& item = media[i];
    const std::string where = "block hasher: media item " + std::to_string(i) + ": ";
    if (item.content_hash.empty()) return std::unexpected(Refuse(where + "no content hash"));
    if (item.length == 0) return std::unexpected(Refuse(where + "its length is 0 tokens"));
    if (item.offset > kMaxPosition - item.length) {
      return std::unexpected(Refuse(where + "offset " + std::to_string(item.offset) + " + length " +
                                    std::to_string(item.length) + " is beyond any sequence"));
    }
  }
  std::vector<MediaItem> sorted(media.begin(), media.end());
  std::ranges::sort(sorted, {}, [](const MediaItem& item) {
    return std::tuple(item.offset, item.length, item.content_hash);
  });
  return sorted;
}

}  // namespace

Result<BlockHasher> BlockHasher::Make(const Namespace& name_space, std::uint32_t block_tokens,
                                      const RequestTraits& traits) {
  const auto own = BlockTokensOf(name_space);
  if (!own) return std::unexpected(own.error());
  if (block_tokens == 0) block_tokens = *own;
  if (block_tokens == 0) {
    return std::unexpected(Refuse(
        "block hasher: neither block_tokens nor the namespace's field block_tokens is given"));
  }
  if (*own % block_tokens != 0) {
    return std::unexpected(Refuse("block hasher: the namespace's block_tokens, " +
                                  std::to_string(*own) + ", is not a multiple of block_tokens, " +
                                  std::to_string(block_tokens)));
  }

  Sha256 context;
  AddField(context, IdentityField::kDomain, kChainDomain);
  AddField(context, IdentityField::kFingerprint,
           std::as_bytes(std::span(name_space.fingerprint())));
  AddField(context, IdentityField::kBlockTokens, block_tokens);
  if (traits.salt) AddField(context, IdentityField::kSalt, *traits.salt);
  if (traits.adapter) AddField(context, IdentityField::kAdapter, *traits.adapter);
  const Sha256Digest digest = context.Finish();

  BlockHasher hasher(block_tokens);
  hasher.begin_.Update(std::as_bytes(std::span(digest)));
  return hasher;
}

template <typename Token>
Status BlockHasher::HashTokens(std::span<const Token> tokens, std::span<const MediaItem> media,
                               const ChainEnd& after, std::span<BlockId> ids) const {
  const std::size_t count = tokens.size() / block_tokens_;
  if (ids.size() < count) {
    return Refuse("block hasher: room for " + std::to_string(ids.size()) + " ids, " +
                  std::to_string(count) + " are due");
  }
  if (after.blocks > kMaxPosition / block_tokens_ - count) {
    return Refuse("block hasher: " + std::to_string(after.blocks) +
                  " preceding blocks are more than any sequence has");
  }
  const auto sorted = SortedMedia(media);
  if (!sorted) return sorted.error();

  std::size_t first_item = 0;  // those before it end before the block
  BlockId parent = after.last;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t begin = (after.blocks + i) * block_tokens_;
    const std::uint64_t end = begin + block_tokens_;
    Sha256 hash = begin_;
    if (begin != 0) AddField(hash, IdentityField::kParent, parent.bytes);
    AddTokens(hash, tokens.subspan(i * block_tokens_, block_tokens_));
    const auto ends_before = [begin](const MediaItem& item) {
      return item.offset + item.length <= begin;
    };
    while (first_item < sorted->size() && ends_before((*sorted)[first_item])) ++first_item;
    for (std::size_t k = first_item; k < sorted->size() && (*sorted)[k].offset < end; ++k) {
      if (!ends_before((*sorted)[k])) AddMedia(hash, (*sorted)[k]);
    }
    parent = FinishId(hash);
    ids[i] = parent;
  }
  return Status::Ok();
}

Status BlockHasher::Hash(std::span<const std::int64_t> tokens, std::span<const MediaItem> media,
                         const ChainEnd& after, std::span<BlockId> ids) const {
  return HashTokens(tokens, media, after, ids);
}

Status BlockHasher::Hash(std::span<const std::uint32_t> tokens, std::span<const MediaItem> media,
                         const ChainEnd& after, std::span<BlockId> ids) const {
  return HashTokens(tokens, media, after, ids);
}

}  // namespace ucmstore
