// SPDX-License-Identifier: Apache-2.0
//
// BlockHasher: block ids for engines that have none of their own. It cuts a sequence of tokens into
// blocks and gives each full block an id that depends on the namespace, on the request (salt,
// adapter), on every token up to the block's end, and on the images or other media among them; on
// nothing else, so all processes and machines agree. The exact bytes: docs/identity.md.
// Immutable; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "block_id/namespace.h"
#include "block_id/sha256.h"
#include "ucmstore/types.h"

namespace ucmstore {

// What holds for a whole request and changes its blocks. Each is optional, and one given as ""
// differs from one not given. Any bytes.
struct RequestTraits {
  std::optional<std::string_view> salt;     // keeps apart those who must not share, such as tenants
  std::optional<std::string_view> adapter;  // what identifies the adapter's (LoRA's) content
};

// An image, a sound, an embedding: something whose content replaces that of its placeholder tokens.
// It occupies the tokens offset ..< offset + length, counted from the beginning of the sequence.
struct MediaItem {
  std::string_view content_hash;  // of what the model sees, such as a digest; not empty
  std::uint64_t offset;
  std::uint64_t length;  // at least 1
};

// The end of a block to go on from: how many blocks precede, and the id of the last of them.
struct ChainEnd {
  std::uint64_t blocks = 0;
  BlockId last{};  // ignored if blocks == 0
};

class UCMSTORE_EXPORT BlockHasher {
 public:
  // `block_tokens`: the length of a block; 0: what the namespace's field "block_tokens" says. If
  // both are given, the namespace's must be a multiple: then Namespace::Derive with `every` makes
  // the ids of its longer blocks.
  [[nodiscard]] static Result<BlockHasher> Make(const Namespace& name_space,
                                                std::uint32_t block_tokens = 0,
                                                const RequestTraits& traits = {});

  [[nodiscard]] std::uint32_t block_tokens() const noexcept { return block_tokens_; }

  // Writes one id for each full block of `tokens` to `ids`, which must have room for
  // tokens.size() / block_tokens(); a rest is left out. To continue a sequence give the blocks that
  // are hashed already in `after`, and only what follows them in `tokens`; the ids are those that
  // the whole sequence would have got. `media` lists the items of the whole sequence, in any order;
  // an item touches the ids of the blocks it overlaps and of all later ones.
  [[nodiscard]] Status Hash(std::span<const std::int64_t> tokens, std::span<const MediaItem> media,
                            const ChainEnd& after, std::span<BlockId> ids) const;
  [[nodiscard]] Status Hash(std::span<const std::uint32_t> tokens, std::span<const MediaItem> media,
                            const ChainEnd& after, std::span<BlockId> ids) const;

 private:
  explicit BlockHasher(std::uint32_t block_tokens) : block_tokens_(block_tokens) {}
  template <typename Token>
  [[nodiscard]] Status HashTokens(std::span<const Token> tokens, std::span<const MediaItem> media,
                                  const ChainEnd& after, std::span<BlockId> ids) const;

  std::uint32_t block_tokens_;
  Sha256 begin_;  // has taken the context; copied for each block
};

}  // namespace ucmstore
