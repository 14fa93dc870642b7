// SPDX-License-Identifier: Apache-2.0
//
// The bytes and names on disk: printer and parser are inverse, every flipped bit is noticed, and
// the golden files of tests/data still say what they said when they were written.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "base/hex.h"
#include "store/posix/footer.h"
#include "store/posix/names.h"
#include "store/posix/root_file.h"
#include "support/content.h"
#include "support/random.h"

namespace ucmstore::test {
namespace {

Footer MakeFooter(std::uint64_t shard_size, std::uint32_t shards) {
  Footer footer;
  footer.id = MakeId(1, 1);
  footer.fingerprint.fill(0xAB);
  footer.layout = {shard_size, shards};
  footer.content = "frame/1";
  for (std::uint32_t i = 0; i < shards; ++i) {
    footer.shards.push_back({.length = 1 + i % static_cast<std::uint32_t>(shard_size), .crc = ~i});
  }
  return footer;
}

std::vector<std::byte> Printed(const Footer& footer) {
  std::vector<std::byte> bytes(footer.layout.footer_size(), std::byte{0xEE});
  PrintFooter(footer, bytes);
  return bytes;
}

TEST(Footer, ParsesWhatItPrints) {
  for (const std::uint32_t shards : {1U, 2U, 30U, 128U, 248U, 249U, 65536U}) {
    const Footer footer = MakeFooter(4096, shards);
    const std::vector<std::byte> bytes = Printed(footer);
    EXPECT_EQ(bytes.size() % 4096, 0U);
    EXPECT_EQ(PeekFooterSize(bytes), bytes.size());
    const Result<Footer> parsed = ParseFooter(bytes);
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(*parsed, footer);
  }
}

TEST(Footer, EveryFlippedBitIsNoticed) {
  const std::vector<std::byte> good = Printed(MakeFooter(100, 3));
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::vector<std::byte> bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    const Result<Footer> parsed = ParseFooter(bad);
    ASSERT_FALSE(parsed) << "bit " << bit;
    ASSERT_EQ(parsed.error().code, Code::kCorruption) << "bit " << bit;
  }
  EXPECT_FALSE(ParseFooter({}));
  EXPECT_FALSE(ParseFooter(std::span(good).first(100)));
}

TEST(Footer, RandomBytesAreNoFooterAndNoCrash) {
  Random random;
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::byte> bytes = Printed(MakeFooter(4096, 5));
    for (std::uint64_t n = random.Between(1, 200); n > 0; --n) {
      bytes[random.Between(0, bytes.size() - 1)] = static_cast<std::byte>(random.Between(0, 255));
    }
    const Result<Footer> parsed = ParseFooter(bytes);
    if (!parsed) continue;
    EXPECT_EQ(Printed(*parsed), bytes);
  }
}

TEST(Layout, TellsFullFromShortFromTorn) {
  const BlockLayout layout{4096 * 3 + 512, 4};
  EXPECT_EQ(layout.stride(), 16384U);
  EXPECT_EQ(layout.ShardOffset(3), 3 * 16384U);
  EXPECT_EQ(layout.FileSize(true), 4 * 16384U + 4096);
  EXPECT_EQ(layout.FileSize(false), layout.FileSize(true) + 4096);
  EXPECT_FALSE(layout.IsBlockSize(0));
  EXPECT_FALSE(layout.IsBlockSize(layout.FileSize(true) - 1));
  EXPECT_FALSE((BlockLayout{0, 1}.valid()));
  EXPECT_FALSE((BlockLayout{1, 0}.valid()));
  EXPECT_FALSE((BlockLayout{1, 65537}.valid()));
}

RootFile MakeRootFileContent() {
  RootFile file;
  file.layout = {131072, 8};
  file.content = "raw";
  file.prefix_digits = 3;
  file.fingerprint.fill(0x5A);
  file.root_id.fill(0xC3);
  file.namespace_text = "dtype: bfloat16\nmodel: a/b: c\\n\n";
  return file;
}

TEST(RootFileText, ParsesWhatItPrintsAndNoticesEveryEdit) {
  const RootFile file = MakeRootFileContent();
  const std::string text = PrintRootFile(file);
  const Result<RootFile> parsed = ParseRootFile(text);
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(*parsed, file);
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string edited = text;
    edited[i] = edited[i] == '7' ? '6' : '7';
    EXPECT_FALSE(ParseRootFile(edited)) << "byte " << i;
    EXPECT_FALSE(ParseRootFile(text.substr(0, i))) << "cut at " << i;
  }
}

TEST(RootFileText, ANewerFormatIsToldFromDamage) {
  std::string text = PrintRootFile(MakeRootFileContent());
  text[std::string_view("ucmstore ").size()] = '2';
  const Result<RootFile> parsed = ParseRootFile(text);
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code, Code::kUnsupported);
  EXPECT_NE(parsed.error().text().find("format 2"), std::string_view::npos);
}

TEST(RootFileText, ADifferenceNamesBothValues) {
  const RootFile wanted = MakeRootFileContent();
  RootFile found = wanted;
  found.root_id.fill(1);
  found.prefix_digits = 4;
  EXPECT_EQ(Difference(wanted, found), "");
  found.layout.shard_size = 65536;
  found.content = "frame/1";
  const std::string text = Difference(wanted, found);
  for (const char* part : {"shard_size", "65536", "131072", "content", "frame/1", "raw"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST(Names, ParseWhatTheyPrint) {
  for (std::uint32_t digits = kMinPrefixDigits; digits <= kMaxPrefixDigits; ++digits) {
    const BlockId id = MakeId(2, digits);
    const std::string folder(FolderName(id, digits).text());
    EXPECT_TRUE(IsPrefixFolder(folder, digits));
    const auto parse = [&](const Name& name) {
      const std::string_view text = name.text();
      EXPECT_EQ(text.substr(0, digits + 1), folder + "/");
      EXPECT_EQ(std::strlen(name.c_str()), text.size());
      return ParseBlockFile(folder, text.substr(digits + 1));
    };
    const ParsedName block = parse(BlockName(id, digits));
    EXPECT_EQ(block.kind, NameKind::kBlock);
    EXPECT_EQ(block.id, id);
    const ParsedName activated = parse(ActivatedName(id, digits, 0x1234, UINT64_MAX));
    EXPECT_EQ(activated.kind, NameKind::kActivated);
    EXPECT_EQ(activated.id, id);
    EXPECT_EQ(activated.writer, 0x1234U);
    EXPECT_EQ(parse(MovedName(id, digits, 5)).kind, NameKind::kMoved);
    EXPECT_EQ(parse(SetAsideName(id, digits)).kind, NameKind::kSetAside);
  }
  EXPECT_EQ(ParseMark(WriterText(77).text()).writer, 77U);
  EXPECT_TRUE(ParseMark("000000000000004d.tmp").temporary);
}

TEST(Names, EverythingElseIsForeign) {
  const std::string id = "0123456789abcdef0123456789abcdef";
  const std::string writer = "00000000000000aa";
  EXPECT_EQ(ParseBlockFile("012", id).kind, NameKind::kBlock);
  const std::vector<std::string> foreign{"",
                                         ".",
                                         id.substr(1),
                                         id + "0",
                                         "0123456789ABCDEF0123456789ABCDEF",
                                         id + ".",
                                         id + ".x",
                                         id + ".corrupt2",
                                         id + ".corrupt.",
                                         id + "." + writer,
                                         id + "." + writer + ".activated",
                                         id + "." + writer + "..activated",
                                         id + "." + writer + ".g.activated",
                                         id + "." + writer + ".1.activated.bak",
                                         id + "." + writer + ".11111111111111111.activated",
                                         id + ".0000000000000000.1.activated",
                                         id + ".aa.1.activated",
                                         " " + id,
                                         id + "\n"};
  for (const std::string& name : foreign) {
    EXPECT_EQ(ParseBlockFile("012", name).kind, NameKind::kForeign) << name;
  }
  EXPECT_EQ(ParseBlockFile("013", id).kind, NameKind::kForeign) << "in another folder";
  for (const char* name : {"", "12", "1234", "abC", "writers", "..", "UCMSTORE"}) {
    EXPECT_FALSE(IsPrefixFolder(name, 3)) << name;
  }
  EXPECT_EQ(ParseMark("0").writer, 0U);
  EXPECT_EQ(ParseMark(".tmp").writer, 0U);
}

// H10: ids map to paths one to one, over all digits; folders fill evenly.
TEST(Names, H10_PathsAreBijective) {
  Random random;
  std::set<std::string> paths;
  BlockId id = MakeId(3, random.Between(0, UINT64_MAX));
  paths.insert(std::string(BlockName(id, 3).text()));
  for (std::size_t bit = 0; bit < 128; ++bit) {
    BlockId other = id;
    other.bytes[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    const std::string path(BlockName(other, 3).text());
    EXPECT_TRUE(paths.insert(path).second) << "bit " << bit;
    const ParsedName parsed = ParseBlockFile(path.substr(0, 3), path.substr(4));
    EXPECT_EQ(parsed.id, other);
    EXPECT_EQ(path.size(), 3U + 1 + 32);
  }
  std::map<std::string, int> folders;
  constexpr int kIds = 200'000;
  for (std::uint64_t i = 0; i < kIds; ++i)
    ++folders[std::string(FolderName(MakeId(4, i), 3).text())];
  EXPECT_EQ(folders.size(), 4096U);
  for (const auto& [folder, count] : folders) EXPECT_LT(count, 2 * kIds / 4096) << folder;
}

// Adding a root moves only what it takes.
TEST(Names, RootScoresAreEvenAndARootMoreMovesOnlyItsShare) {
  std::array<std::uint64_t, 5> seeds{};
  for (std::size_t r = 0; r < seeds.size(); ++r) {
    seeds[r] = RootSeed({static_cast<std::uint8_t>(r)});  // poor ids on purpose
  }
  const auto choose = [&seeds](const BlockId& id, std::size_t roots) {
    std::size_t best = 0;
    for (std::size_t r = 1; r < roots; ++r) {
      if (RootScore(id, seeds[r]) > RootScore(id, seeds[best])) best = r;
    }
    return best;
  };
  std::vector<int> counts(5);
  int moved = 0;
  constexpr int kIds = 50'000;
  for (std::uint64_t i = 0; i < kIds; ++i) {
    const BlockId id = MakeId(5, i);
    const std::size_t four = choose(id, 4);
    const std::size_t five = choose(id, 5);
    ++counts[five];
    if (four != five) {
      EXPECT_EQ(five, 4U);
      ++moved;
    }
  }
  for (const int count : counts) EXPECT_NEAR(count, kIds / 5.0, kIds / 50.0);
  EXPECT_NEAR(moved, kIds / 5.0, kIds / 50.0);
}

}  // namespace
}  // namespace ucmstore::test
