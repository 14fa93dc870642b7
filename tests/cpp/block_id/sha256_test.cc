// SPDX-License-Identifier: Apache-2.0
//
// SHA-256: published values, and that every path of this CPU gives the same for all lengths and
// ways to cut the input.
#include "block_id/sha256.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/hex.h"
#include "support/random.h"

namespace ucmstore {
namespace {

std::string HexOf(const Sha256Path& path, std::string_view text) {
  Sha256 hash(path);
  hash.Update(text);
  return ToHex(hash.Finish());
}

TEST(Sha256, PathsAreNamedAndEndWithThePortable) {
  ASSERT_FALSE(Sha256Paths().empty());
  EXPECT_STREQ(Sha256Paths().back().name, "portable");
  for (const Sha256Path& path : Sha256Paths()) std::cout << "[ path     ] " << path.name << "\n";
}

// FIPS 180-2, appendix B, and the empty message.
TEST(Sha256, PublishedValues) {
  for (const Sha256Path& path : Sha256Paths()) {
    SCOPED_TRACE(path.name);
    EXPECT_EQ(HexOf(path, ""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(HexOf(path, "abc"),
              "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(HexOf(path, "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    EXPECT_EQ(HexOf(path,
                    "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
                    "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu"),
              "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
    EXPECT_EQ(HexOf(path, std::string(1'000'000, 'a')),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  }
  EXPECT_EQ(ToHex(Sha256Of("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256, EveryPathAgreesOnEveryShortLength) {
  test::Random random;
  std::string text;
  for (std::size_t size = 0; size <= 300; ++size) {
    const std::string expected = HexOf(Sha256Paths().back(), text);
    for (const Sha256Path& path : Sha256Paths()) {
      ASSERT_EQ(HexOf(path, text), expected) << path.name << " " << size;
    }
    text += static_cast<char>(random.engine()());
  }
}

TEST(Sha256, PiecesMakeTheWhole) {
  test::Random random;
  std::string text(5'000, '\0');
  for (char& c : text) c = static_cast<char>(random.engine()());
  for (int round = 0; round < 500; ++round) {
    const std::string_view whole = std::string_view(text).substr(0, random.Between(0, text.size()));
    const std::string expected = HexOf(Sha256Paths().back(), whole);
    for (const Sha256Path& path : Sha256Paths()) {
      Sha256 hash(path);
      for (std::string_view rest = whole; !rest.empty();) {
        const std::size_t most = random.OneIn(3) ? 300 : 20;
        const std::string_view piece = rest.substr(0, random.Between(0, most));
        hash.Update(piece);
        rest.remove_prefix(piece.size());
      }
      ASSERT_EQ(ToHex(hash.Finish()), expected) << path.name << " " << whole.size();
    }
  }
}

TEST(Sha256, ACopyGoesOnByItself) {
  const std::string begin(100, 'x');
  Sha256 common;
  common.Update(begin);
  Sha256 one = common;
  Sha256 two = common;
  one.Update("one");
  two.Update("two");
  EXPECT_EQ(one.Finish(), Sha256Of(begin + "one"));
  EXPECT_EQ(two.Finish(), Sha256Of(begin + "two"));
  EXPECT_EQ(common.Finish(), Sha256Of(begin));
}

}  // namespace
}  // namespace ucmstore
