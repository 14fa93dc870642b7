// SPDX-License-Identifier: Apache-2.0
//
// Quoting and nearest names.
#include "options/words.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/random.h"

namespace ucmstore {
namespace {

TEST(Words, QuoteShowsWhatIsThere) {
  EXPECT_EQ(Quote("posix"), "\"posix\"");
  EXPECT_EQ(Quote("a\"b\\c"), "\"a\\\"b\\\\c\"");
  EXPECT_EQ(Quote(std::string("a\0\n\xC3\xA9", 5)), "\"a\\x00\\x0a\\xc3\\xa9\"");
  const std::string quoted = Quote("begin" + std::string(5000, 'x') + "end");
  EXPECT_LT(quoted.size(), 64U);
  EXPECT_TRUE(quoted.starts_with("\"begin"));
  EXPECT_TRUE(quoted.ends_with("end\""));
}

TEST(Words, DistanceCountsEdits) {
  EXPECT_EQ(NameDistance("posix", "posix"), 0U);
  EXPECT_EQ(NameDistance("posix", "posx"), 1U);
  EXPECT_EQ(NameDistance("posix", "poxis"), 2U);
  EXPECT_EQ(NameDistance("posix", "psoix"), 1U);  // neighbours swapped
  EXPECT_EQ(NameDistance("", "abcd"), 4U);
  EXPECT_EQ(NameDistance("abcd", ""), 4U);
}

TEST(Words, DistanceLeavesCaseAndSeparatorsAside) {
  EXPECT_EQ(NameDistance("Max_Tasks", "max-tasks"), 0U);
  EXPECT_EQ(NameDistance("maxTasks", "max_tasks"), 0U);
  EXPECT_EQ(NameDistance("io.engine", "io_engine"), 0U);
}

TEST(Words, NearestIsTheOneMeant) {
  const std::vector<std::string> options = {"roots", "capacity", "durability", "io_engine",
                                            "max_open_files"};
  EXPECT_EQ(Nearest("posix_capacity", options), "capacity");
  EXPECT_EQ(Nearest("capacity_gb", options), "capacity");
  EXPECT_EQ(Nearest("Capactiy", options), "capacity");
  EXPECT_EQ(Nearest("root", options), "roots");
  EXPECT_EQ(Nearest("storage_roots", options), "roots");
  EXPECT_EQ(Nearest("ioEngine", options), "io_engine");
  EXPECT_EQ(Nearest("max-open-file", options), "max_open_files");
  EXPECT_EQ(Nearest("x", {}), "");
}

TEST(Words, NothingIsMeantByAStrangeWord) {
  const std::vector<std::string> words = {"none", "data"};
  EXPECT_EQ(Nearest("fsync", words), "");
  EXPECT_EQ(Nearest("", words), "");
  EXPECT_EQ(Nearest(std::string(5000, 'k'), words), "");
  EXPECT_EQ(Nearest("0600", std::vector<std::string>{"private", "group", "world"}), "");
  EXPECT_EQ(Nearest("nosuch", std::vector<std::string>{"dram", "null", "posix"}), "");
  EXPECT_EQ(DidYouMean("fsync", words), "");
  EXPECT_EQ(DidYouMean("Date", words), "; did you mean \"data\"?");
}

TEST(Words, DistanceIsSymmetricAndBounded) {
  test::Random random;
  const auto word = [&random] {
    std::string text;
    const std::uint64_t length = random.Between(0, 200);
    for (std::uint64_t i = 0; i < length; ++i) {
      text += static_cast<char>(random.Between(0, 255));
    }
    return text;
  };
  for (int i = 0; i < 500; ++i) {
    const std::string a = word();
    const std::string b = word();
    ASSERT_EQ(NameDistance(a, b), NameDistance(b, a));
    ASSERT_EQ(NameDistance(a, a), 0U);
    ASSERT_LE(NameDistance(a, b), 64U);
  }
}

}  // namespace
}  // namespace ucmstore
