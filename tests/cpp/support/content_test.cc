// SPDX-License-Identifier: Apache-2.0
//
// The checker is what every contract test stands on, so it is proven first: each way in which a
// store could give wrong bytes is made by hand and must be seen.
#include "support/content.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

namespace ucmstore::test {
namespace {

std::vector<std::byte> Filled(std::size_t size, const BlockId& id, std::uint32_t shard,
                              std::uint64_t nonce) {
  std::vector<std::byte> bytes(size);
  Fill(bytes, id, shard, nonce);
  return bytes;
}

// Lengths around the edges of cells and of the fields in a cell.
const std::vector<std::size_t> kSizes = {1,  7,  8,   9,   24,   40,    63,
                                         64, 65, 127, 512, 1000, 12800, 4096};

TEST(Content, GoodIsGood) {
  const BlockId id = MakeId(1, 1);
  for (const std::size_t size : kSizes) {
    const std::uint64_t nonce = NextNonce();
    const auto bytes = Filled(size, id, 3, nonce);
    EXPECT_EQ(Inspect(bytes, id, 3).why, "") << size;
    EXPECT_EQ(Inspect(bytes, id, 3, nonce).why, "") << size;
    if (size >= 8) {
      EXPECT_EQ(Inspect(bytes, id, 3).nonce, nonce);
    }
  }
}

TEST(Content, StaleIsSeen) {
  const BlockId id = MakeId(1, 2);
  for (const std::size_t size : kSizes) {
    if (size < 8) continue;  // two nonces may begin alike
    const auto stale = Filled(size, id, 0, NextNonce());
    EXPECT_NE(Inspect(stale, id, 0, NextNonce()).why, "") << size;
  }
}

TEST(Content, MixOfTwoDumpsIsSeenAtEveryCell) {
  const BlockId id = MakeId(1, 3);
  const auto one = Filled(1000, id, 5, NextNonce());
  const auto two = Filled(1000, id, 5, NextNonce());
  for (std::size_t from = 1; from < one.size(); ++from) {
    auto mixed = one;
    std::copy(two.begin() + static_cast<std::ptrdiff_t>(from), two.end(),
              mixed.begin() + static_cast<std::ptrdiff_t>(from));
    if (mixed == one || mixed == two) continue;  // the bytes there happen to agree
    EXPECT_NE(Inspect(mixed, id, 5).why, "") << "from byte " << from;
  }
}

TEST(Content, ShiftIsSeen) {
  const BlockId id = MakeId(1, 4);
  const auto bytes = Filled(8192, id, 0, NextNonce());
  for (const std::size_t shift : {1U, 8U, 63U, 64U, 128U, 512U, 4096U}) {
    EXPECT_NE(Inspect(std::span(bytes).subspan(shift), id, 0).why, "") << shift;
  }
}

TEST(Content, AnotherBlockOrShardIsSeen) {
  const BlockId id = MakeId(1, 5);
  const std::uint64_t nonce = NextNonce();
  const auto bytes = Filled(64, id, 7, nonce);
  EXPECT_NE(Inspect(bytes, MakeId(1, 6), 7).why, "");
  EXPECT_NE(Inspect(bytes, id, 6).why, "");
  BlockId near = id;
  near.bytes[15] ^= std::byte{1};
  EXPECT_NE(Inspect(bytes, near, 7).why, "");
}

TEST(Content, EveryFlippedBitIsSeen) {
  const BlockId id = MakeId(1, 7);
  const std::uint64_t nonce = NextNonce();
  auto bytes = Filled(129, id, 2, nonce);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_NE(Inspect(bytes, id, 2, nonce).why, "") << "bit " << bit;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

TEST(Content, TailThatWasNeverWrittenIsSeen) {
  const BlockId id = MakeId(1, 8);
  for (const int filler : {0x00, 0xA5, 0xFF}) {
    auto bytes = Filled(1000, id, 0, NextNonce());
    std::memset(bytes.data() + 992, filler, 8);
    EXPECT_NE(Inspect(bytes, id, 0).why, "") << filler;
  }
}

TEST(Content, NoncesAndIdsDiffer) {
  std::set<std::uint64_t> nonces;
  std::set<BlockId> ids;
  for (std::uint64_t i = 0; i < 10000; ++i) {
    nonces.insert(NextNonce());
    ids.insert(MakeId(i % 100, i / 100));
  }
  EXPECT_EQ(nonces.size(), 10000U);
  EXPECT_EQ(nonces.count(0), 0U);
  EXPECT_EQ(ids.size(), 10000U);
}

}  // namespace
}  // namespace ucmstore::test
