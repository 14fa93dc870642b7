// SPDX-License-Identifier: Apache-2.0
//
// CRC-32C: published values, and that every path of this CPU gives the same for all lengths,
// alignments and ways to cut the input.
#include "base/checksum.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "support/random.h"

namespace ucmstore {
namespace {

using Bytes = std::vector<std::byte>;

// Straight from the definition, one bit at a time.
std::uint32_t Reference(std::span<const std::byte> bytes, std::uint32_t crc = 0) {
  crc = ~crc;
  for (const std::byte byte : bytes) {
    crc ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0x82F63B78U : 0U);
  }
  return ~crc;
}

Bytes RandomBytes(test::Random& random, std::size_t size) {
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.engine()());
  return bytes;
}

Bytes Filled(std::size_t size, std::uint8_t value) { return Bytes(size, std::byte{value}); }

Bytes Counting(bool down) {
  Bytes bytes(32);
  for (std::size_t i = 0; i < 32; ++i) bytes[i] = static_cast<std::byte>(down ? 31 - i : i);
  return bytes;
}

TEST(Checksum, PathsAreNamedAndEndWithThePortable) {
  ASSERT_FALSE(Crc32cPaths().empty());
  EXPECT_STREQ(Crc32cPaths().back().name, "portable");
  for (const Crc32cPath& path : Crc32cPaths()) std::cout << "[ path     ] " << path.name << "\n";
}

// RFC 3720, section B.4.
TEST(Checksum, PublishedValues) {
  for (const Crc32cPath& path : Crc32cPaths()) {
    SCOPED_TRACE(path.name);
    EXPECT_EQ(path.run(Filled(32, 0x00), 0), 0x8A9136AAU);
    EXPECT_EQ(path.run(Filled(32, 0xFF), 0), 0x62A8AB43U);
    EXPECT_EQ(path.run(Counting(false), 0), 0x46DD794EU);
    EXPECT_EQ(path.run(Counting(true), 0), 0x113FDB5CU);
    EXPECT_EQ(path.run(std::as_bytes(std::span(std::string_view("123456789"))), 0), 0xE3069283U);
    EXPECT_EQ(path.run({}, 0), 0U);
    EXPECT_EQ(path.run({}, 0x12345678U), 0x12345678U);
  }
  EXPECT_EQ(Crc32c(std::as_bytes(std::span(std::string_view("123456789")))), 0xE3069283U);
}

TEST(Checksum, EveryShortLengthAtEveryAlignment) {
  test::Random random;
  const Bytes bytes = RandomBytes(random, 2048 + 64);
  for (std::size_t size = 0; size <= 2048; ++size) {
    const std::size_t offset = size % 64;
    const auto part = std::span(bytes).subspan(offset, size);
    const std::uint32_t expected = Reference(part);
    for (const Crc32cPath& path : Crc32cPaths()) {
      ASSERT_EQ(path.run(part, 0), expected) << path.name << " " << offset << "+" << size;
    }
  }
}

// Around the lengths where a path changes its ways.
TEST(Checksum, LengthsAroundTheStrides) {
  test::Random random;
  const Bytes bytes = RandomBytes(random, 40'000);
  for (const std::size_t base :
       {64U, 256U, 512U, 768U, 4096U, 12'288U, 13'056U, 24'576U, 36'864U}) {
    for (std::size_t size = base - 9; size <= base + 9; ++size) {
      const auto part = std::span(bytes).subspan(size % 16, size);
      const std::uint32_t expected = Reference(part);
      for (const Crc32cPath& path : Crc32cPaths()) {
        ASSERT_EQ(path.run(part, 0), expected) << path.name << " " << size;
      }
    }
  }
}

TEST(Checksum, RandomLengthsAlignmentsAndCuts) {
  test::Random random;
  const Bytes bytes = RandomBytes(random, 300'000);
  for (int round = 0; round < 2000; ++round) {
    const std::size_t most = random.OneIn(10) ? 200'000 : 5'000;
    const std::size_t size = random.Between(0, most);
    const auto part = std::span(bytes).subspan(random.Between(0, 90'000), size);
    const auto begin = static_cast<std::uint32_t>(random.engine()());
    const std::size_t cut = random.Between(0, size);
    const std::uint32_t expected = Crc32cPaths().back().run(part, begin);
    for (const Crc32cPath& path : Crc32cPaths()) {
      ASSERT_EQ(path.run(part, begin), expected) << path.name << " " << size;
      const std::uint32_t first = path.run(part.first(cut), begin);
      ASSERT_EQ(path.run(part.subspan(cut), first), expected) << path.name << " cut at " << cut;
    }
  }
}

TEST(Checksum, EveryFlippedBitShows) {
  test::Random random;
  Bytes bytes = RandomBytes(random, 4096);
  const std::uint32_t good = Crc32c(bytes);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    const auto mask = static_cast<std::byte>(1U << (bit % 8));
    bytes[bit / 8] ^= mask;
    ASSERT_NE(Crc32c(bytes), good) << bit;
    bytes[bit / 8] ^= mask;
  }
}

// Between two pages that must not be touched.
TEST(Checksum, ReadsNothingBesideTheBytes) {
  constexpr std::size_t kPage = 4096;
  constexpr std::size_t kRoom = 5 * kPage;
  void* map = mmap(nullptr, kRoom + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(map, MAP_FAILED);
  auto* room = static_cast<std::byte*>(map) + kPage;
  ASSERT_EQ(mprotect(room, kRoom, PROT_READ | PROT_WRITE), 0);
  std::memset(room, 0xA5, kRoom);
  for (std::size_t size = 0; size <= kRoom; size += size < 600 ? 1 : 397) {
    for (const Crc32cPath& path : Crc32cPaths()) {
      const std::uint32_t at_begin = path.run({room, size}, 0);
      const std::uint32_t at_end = path.run({room + kRoom - size, size}, 0);
      ASSERT_EQ(at_begin, at_end) << path.name << " " << size;
    }
  }
  munmap(map, kRoom + 2 * kPage);
}

}  // namespace
}  // namespace ucmstore
