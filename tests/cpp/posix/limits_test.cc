// SPDX-License-Identifier: Apache-2.0
//
// The text of `.capacity`, the arithmetic of marks, and the cut that follows from a sample of ages.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "store/posix/age_sample.h"
#include "store/posix/limits.h"
#include "support/random.h"

namespace ucmstore::test {
namespace {

TEST(LimitsTest, AreReadAsTheyWereWritten) {
  for (const Limits& limits :
       {Limits{}, Limits{.capacity_bytes = 1, .high_mark = 2, .low_mark = 1},
        Limits{.capacity_bytes = UINT64_MAX - 1, .high_mark = 100, .low_mark = 99}}) {
    const std::string text = PrintLimits(limits);
    EXPECT_LE(text.size(), kMaxLimitsText);
    const Result<Limits> read = ParseLimits(text);
    ASSERT_TRUE(read) << text;
    EXPECT_EQ(*read, limits);
    EXPECT_TRUE(ParseLimits(text + "what a longer text has left\n"));
    for (std::size_t i = 0; i < text.size(); ++i) {
      std::string changed = text;
      changed[i] = static_cast<char>(changed[i] ^ 1);
      EXPECT_FALSE(ParseLimits(changed)) << changed;
      EXPECT_FALSE(ParseLimits(text.substr(0, i))) << i;
    }
  }
  // As docs/format.md has it.
  EXPECT_EQ(PrintLimits({.capacity_bytes = std::uint64_t{2} << 40}),
            "ucmstore capacity 1\ncapacity: 2199023255552\nhigh_mark: 97\nlow_mark: 95\n"
            "crc32c: 31bb14f4\n");
  const Result<Limits> newer = ParseLimits("ucmstore capacity 2\nanything\n");
  ASSERT_FALSE(newer);
  EXPECT_EQ(newer.error().code, Code::kUnsupported);
}

TEST(LimitsTest, MarksDoNotOverflow) {
  EXPECT_EQ(Limits::PerCent(1000, 95), 950U);
  EXPECT_EQ(Limits::PerCent(99, 50), 49U);
  EXPECT_EQ(Limits::PerCent(UINT64_MAX, 100), UINT64_MAX);
  EXPECT_EQ(Limits{}.BytesOn(1000), 800U);
  EXPECT_EQ(Limits{}.BytesOn(0), 0U);
  EXPECT_EQ(Limits{.capacity_bytes = 7}.BytesOn(1000), 7U);
}

TEST(AgeSampleTest, TheCutIsExactWhereAllIsSeen) {
  AgeSample ages(1);
  ages.BeginGroup();
  for (std::int64_t age = 9; age >= 0; --age) ages.Add(age, 10);
  EXPECT_EQ(ages.Bytes(), 100U);
  Cut cut = ages.CutFor(30);
  EXPECT_EQ(cut.mtime_ns, 2);
  EXPECT_EQ(cut.tie_bytes, 10U);
  cut = ages.CutFor(31);
  EXPECT_EQ(cut.mtime_ns, 3);
  EXPECT_EQ(cut.tie_bytes, 1U);
  EXPECT_EQ(ages.CutFor(101).mtime_ns, INT64_MAX);
}

TEST(AgeSampleTest, AGroupStandsForMore) {
  AgeSample ages(1);
  ages.BeginGroup();
  ages.Add(1, 10);
  ages.ScaleGroup(3);
  ages.BeginGroup();
  ages.Add(2, 10);
  EXPECT_EQ(ages.Bytes(), 40U);
  EXPECT_EQ(ages.CutFor(30).mtime_ns, 1);
  EXPECT_EQ(ages.CutFor(31).mtime_ns, 2);
}

// Far more than it keeps: memory is bounded, and sum and cut are about right.
TEST(AgeSampleTest, AFullOneIsThinned) {
  constexpr std::size_t kEntries = 4096;
  constexpr std::int64_t kBlocks = 300'000;
  AgeSample ages(Random().seed(), kEntries);
  ages.BeginGroup();
  for (std::int64_t i = 0; i < kBlocks; ++i) ages.Add(i, 100);
  EXPECT_LE(ages.size(), kEntries);
  EXPECT_GE(ages.size(), kEntries / 4);
  // At least 1024 of 300,000: 3 % is one standard deviation.
  EXPECT_NEAR(static_cast<double>(ages.Bytes()), 100.0 * kBlocks, 0.2 * 100 * kBlocks);
  const std::uint64_t half = ages.Bytes() / 2;
  EXPECT_NEAR(static_cast<double>(ages.CutFor(half).mtime_ns), kBlocks / 2.0, 0.2 * kBlocks);
}

}  // namespace
}  // namespace ucmstore::test
