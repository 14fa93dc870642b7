// SPDX-License-Identifier: Apache-2.0
//
// OptionSet: completion, types, and errors that name stage, key, value, rule and nearest name.
#include "options/option_set.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace ucmstore {
namespace {

constexpr OptionSpecV1 kTable[] = {
    {"roots", OptionType::kList, 0, nullptr, "", "Folders."},
    {"capacity", OptionType::kSize, 0, "0", "0..1PiB", "Bytes at most."},
    {"workers", OptionType::kInt, 0, "16", "1..1024", "Threads."},
    {"ratio", OptionType::kFloat, 0, "0.5", "0..1", "A part."},
    {"direct", OptionType::kBool, 0, "true", "", "Direct I/O."},
    {"durability", OptionType::kString, 0, "none", "none|data", "What survives."},
    {"label", OptionType::kString, 0, "", "", "Any text."},
    {"extra", OptionType::kList, 0, "", "a|b", "Words."},
};

Result<OptionSet> Complete(OptionMap given) {
  if (!given.contains("roots")) given["roots"] = std::string("/mnt/kv");
  return OptionSet::Complete("posix", kTable, given);
}

std::string ErrorOf(const std::string& key, OptionInput value) {
  OptionMap given;
  given[key] = std::move(value);
  const Result<OptionSet> set = Complete(std::move(given));
  if (set) return "(accepted)";
  EXPECT_EQ(set.error().code, Code::kInvalidArgument);
  return std::string(set.error().text());
}

testing::AssertionResult Says(const std::string& text, const std::vector<std::string>& all) {
  for (const std::string& part : all) {
    if (text.find(part) == std::string::npos) {
      return testing::AssertionFailure() << "\"" << text << "\" does not say \"" << part << "\"";
    }
  }
  return testing::AssertionSuccess();
}

TEST(OptionSet, GivesOneValueForEachLineInOrder) {
  const Result<OptionSet> set = Complete({{"workers", std::int64_t{4}}});
  ASSERT_TRUE(set) << set.error().text();
  ASSERT_EQ(set->values().size(), std::size(kTable));
  for (std::size_t i = 0; i < std::size(kTable); ++i) {
    EXPECT_STREQ(set->values()[i].name, kTable[i].name);
    EXPECT_EQ(set->values()[i].type, kTable[i].type);
  }
  EXPECT_EQ(set->List("roots"), std::vector<std::string>{"/mnt/kv"});
  EXPECT_FALSE(set->IsDefault("roots"));
  EXPECT_EQ(set->Integer("capacity"), 0);
  EXPECT_TRUE(set->IsDefault("capacity"));
  EXPECT_EQ(set->Integer("workers"), 4);
  EXPECT_EQ(set->values()[3].number, 0.5);
  EXPECT_EQ(set->Integer("direct"), 1);
  EXPECT_STREQ(set->Text("durability"), "none");
  EXPECT_STREQ(set->Text("label"), "");
  EXPECT_TRUE(set->List("extra").empty());
}

TEST(OptionSet, ValuesStayWhereTheyAreWhenItMoves) {
  Result<OptionSet> set =
      Complete({{"label", std::string("short")}, {"roots", std::vector<std::string>{"/a", "/b"}}});
  ASSERT_TRUE(set);
  const OptionSet moved = *std::move(set);
  EXPECT_STREQ(moved.Text("label"), "short");
  EXPECT_EQ(moved.List("roots"), (std::vector<std::string>{"/a", "/b"}));
}

TEST(OptionSet, TakesEachTypeInItsForms) {
  EXPECT_EQ(Complete({{"capacity", std::string("2TiB")}})->Integer("capacity"), 2LL << 40);
  EXPECT_EQ(Complete({{"capacity", std::int64_t{4096}}})->Integer("capacity"), 4096);
  EXPECT_EQ(Complete({{"capacity", std::string("0")}})->Integer("capacity"), 0);
  EXPECT_EQ(Complete({{"ratio", std::int64_t{1}}})->values()[3].number, 1.0);
  EXPECT_EQ(Complete({{"ratio", 0.25}})->values()[3].number, 0.25);
  EXPECT_EQ(Complete({{"direct", false}})->Integer("direct"), 0);
  EXPECT_EQ(Complete({{"extra", std::string("a")}})->List("extra"), std::vector<std::string>{"a"});
}

// The rows of M01, as these stages have them.
TEST(OptionFaults, M01_MisspeltKeyNamesTheNearest) {
  EXPECT_TRUE(Says(ErrorOf("posix_capacity", std::string("2TiB")),
                   {"posix", "\"posix_capacity\"", "\"2TiB\"", "did you mean \"capacity\"?"}));
  EXPECT_TRUE(Says(ErrorOf("capacity_gb", std::int64_t{2}), {"did you mean \"capacity\"?"}));
  EXPECT_TRUE(Says(ErrorOf("Workers", std::int64_t{2}), {"did you mean \"workers\"?"}));
  EXPECT_TRUE(Says(ErrorOf("storage_root", std::string("/a")), {"did you mean \"roots\"?"}));
  EXPECT_TRUE(Says(ErrorOf("", true), {"\"\"", "its options: "}));
  EXPECT_TRUE(Says(ErrorOf(std::string(5000, 'k'), true), {"posix", "its options: "}));
}

TEST(OptionFaults, M01_SizeWithoutUnitIsNotGuessed) {
  EXPECT_TRUE(Says(ErrorOf("capacity", std::string("100")),
                   {"posix: capacity = \"100\"", "unit is missing", "\"100B\"", "\"100GiB\""}));
}

TEST(OptionFaults, M01_OutOfRangeNamesKeyValueAndRule) {
  EXPECT_TRUE(Says(ErrorOf("workers", std::int64_t{0}),
                   {"posix: workers = 0: ", "outside the allowed 1..1024"}));
  EXPECT_TRUE(Says(ErrorOf("capacity", std::string("2PiB")), {"\"2PiB\"", "0..1PiB"}));
  EXPECT_TRUE(Says(ErrorOf("capacity", std::int64_t{-1}), {"-1", "negative"}));
  EXPECT_TRUE(Says(ErrorOf("ratio", 1.5), {"ratio = 1.5", "0..1"}));
  EXPECT_TRUE(Says(ErrorOf("ratio", std::nan("")), {"finite"}));
  EXPECT_TRUE(Says(ErrorOf("ratio", std::numeric_limits<double>::infinity()), {"finite"}));
  EXPECT_TRUE(Says(ErrorOf("durability", std::string("dat")),
                   {"durability = \"dat\"", "none|data", "did you mean \"data\"?"}));
  EXPECT_TRUE(Says(ErrorOf("extra", std::vector<std::string>{"a", "c"}), {"\"c\"", "a|b"}));
}

TEST(OptionFaults, M01_ListThatIsNeededIsNotEmpty) {
  EXPECT_TRUE(Says(ErrorOf("roots", std::vector<std::string>{}), {"roots", "at least one"}));
  const Result<OptionSet> set = OptionSet::Complete("posix", kTable, {});
  ASSERT_FALSE(set);
  EXPECT_TRUE(Says(std::string(set.error().text()), {"posix", "\"roots\"", "must be given"}));
}

TEST(OptionFaults, M01_TextWithNulIsRefused) {
  EXPECT_TRUE(Says(ErrorOf("label", std::string("a\0b", 3)), {": not allowed: a NUL character"}));
  EXPECT_TRUE(Says(ErrorOf("roots", std::vector<std::string>{std::string("/\0", 2)}),
                   {"is not allowed: a NUL character is in it"}));
}

// M02: a value of each type for each option; exactly the right ones are taken.
TEST(OptionFaults, M02_TypesAreNotMixedUp) {
  const std::vector<std::pair<OptionInput, std::string>> values = {
      {true, "a bool"},
      {std::int64_t{1}, "an integer"},
      {0.5, "a float"},
      {std::string("data"), "a text"},
      {std::vector<std::string>{"a"}, "a list"},
  };
  const std::vector<std::pair<std::string, std::vector<std::size_t>>> accepted = {
      {"direct", {0}},     {"workers", {1}}, {"ratio", {1, 2}}, {"capacity", {1}},
      {"durability", {3}}, {"label", {3}},   {"roots", {3, 4}},
  };
  for (const auto& [key, right] : accepted) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const bool is_right = std::find(right.begin(), right.end(), i) != right.end();
      const std::string error = ErrorOf(key, values[i].first);
      if (is_right) {
        EXPECT_EQ(error, "(accepted)") << key;
      } else if (key == "capacity" && i == 3) {
        EXPECT_TRUE(Says(error, {"capacity = \"data\"", "not a size"}));
      } else {
        EXPECT_TRUE(Says(error, {"posix: " + key, values[i].second + " was given", "wanted is"}));
      }
    }
  }
}

TEST(OptionFaults, M02_EveryOptionIsReadFromText) {
  const std::vector<std::pair<std::string, std::string>> texts = {
      {"roots", "/a"},     {"capacity", "1GiB"},   {"workers", "8"}, {"ratio", "0.1"},
      {"direct", "false"}, {"durability", "data"}, {"label", "x"},   {"extra", "b"},
  };
  OptionMap given;
  for (const OptionSpecV1& spec : kTable) {
    for (const auto& [key, text] : texts) {
      if (key != spec.name) continue;
      const Result<OptionInput> value = ParseOptionText("posix", spec, text);
      ASSERT_TRUE(value) << value.error().text();
      given[key] = *value;
    }
  }
  ASSERT_EQ(given.size(), std::size(kTable));
  const Result<OptionSet> set = OptionSet::Complete("posix", kTable, given);
  ASSERT_TRUE(set) << set.error().text();
  EXPECT_EQ(set->Integer("capacity"), 1LL << 30);
  EXPECT_EQ(set->Integer("workers"), 8);
  EXPECT_EQ(set->Integer("direct"), 0);
  const Result<OptionInput> wrong = ParseOptionText("posix", kTable[4], "yes");
  ASSERT_FALSE(wrong);
  EXPECT_TRUE(Says(std::string(wrong.error().text()), {"direct = \"yes\"", "true or false"}));
}

TEST(OptionFaults, M06_ABadTableNamesThePluginAndTheFault) {
  const std::vector<std::pair<OptionSpecV1, std::string>> cases = {
      {{"workers", OptionType::kInt, 0, "0", "1..8", ""}, "default \"0\""},
      {{"workers", OptionType::kInt, 0, "x", "", ""}, "not an integer"},
      {{"workers", OptionType::kInt, 0, "1", "8..1", ""}, "ends before it begins"},
      {{"size", OptionType::kSize, 0, "4Q", "", ""}, "no unit"},
      {{"mode", OptionType::kString, 0, "c", "a|b", ""}, "not one of a|b"},
      {{"flag", OptionType::kBool, 0, "yes", "", ""}, "not a bool"},
      {{"Workers", OptionType::kInt, 0, "1", "", ""}, "snake_case"},
      {{nullptr, OptionType::kInt, 0, "1", "", ""}, "snake_case"},
      {{"workers", static_cast<OptionType>(6), 0, "1", "", ""}, "type is unknown"},
      {{"workers", OptionType::kInt, 1, "1", "", ""}, "flags"},
      {{"workers", OptionType::kInt, 0, "1", "", nullptr}, "help"},
  };
  for (const auto& [spec, words] : cases) {
    const Status status = CheckOptionTable("bad", {&spec, 1});
    EXPECT_EQ(status.code, Code::kInternal) << words;
    EXPECT_TRUE(Says(std::string(status.text()), {"bad: its plugin", words}));
    EXPECT_FALSE(OptionSet::Complete("bad", {&spec, 1}, {}));
  }
  const OptionSpecV1 twice[] = {kTable[2], kTable[2]};
  EXPECT_TRUE(Says(std::string(CheckOptionTable("bad", twice).text()), {"\"workers\" twice"}));
}

TEST(OptionSet, AStageWithoutOptionsSaysSo) {
  EXPECT_TRUE(OptionSet::Complete("null", {}, {}));
  const Result<OptionSet> set = OptionSet::Complete("null", {}, {{"x", true}});
  ASSERT_FALSE(set);
  EXPECT_TRUE(Says(std::string(set.error().text()), {"null", "\"x\"", "no options"}));
}

}  // namespace
}  // namespace ucmstore
