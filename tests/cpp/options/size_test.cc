// SPDX-License-Identifier: Apache-2.0
//
// Sizes: every form that is read, every form that is refused and why.
#include "options/size.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "support/random.h"

namespace ucmstore {
namespace {

TEST(Size, ReadsWhatPeopleWrite) {
  const std::vector<std::pair<std::string, std::uint64_t>> cases = {
      {"0", 0},
      {"4096", 4096},
      {"4096B", 4096},
      {"512KiB", 512ULL << 10},
      {"512 KiB", 512ULL << 10},
      {"  2TiB ", 2ULL << 40},
      {"4GB", 4'000'000'000},
      {"4gb", 4'000'000'000},
      {"64kib", 64ULL << 10},
      {"1PiB", 1ULL << 50},
      {"7EiB", 7ULL << 60},
      {"1.5GiB", 3ULL << 29},
      {"0.5KiB", 512},
      {"0.1GB", 100'000'000},
      {"1.000KiB", 1024},
      {"2.50KB", 2500},
      {"007MB", 7'000'000},
      {"9223372036854775807", INT64_MAX},
      {"9223372036854775807B", INT64_MAX},
  };
  for (const auto& [text, bytes] : cases) {
    const Result<std::uint64_t> size = ParseSize(text);
    ASSERT_TRUE(size) << text << ": " << size.error().text();
    EXPECT_EQ(*size, bytes) << text;
  }
}

TEST(Size, RefusesInWords) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "missing"},
      {"   ", "missing"},
      {"-1", "negative"},
      {"-1GiB", "negative"},
      {"+1", "not a size"},
      {"GiB", "not a size"},
      {".5GiB", "not a size"},
      {"1.GiB", "not a size"},
      {"1,5GiB", "no unit"},
      {"1e9", "no unit"},
      {"1_000", "no unit"},
      {"0x10", "no unit"},
      {"12Q", "no unit"},
      {"12 apples", "no unit"},
      {"4KiBs", "no unit"},
      {"4K", "KiB (powers of 1024) or KB"},
      {"4gi", "GiB (powers of 1024) or GB"},
      {"4Gb", "reads as bits"},
      {"4Kb", "reads as bits"},
      {"0.1KiB", "whole number of bytes"},
      {"1.5B", "whole number of bytes"},
      {"1.5", "whole number of bytes"},
      {"8EiB", "largest"},
      {"9223372036854775808", "largest"},
      {"99999999999999999999999999999999999999999999", "largest"},
      {"9999999999EiB", "largest"},
      {"0.1234567890123456789GiB", "18 digits"},
      {std::string("4\0KiB", 5), "no unit"},
      {"4\xFF", "no unit"},
  };
  for (const auto& [text, words] : cases) {
    const Result<std::uint64_t> size = ParseSize(text);
    ASSERT_FALSE(size) << text << " gave " << *size;
    EXPECT_NE(size.error().text().find(words), std::string::npos)
        << text << ": " << size.error().text();
    EXPECT_EQ(size.error().code, Code::kInvalidArgument);
  }
}

TEST(Size, PrinterAndParserAreInverse) {
  EXPECT_EQ(FormatSize(0), "0B");
  EXPECT_EQ(FormatSize(1000), "1000B");
  EXPECT_EQ(FormatSize(512 << 10), "512KiB");
  EXPECT_EQ(FormatSize(1ULL << 60), "1EiB");
  test::Random random;
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t bytes = random.Between(0, kMaxSize) >> random.Between(0, 62)
                                                                   << random.Between(0, 20);
    if (bytes > kMaxSize) continue;
    const Result<std::uint64_t> again = ParseSize(FormatSize(bytes));
    ASSERT_TRUE(again) << bytes;
    ASSERT_EQ(*again, bytes);
  }
}

TEST(Size, RandomTextNeverCrashes) {
  test::Random random;
  constexpr std::string_view kAlphabet = "0123456789.KMGTPEiBb -+e\0\xFF";
  for (int i = 0; i < 50'000; ++i) {
    std::string text;
    const std::uint64_t length = random.Between(0, 24);
    for (std::uint64_t j = 0; j < length; ++j) {
      text += kAlphabet[random.Between(0, kAlphabet.size() - 1)];
    }
    const Result<std::uint64_t> size = ParseSize(text);
    if (size) {
      ASSERT_LE(*size, kMaxSize) << text;
    } else {
      ASSERT_FALSE(size.error().text().empty()) << text;
    }
  }
}

TEST(Size, KnowsABareNumber) {
  EXPECT_TRUE(IsBareNumber("100"));
  EXPECT_TRUE(IsBareNumber(" 100 "));
  EXPECT_FALSE(IsBareNumber("100B"));
  EXPECT_FALSE(IsBareNumber("1.5"));
  EXPECT_FALSE(IsBareNumber(""));
}

}  // namespace
}  // namespace ucmstore
