// SPDX-License-Identifier: Apache-2.0
//
// Ranges: bounds included, words exact, and what cannot be a range.
#include "options/range.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace ucmstore {
namespace {

TEST(Range, BoundsAreIncluded) {
  const Result<Range> range = Range::Parse(OptionType::kInt, "-1..1024");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->Check(std::int64_t{-1}), "");
  EXPECT_EQ(range->Check(std::int64_t{1024}), "");
  EXPECT_NE(range->Check(std::int64_t{-2}), "");
  EXPECT_EQ(range->Check(std::int64_t{1025}), "outside the allowed -1..1024");
}

TEST(Range, SizesAreWrittenAsSizes) {
  const Result<Range> range = Range::Parse(OptionType::kSize, "4KiB..1TiB");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->Check(std::int64_t{4096}), "");
  EXPECT_EQ(range->Check(std::int64_t{1} << 40), "");
  EXPECT_NE(range->Check(std::int64_t{4095}), "");
  EXPECT_NE(range->Check((std::int64_t{1} << 40) + 1), "");
}

TEST(Range, Floats) {
  const Result<Range> range = Range::Parse(OptionType::kFloat, "0..0.5");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->Check(0.5), "");
  EXPECT_NE(range->Check(0.50001), "");
  EXPECT_NE(range->Check(-0.1), "");
}

TEST(Range, WordsAreExactAndTheNearestIsNamed) {
  const Result<Range> range = Range::Parse(OptionType::kString, "none|data|full");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->Check(std::string_view("data")), "");
  EXPECT_EQ(range->Check(std::string_view("Data")),
            "not one of none|data|full; did you mean \"data\"?");
  EXPECT_NE(range->Check(std::string_view("")), "");
}

TEST(Range, NoneMeansAnyValue) {
  for (const char* text : {static_cast<const char*>(nullptr), ""}) {
    const Result<Range> range = Range::Parse(OptionType::kInt, text);
    ASSERT_TRUE(range);
    EXPECT_EQ(range->Check(std::int64_t{INT64_MIN}), "");
  }
}

TEST(Range, RefusesWhatIsNone) {
  const std::vector<std::pair<OptionType, const char*>> cases = {
      {OptionType::kInt, "5"},           {OptionType::kInt, "1.."},
      {OptionType::kInt, "..5"},         {OptionType::kInt, "5..1"},
      {OptionType::kInt, "a..b"},        {OptionType::kInt, "1..99999999999999999999"},
      {OptionType::kFloat, "0..nan"},    {OptionType::kFloat, "1..0"},
      {OptionType::kSize, "-1..5"},      {OptionType::kSize, "4KiB..2KiB"},
      {OptionType::kString, "a||b"},     {OptionType::kString, "|"},
      {OptionType::kBool, "true|false"},
  };
  for (const auto& [type, text] : cases) EXPECT_FALSE(Range::Parse(type, text)) << text;
}

TEST(Range, NumbersAreWholeTexts) {
  EXPECT_EQ(ParseInt("-9223372036854775808").value_or(0), INT64_MIN);
  for (const char* text : {"", " 1", "1 ", "+1", "1.0", "0x1", "9223372036854775808"}) {
    EXPECT_FALSE(ParseInt(text)) << text;
  }
  EXPECT_EQ(ParseFloat("2.5e3").value_or(0), 2500.0);
  for (const char* text : {"", "inf", "nan", "1e999", "1,5"})
    EXPECT_FALSE(ParseFloat(text)) << text;
}

}  // namespace
}  // namespace ucmstore
