// SPDX-License-Identifier: Apache-2.0
//
// Namespaces: what belongs together shares ids, what does not never meets, whatever the fields say.
#include "block_id/namespace.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/hex.h"
#include "block_id/sha256.h"
#include "support/random.h"

namespace ucmstore {
namespace {

using Fields = std::map<std::string, std::string>;
using Hashes = std::vector<std::uint8_t>;

Namespace Make(const Fields& fields) { return Namespace::FromFields(fields).value(); }

std::string Refusal(const Fields& fields) {
  const auto made = Namespace::FromFields(fields);
  if (made) return "accepted";
  EXPECT_EQ(made.error().code, Code::kInvalidArgument);
  return std::string(made.error().text());
}

Hashes SomeHashes(std::size_t count, std::size_t width) {
  Hashes hashes(count * width);
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    hashes[i] = static_cast<std::uint8_t>(i * 131 + i / 256);
  }
  return hashes;
}

std::vector<BlockId> Derive(const Namespace& name_space, const Hashes& hashes,
                            std::uint32_t width = 32, std::uint32_t every = 1,
                            std::string_view tag = "") {
  std::vector<BlockId> ids(hashes.size() / width / every);
  const Status status = name_space.Derive(hashes, width, every, tag, ids);
  EXPECT_TRUE(status.ok()) << status.text();
  return ids;
}

// Ids of one list never occur in another.
void ExpectAllDiffer(const std::vector<std::vector<BlockId>>& lists) {
  std::set<BlockId> all;
  std::size_t count = 0;
  for (const auto& list : lists) {
    all.insert(list.begin(), list.end());
    count += list.size();
  }
  EXPECT_EQ(all.size(), count);
}

TEST(Namespace, TextIsOneSortedLineForEachField) {
  const Namespace name_space = Make({{"tp", "4"}, {"model", "a b"}, {"dtype", ""}});
  EXPECT_EQ(name_space.text(), "dtype: \nmodel: a b\ntp: 4\n");
  EXPECT_EQ(name_space.fingerprint(), Sha256Of(name_space.text()));
  EXPECT_EQ(name_space.fields().at("model"), "a b");
}

TEST(Namespace, AValueStaysOnItsLine) {
  EXPECT_EQ(Make({{"model", "a\nb\\n\r\t\x7f\x1f\xc3\xa9"}}).text(),
            "model: a\\nb\\\\n\\x0d\\x09\\x7f\\x1f\xc3\xa9\n");
  EXPECT_NE(Make({{"model", "a\ntp: 4"}}).text(), Make({{"model", "a"}, {"tp", "4"}}).text());
  EXPECT_NE(Make({{"model", "a\n"}}).text(), Make({{"model", "a\\n"}}).text());
  EXPECT_NE(Make({{"model", "\\x0d"}}).text(), Make({{"model", "\r"}}).text());
}

TEST(Namespace, AbsentDiffersFromEmpty) {
  EXPECT_NE(Make({{"model", "m"}}).fingerprint(),
            Make({{"model", "m"}, {"revision", ""}}).fingerprint());
}

TEST(Namespace, RandomFieldsHaveOneTextEach) {
  test::Random random;
  const std::string alphabet = "ab\\nx0:\n \r";
  std::map<std::string, Fields> seen;
  for (int round = 0; round < 20'000; ++round) {
    Fields fields;
    for (std::uint64_t i = random.Between(1, 2); i > 0; --i) {
      std::string value;
      for (std::uint64_t k = random.Between(0, 4); k > 0; --k) {
        value += alphabet[random.Between(0, alphabet.size() - 1)];
      }
      fields[random.OneIn(2) ? "a" : "b"] = value;
    }
    const auto [place, is_new] = seen.try_emplace(Make(fields).text(), fields);
    ASSERT_EQ(place->second, fields) << place->first;
  }
}

TEST(Namespace, RefusesInWords) {
  EXPECT_NE(Refusal({}).find("no fields"), std::string::npos);
  for (const char* name : {"", "Model", "1a", "_a", "a-b", "a b", "a:", "a\n", "\xc3\xa9"}) {
    EXPECT_NE(Refusal({{name, "x"}}).find("field name"), std::string::npos) << name;
  }
  EXPECT_NE(Refusal({{std::string(65, 'a'), "x"}}).find("64"), std::string::npos);
  EXPECT_EQ(Refusal({{std::string(64, 'a'), "x"}}), "accepted");
  const std::string nul("a\0b", 3);
  EXPECT_EQ(Refusal({{"model", nul}}), "namespace: field model: value holds a NUL");
  EXPECT_NE(Refusal({{"model", std::string(Namespace::kMaxText, 'x')}}).find("field model"),
            std::string::npos);
}

TEST(IdentityFaults, Q02_LabelNeverLeavesTheRoot) {
  test::Random random;
  const std::string good = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  std::vector<std::string> models = {"",
                                     ".",
                                     "..",
                                     "../x",
                                     "/abs",
                                     "a/../../b",
                                     "-rf",
                                     "~",
                                     "a\nb",
                                     "C:\\x",
                                     "...",
                                     "---",
                                     "a/.",
                                     "$(x)",
                                     "x ",
                                     "*",
                                     "a\xff\xfe",
                                     "con",
                                     std::string(5000, 'x'),
                                     std::string(5000, '.')};
  for (int round = 0; round < 2000; ++round) {
    std::string model;
    for (std::uint64_t k = random.Between(0, 100); k > 0; --k) {
      model +=
          random.OneIn(3) ? "./-"[random.Between(0, 2)] : static_cast<char>(random.Between(1, 255));
    }
    models.push_back(model);
  }
  std::set<std::string> labels;
  for (const std::string& model : models) {
    const std::string label = Make({{"model", model}}).label();
    ASSERT_TRUE(label.size() >= 18 && label.size() <= 77) << label;
    ASSERT_EQ(label.find_first_not_of(good), std::string::npos) << label;
    ASSERT_TRUE(label[0] != '.' && label[0] != '-') << label;
    labels.insert(label);
  }
  EXPECT_EQ(labels.size(), std::set<std::string>(models.begin(), models.end()).size());
}

TEST(Namespace, LabelIsReadable) {
  const Namespace name_space = Make({{"model", "meta-llama/Llama-3.1-8B"}});
  EXPECT_EQ(name_space.label(),
            "meta-llama-Llama-3.1-8B-" + ToHex(name_space.fingerprint()).substr(0, 16));
  EXPECT_TRUE(Make({{"dtype", "x"}}).label().starts_with("model-"));
}

TEST(Derive, TakesTheLastOfEachGroupAndDropsTheRest) {
  const Namespace name_space = Make({{"model", "m"}});
  const Hashes hashes = SomeHashes(11, 32);
  const auto grouped = Derive(name_space, hashes, 32, 4);
  ASSERT_EQ(grouped.size(), 2U);
  // Only the last hash of a group counts.
  Hashes changed(hashes);
  for (const std::size_t i : {0U, 1U, 2U, 4U, 5U, 6U, 8U, 9U, 10U}) changed[i * 32] ^= 1;
  EXPECT_EQ(Derive(name_space, changed, 32, 4), grouped);
  for (const std::size_t i : {3U, 7U}) {
    Hashes other(hashes);
    other[i * 32 + 31] ^= 1;
    EXPECT_NE(Derive(name_space, other, 32, 4)[i / 4], grouped[i / 4]);
    EXPECT_EQ(Derive(name_space, other, 32, 4)[1 - i / 4], grouped[1 - i / 4]);
  }
  EXPECT_EQ(Derive(name_space, SomeHashes(3, 32), 32, 4).size(), 0U);
}

TEST(Derive, DependsOnEverythingItIsGiven) {
  const Namespace name_space = Make({{"model", "m"}});
  const Hashes hashes = SomeHashes(16, 32);
  ExpectAllDiffer({
      Derive(name_space, hashes),
      Derive(name_space, hashes, 32, 1, "t"),
      Derive(name_space, hashes, 32, 1, std::string_view("\0", 1)),
      Derive(name_space, hashes, 16, 1),
      Derive(name_space, hashes, 32, 2),
      Derive(name_space, hashes, 32, 4),
      Derive(Make({{"model", "m2"}}), hashes),
      Derive(Make({{"model", "m"}, {"dtype", ""}}), hashes),
  });
}

TEST(Derive, ManyAtATimeAreTheSameAsOneByOne) {
  const Namespace name_space = Make({{"model", "m"}});
  for (const std::uint32_t width : {1U, 8U, 16U, 20U, 23U, 24U, 32U, 33U, 64U, 1024U}) {
    const Hashes hashes = SomeHashes(50, width);
    const auto all = Derive(name_space, hashes, width);
    for (std::size_t i = 0; i < 50; ++i) {
      const Hashes one(hashes.begin() + static_cast<std::ptrdiff_t>(i * width),
                       hashes.begin() + static_cast<std::ptrdiff_t>((i + 1) * width));
      ASSERT_EQ(Derive(name_space, one, width)[0], all[i]) << width;
    }
  }
}

TEST(Derive, RefusesInWordsAndWritesNothing) {
  const Namespace name_space = Make({{"model", "m"}});
  const Hashes hashes = SomeHashes(4, 32);
  std::vector<BlockId> ids(4);
  const auto refusal = [&](std::uint32_t width, std::uint32_t every, std::size_t room) {
    const Status status = name_space.Derive(hashes, width, every, "", std::span(ids).first(room));
    EXPECT_EQ(status.code, Code::kInvalidArgument);
    return std::string(status.text());
  };
  EXPECT_EQ(refusal(0, 1, 4), "derive: width is 0, must be 1 ..= 1024 bytes");
  EXPECT_EQ(refusal(1025, 1, 4), "derive: width is 1025, must be 1 ..= 1024 bytes");
  EXPECT_EQ(refusal(32, 0, 4), "derive: every is 0, must be at least 1");
  EXPECT_EQ(refusal(31, 1, 4), "derive: 128 bytes of hashes are not a multiple of the width, 31");
  EXPECT_EQ(refusal(32, 1, 3), "derive: room for 3 ids, 4 are due");
  EXPECT_EQ(ids, std::vector<BlockId>(4));
}

TEST(IdentityFaults, H03_DtypesNeverMeet) {
  const Hashes hashes = SomeHashes(8, 32);
  std::vector<std::vector<BlockId>> lists;
  std::set<std::string> labels;
  for (const char* dtype : {"bfloat16", "float16", "fp8_e4m3", "fp8_e5m2"}) {
    const Namespace name_space = Make({{"model", "m"}, {"dtype", dtype}});
    lists.push_back(Derive(name_space, hashes));
    labels.insert(name_space.label());
  }
  ExpectAllDiffer(lists);
  EXPECT_EQ(labels.size(), lists.size()) << "nor in one folder";
}

TEST(IdentityFaults, H04_OneServedNameIsNotOneModel) {
  const Hashes hashes = SomeHashes(8, 32);
  const Fields served = {{"model", "chat"}};
  std::vector<std::vector<BlockId>> lists;
  for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{
           {"path", "/models/a"}, {"path", "/models/b"}, {"revision", "1"}, {"revision", "2"}}) {
    Fields fields = served;
    fields[name] = value;
    lists.push_back(Derive(Make(fields), hashes));
  }
  ExpectAllDiffer(lists);
}

}  // namespace
}  // namespace ucmstore
