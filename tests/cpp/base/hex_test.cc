// SPDX-License-Identifier: Apache-2.0
//
// Block ids as text: both ways, one spelling, nothing cut off.
#include "base/hex.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <unordered_set>

#include "support/random.h"

namespace ucmstore {
namespace {

BlockId RandomId(test::Random& random) {
  const std::uint64_t words[2] = {random.engine()(), random.engine()()};
  BlockId id;
  std::memcpy(id.bytes.data(), words, sizeof(words));
  return id;
}

BlockId Counting() {
  BlockId id;
  for (std::size_t i = 0; i < 16; ++i) id.bytes[i] = static_cast<std::byte>(i * 0x11);
  return id;
}

TEST(Hex, KnownText) {
  EXPECT_EQ(ToHex(Counting()), "00112233445566778899aabbccddeeff");
  EXPECT_EQ(ToHex(BlockId{}), std::string(32, '0'));
  const std::uint8_t bytes[] = {0x00, 0x7F, 0x80, 0xFF};
  EXPECT_EQ(ToHex(std::span(bytes)), "007f80ff");
  EXPECT_EQ(ToHex(std::span<const std::uint8_t>()), "");
}

TEST(Hex, WritesExactlyItsRoom) {
  char out[kHexIdSize + 2];
  std::memset(out, '#', sizeof(out));
  WriteHex(Counting(), out + 1);
  EXPECT_EQ(std::string(out, sizeof(out)), "#00112233445566778899aabbccddeeff#");
}

TEST(Hex, EveryByteAtEveryPlace) {
  for (std::size_t place = 0; place < 16; ++place) {
    for (unsigned value = 0; value < 256; ++value) {
      BlockId id{};
      id.bytes[place] = static_cast<std::byte>(value);
      const std::string text = ToHex(id);
      ASSERT_EQ(ParseHex(text), id) << text;
      ASSERT_EQ(std::stoul(text.substr(2 * place, 2), nullptr, 16), value);
    }
  }
}

TEST(Hex, OnlyLowerCaseDigitsAtEveryPlace) {
  for (std::size_t place = 0; place < kHexIdSize; ++place) {
    for (unsigned value = 0; value < 256; ++value) {
      const char c = static_cast<char>(value);
      const bool good = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
      std::string text(kHexIdSize, '5');
      text[place] = c;
      ASSERT_EQ(ParseHex(text).has_value(), good) << "place " << place << " value " << value;
    }
  }
}

TEST(Hex, OnlyThirtyTwoDigits) {
  for (std::size_t size = 0; size <= 70; ++size) {
    EXPECT_EQ(ParseHex(std::string(size, '0')).has_value(), size == kHexIdSize) << size;
  }
  EXPECT_FALSE(ParseHex("0x112233445566778899aabbccddeeff"));
  EXPECT_FALSE(ParseHex("../../../../../../../../etc/pass"));
}

// A million random ids, and for some of them all that differ in one bit: the name is a bijection,
// has 32 digits, and no part of the id is left out of it.
TEST(IdentityFaults, H10_NameHoldsTheWholeId) {
  test::Random random;
  constexpr std::size_t kIds = 1'000'000;
  std::unordered_set<std::string> names;
  names.reserve(kIds + std::size_t{200} * 128);
  const auto check = [&names](const BlockId& id) {
    std::string name = ToHex(id);
    ASSERT_EQ(name.size(), kHexIdSize);
    ASSERT_EQ(ParseHex(name), id);
    ASSERT_TRUE(names.insert(std::move(name)).second) << "two ids with one name: " << ToHex(id);
  };
  for (std::size_t i = 0; i < kIds && !HasFatalFailure(); ++i) {
    const BlockId id = RandomId(random);
    check(id);
    if (i % (kIds / 200) != 0) continue;
    for (std::size_t bit = 0; bit < 128; ++bit) {
      BlockId other = id;
      other.bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      check(other);
    }
  }
}

}  // namespace
}  // namespace ucmstore
