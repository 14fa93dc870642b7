// SPDX-License-Identifier: Apache-2.0
//
// Chained ids over tokens: they depend on everything that changes a block's bytes, on nothing else.
#include "block_id/block_hasher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "block_id/namespace.h"
#include "support/random.h"

namespace ucmstore {
namespace {

using Tokens = std::vector<std::int64_t>;
using Ids = std::vector<BlockId>;
using Media = std::vector<MediaItem>;

Namespace MakeNamespace(const std::map<std::string, std::string>& fields = {{"model", "m"}}) {
  return Namespace::FromFields(fields).value();
}

BlockHasher MakeHasher(std::uint32_t block_tokens = 4, const RequestTraits& traits = {}) {
  return BlockHasher::Make(MakeNamespace(), block_tokens, traits).value();
}

Ids Hash(const BlockHasher& hasher, const Tokens& tokens, const Media& media = {},
         const ChainEnd& after = {}) {
  Ids ids(tokens.size() / hasher.block_tokens());
  const Status status = hasher.Hash(tokens, media, after, ids);
  EXPECT_TRUE(status.ok()) << status.text();
  return ids;
}

Tokens Counting(std::size_t count, std::int64_t first = 0) {
  Tokens tokens(count);
  for (std::size_t i = 0; i < count; ++i) tokens[i] = first + static_cast<std::int64_t>(i);
  return tokens;
}

std::size_t CommonPrefix(const Ids& a, const Ids& b) {
  const auto [end, unused] = std::ranges::mismatch(a, b);
  return static_cast<std::size_t>(end - a.begin());
}

bool Disjoint(const Ids& a, const Ids& b) { return std::ranges::find_first_of(a, b) == a.end(); }

TEST(BlockHasher, OneIdForEachFullBlock) {
  const BlockHasher hasher = MakeHasher(4);
  const Ids whole = Hash(hasher, Counting(16));
  EXPECT_EQ(std::set<BlockId>(whole.begin(), whole.end()).size(), 4U);
  for (std::size_t count = 0; count < 16; ++count) {
    const Ids ids = Hash(hasher, Counting(count));
    ASSERT_EQ(ids.size(), count / 4);
    EXPECT_TRUE(std::equal(ids.begin(), ids.end(), whole.begin())) << "a prefix has a prefix's ids";
  }
}

TEST(BlockHasher, BlockLengthComesFromTheNamespaceOrTheCall) {
  const Namespace of_64 = MakeNamespace({{"model", "m"}, {"block_tokens", "64"}});
  EXPECT_EQ(BlockHasher::Make(of_64).value().block_tokens(), 64U);
  EXPECT_EQ(BlockHasher::Make(of_64, 16).value().block_tokens(), 16U);
  EXPECT_EQ(BlockHasher::Make(MakeNamespace(), 7).value().block_tokens(), 7U);
}

TEST(BlockHasher, RefusesInWords) {
  const auto refusal = [](const std::map<std::string, std::string>& fields, std::uint32_t length) {
    const auto made = BlockHasher::Make(MakeNamespace(fields), length);
    if (made) return std::string("accepted");
    EXPECT_EQ(made.error().code, Code::kInvalidArgument);
    return std::string(made.error().text());
  };
  EXPECT_EQ(refusal({{"model", "m"}}, 0),
            "block hasher: neither block_tokens nor the namespace's field block_tokens is given");
  EXPECT_EQ(
      refusal({{"block_tokens", "64"}}, 48),
      "block hasher: the namespace's block_tokens, 64, is not a multiple of block_tokens, 48");
  EXPECT_EQ(
      refusal({{"block_tokens", "64"}}, 128),
      "block hasher: the namespace's block_tokens, 64, is not a multiple of block_tokens, 128");
  for (const char* bad : {"", "0", "-1", "16 ", "0x10", "sixteen", "4294967296"}) {
    EXPECT_EQ(refusal({{"block_tokens", bad}}, 16),
              "block hasher: the namespace's block_tokens is \"" + std::string(bad) +
                  "\", must be a number from 1 to 4294967295");
  }
}

TEST(BlockHasher, RefusesBadInputAndWritesNothing) {
  const BlockHasher hasher = MakeHasher(4);
  const Tokens tokens = Counting(16);
  Ids ids(4);
  const auto refusal = [&](const Media& media, std::size_t room = 4, std::uint64_t after = 0) {
    const Status status =
        hasher.Hash(tokens, media, {after, BlockId{}}, std::span(ids).first(room));
    EXPECT_EQ(status.code, Code::kInvalidArgument);
    return std::string(status.text());
  };
  EXPECT_EQ(refusal({}, 3), "block hasher: room for 3 ids, 4 are due");
  EXPECT_EQ(refusal({{"a", 0, 4}, {"", 4, 4}}), "block hasher: media item 1: no content hash");
  EXPECT_EQ(refusal({{"a", 0, 0}}), "block hasher: media item 0: its length is 0 tokens");
  EXPECT_EQ(refusal({{"a", ~0ULL, 2}}),
            "block hasher: media item 0: offset 18446744073709551615 + length 2 is beyond any "
            "sequence");
  EXPECT_EQ(refusal({}, 4, 1ULL << 62),
            "block hasher: 4611686018427387904 preceding blocks are more than any sequence has");
  EXPECT_EQ(ids, Ids(4));
}

TEST(BlockHasher, EveryTokenWidthGivesTheSameIds) {
  const BlockHasher hasher = MakeHasher(100);
  const std::vector<std::uint32_t> narrow = [] {
    std::vector<std::uint32_t> tokens(350);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<std::uint32_t>(i * 2654435761U);
    }
    return tokens;
  }();
  Ids ids(3);
  ASSERT_TRUE(hasher.Hash(std::span<const std::uint32_t>(narrow), {}, {}, ids).ok());
  EXPECT_EQ(ids, Hash(hasher, Tokens(narrow.begin(), narrow.end())));
}

TEST(BlockHasher, ASaltIsNotAnAdapterAndEmptyIsNotAbsent) {
  using Text = std::optional<std::string_view>;
  const Text texts[] = {std::nullopt, "", "Z", "ZZ", std::string_view("\0", 1)};
  std::set<BlockId> all;
  std::size_t count = 0;
  for (const Text& salt : texts) {
    for (const Text& adapter : texts) {
      const Ids ids = Hash(MakeHasher(4, {salt, adapter}), Counting(12));
      all.insert(ids.begin(), ids.end());
      count += ids.size();
    }
  }
  EXPECT_EQ(all.size(), count);
}

// The bytes of one field never pass for another's.
TEST(BlockHasher, FieldsDoNotRunIntoEachOther) {
  const Ids salted = Hash(MakeHasher(4, {"ab", "c"}), Counting(4));
  EXPECT_TRUE(Disjoint(salted, Hash(MakeHasher(4, {"a", "bc"}), Counting(4))));
  EXPECT_TRUE(Disjoint(salted, Hash(MakeHasher(4, {"abc", ""}), Counting(4))));
  // Blocks of other lengths over the same tokens.
  EXPECT_TRUE(Disjoint(Hash(MakeHasher(2), Counting(16)), Hash(MakeHasher(4), Counting(16))));
  // A media item that looks like tokens.
  const std::string like_tokens(8, '\4');
  EXPECT_TRUE(Disjoint(Hash(MakeHasher(1), {1}, {{like_tokens, 0, 1}}), Hash(MakeHasher(1), {1})));
}

// Any change at one place changes the ids of its block and all later ones, and no earlier one.
TEST(BlockHasher, RandomChangesTouchTheirBlockAndWhatFollows) {
  test::Random random;
  for (int round = 0; round < 500; ++round) {
    const auto length = static_cast<std::uint32_t>(random.Between(1, 20));
    const BlockHasher hasher = MakeHasher(length);
    Tokens tokens(random.Between(length, 200));
    for (auto& token : tokens) token = static_cast<std::int64_t>(random.engine()());
    const Ids before = Hash(hasher, tokens);
    const std::size_t place = random.Between(0, before.size() * length - 1);
    tokens[place] ^= std::int64_t{1} << random.Between(0, 62);
    const Ids after = Hash(hasher, tokens);
    ASSERT_EQ(CommonPrefix(before, after), place / length);
    ASSERT_TRUE(Disjoint(
        Ids(before.begin() + static_cast<std::ptrdiff_t>(place / length), before.end()), after));
  }
}

// Wherever a sequence is cut, whatever media it has, its parts get the ids of the whole.
TEST(BlockHasher, RandomContinuationsGiveTheIdsOfTheWhole) {
  test::Random random;
  const std::string contents[] = {"one", "two", "three"};
  for (int round = 0; round < 500; ++round) {
    const auto length = static_cast<std::uint32_t>(random.Between(1, 9));
    const BlockHasher hasher = MakeHasher(length, {"salt", std::nullopt});
    const std::size_t count = random.Between(1, 30);
    Tokens tokens(count * length);
    for (auto& token : tokens) token = static_cast<std::int64_t>(random.Between(0, 3));
    Media media;
    for (std::uint64_t i = random.Between(0, 4); i > 0; --i) {
      media.push_back({contents[random.Between(0, 2)], random.Between(0, tokens.size()),
                       random.Between(1, tokens.size())});
    }
    const Ids whole = Hash(hasher, tokens, media);
    Ids parts;
    while (parts.size() < count) {
      const std::size_t step = random.Between(0, count - parts.size());
      const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(parts.size() * length);
      const Tokens piece(begin, begin + static_cast<std::ptrdiff_t>(step * length));
      const ChainEnd end = {parts.size(), parts.empty() ? BlockId{} : parts.back()};
      std::shuffle(media.begin(), media.end(), random.engine());
      const Ids ids = Hash(hasher, piece, media, end);
      parts.insert(parts.end(), ids.begin(), ids.end());
    }
    ASSERT_EQ(parts, whole);
  }
}

TEST(BlockHasher, TheLastIdIsIgnoredWithoutPrecedingBlocks) {
  const BlockHasher hasher = MakeHasher(4);
  BlockId rubbish;
  rubbish.bytes.fill(std::byte{0x5A});
  EXPECT_EQ(Hash(hasher, Counting(8), {}, {0, rubbish}), Hash(hasher, Counting(8)));
  EXPECT_TRUE(Disjoint(Hash(hasher, Counting(8), {}, {1, rubbish}), Hash(hasher, Counting(8))));
  EXPECT_TRUE(Disjoint(Hash(hasher, Counting(8), {}, {1, BlockId{}}), Hash(hasher, Counting(8))))
      << "an id of zeros is an id";
}

TEST(IdentityFaults, H03_H04_HashersOfDifferentNamespacesNeverMeet) {
  const std::map<std::string, std::string> fields[] = {
      {{"model", "chat"}, {"dtype", "bfloat16"}},
      {{"model", "chat"}, {"dtype", "fp8"}},
      {{"model", "chat"}, {"dtype", "bfloat16"}, {"path", "/a"}},
      {{"model", "chat"}, {"dtype", "bfloat16"}, {"path", "/b"}},
  };
  std::set<BlockId> all;
  for (const auto& each : fields) {
    const auto hasher = BlockHasher::Make(MakeNamespace(each), 4).value();
    for (const BlockId& id : Hash(hasher, Counting(40))) all.insert(id);
  }
  EXPECT_EQ(all.size(), 4U * 10U);
}

// Ten tokens of text, eight placeholders, more text; blocks of four.
TEST(IdentityFaults, H07_TextBeforeAnImageIsSharedTheImageIsNot) {
  const BlockHasher hasher = MakeHasher(4);
  Tokens tokens = Counting(10);
  tokens.insert(tokens.end(), 8, 999);
  for (const std::int64_t token : Counting(6, 50)) tokens.push_back(token);

  const Ids plain = Hash(hasher, tokens);
  const Ids cat = Hash(hasher, tokens, {{"cat", 10, 8}});
  const Ids dog = Hash(hasher, tokens, {{"dog", 10, 8}});
  ASSERT_EQ(cat.size(), 6U);
  EXPECT_EQ(cat, Hash(hasher, tokens, {{"cat", 10, 8}}));
  for (const Ids& other :
       {plain, dog, Hash(hasher, tokens, {{"cat", 11, 7}}), Hash(hasher, tokens, {{"cat", 10, 7}}),
        Hash(hasher, tokens, {{"cat", 10, 8}, {"cat", 10, 8}})}) {
    EXPECT_EQ(CommonPrefix(cat, other), 2U) << "tokens 0..7 are text for all of them";
    EXPECT_TRUE(Disjoint(Ids(cat.begin() + 2, cat.end()), other)) << "and from there on none meets";
  }
  // Where two images follow each other, the first may be shared without the second.
  Tokens two = Counting(4);
  two.insert(two.end(), 12, 999);
  EXPECT_EQ(CommonPrefix(Hash(hasher, two, {{"cat", 4, 4}, {"dog", 8, 8}}),
                         Hash(hasher, two, {{"cat", 4, 4}, {"cow", 8, 8}})),
            2U);
  EXPECT_EQ(CommonPrefix(Hash(hasher, two, {{"cat", 4, 6}, {"dog", 10, 6}}),
                         Hash(hasher, two, {{"dog", 4, 6}, {"cat", 10, 6}})),
            1U);
}

TEST(IdentityFaults, H09_DifferentPrefixesNeverAlias) {
  const BlockHasher hasher = MakeHasher(4);
  std::set<BlockId> last;
  constexpr std::size_t kRounds = 1000;
  for (std::size_t round = 0; round < kRounds; ++round) {
    Tokens tokens = Counting(12, static_cast<std::int64_t>(1000 * round));
    for (const std::int64_t token : {7, 7, 7, 7}) tokens.push_back(token);
    last.insert(Hash(hasher, tokens).back());
  }
  EXPECT_EQ(last.size(), kRounds) << "same last block, same length, another prefix";
  // The same tokens one block later.
  const Ids repeated = Hash(hasher, {1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4});
  EXPECT_EQ(std::set<BlockId>(repeated.begin(), repeated.end()).size(), 3U);
}

// Groups of 32, 64 and 128 tokens over hashes of 32: both sides fold with Derive, or are refused.
TEST(IdentityFaults, H13_HybridGroupsAgreeOrAreRefused) {
  const auto side = [](std::uint32_t group_tokens, std::uint32_t hash_tokens) {
    const Namespace name_space =
        MakeNamespace({{"model", "m"}, {"block_tokens", std::to_string(group_tokens)}});
    const auto hasher = BlockHasher::Make(name_space, hash_tokens);
    if (!hasher) return Ids{};
    const Ids chain = Hash(*hasher, Counting(1024));
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(chain.data());
    Ids ids(1024 / group_tokens);
    const std::uint32_t every = group_tokens / hash_tokens;
    EXPECT_TRUE(name_space.Derive({bytes, chain.size() * 16}, 16, every, "full", ids).ok());
    return ids;
  };
  std::set<BlockId> all;
  for (const std::uint32_t group : {32U, 64U, 128U}) {
    const Ids scheduler = side(group, 32);
    EXPECT_EQ(scheduler.size(), 1024 / group);
    EXPECT_EQ(side(group, 32), scheduler);
    all.insert(scheduler.begin(), scheduler.end());
  }
  EXPECT_EQ(all.size(), 32U + 16U + 8U) << "groups never meet";
  EXPECT_TRUE(side(32, 64).empty()) << "a hash longer than its block is refused";
  EXPECT_TRUE(side(64, 48).empty());
}

TEST(IdentityFaults, Q04_TenantsWithDifferentSaltsShareNothing) {
  const Ids a = Hash(MakeHasher(4, {"tenant-a", std::nullopt}), Counting(400));
  const Ids b = Hash(MakeHasher(4, {"tenant-b", std::nullopt}), Counting(400));
  const Ids none = Hash(MakeHasher(4), Counting(400));
  EXPECT_TRUE(Disjoint(a, b));
  EXPECT_TRUE(Disjoint(a, none));
  EXPECT_EQ(Hash(MakeHasher(4, {"tenant-a", std::nullopt}), Counting(400)), a);
}

}  // namespace
}  // namespace ucmstore
