// SPDX-License-Identifier: Apache-2.0
//
// The grammar of specs, by example and by random text.
#include "pipeline/spec.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "support/random.h"

namespace ucmstore {
namespace {

std::string Describe(std::string_view spec) {
  const Result<std::vector<SpecStage>> stages = ParseSpec(spec);
  if (!stages) return "error: " + std::string(stages.error().text());
  std::string text;
  for (const SpecStage& stage : *stages) {
    text += (text.empty() ? "" : " ") + stage.name + "@" + std::to_string(stage.column) + "=" +
            stage.label + (stage.is_url ? "(url)" : "");
  }
  return text;
}

TEST(Spec, ReadsAnyStackOfStages) {
  EXPECT_EQ(Describe("Posix"), "Posix@1=posix");
  EXPECT_EQ(Describe("Cache|Compress|Posix"), "Cache@1=cache Compress@7=compress Posix@16=posix");
  EXPECT_EQ(Describe(" Cache |\tPosix "), "Cache@2=cache Posix@10=posix");
  EXPECT_EQ(Describe("X9|y"), "X9@1=x9 y@4=y");
  EXPECT_EQ(Describe("Fault|Fault|Fault|Dram"),
            "Fault@1=fault Fault@7=fault#2 Fault@13=fault#3 Dram@19=dram");
}

TEST(Spec, ReadsAUrlAsTheLastStage) {
  EXPECT_EQ(Describe("Cache|redis://host:6379/0?x=1#y"),
            "Cache@1=cache redis://host:6379/0?x=1#y@7=redis(url)");
  EXPECT_EQ(Describe("s3+tls.1-x://bucket"), "s3+tls.1-x://bucket@1=s3+tls.1-x(url)");
}

TEST(Spec, ErrorsNameColumnAndPiece) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"", {"column 1", "a stage is missing"}},
      {"   ", {"column 4", "a stage is missing"}},
      {"|Posix", {"column 1", "a stage is missing"}},
      {"Cache|", {"column 7", "a stage is missing"}},
      {"Cache||Posix", {"column 7", "a stage is missing"}},
      {"Cache|Po-six", {"column 9", "\"Po-six\"", "\"-\" cannot be here"}},
      {"9Posix", {"column 1", "\"9Posix\"", "\"9\""}},
      {"Cache/Posix", {"column 6", "\"/\""}},
      {"Cache,Posix", {"column 6", "\",\""}},
      {"Cache Posix", {"column 6", "\" \""}},
      {"Cache|../x", {"column 7", "\"../x\""}},
      {"Posix\n", {"column 6", "\\x0a"}},
      {std::string("Pos\0ix", 6), {"column 4", "\\x00"}},
      {"P\xC3\xB6six", {"column 2", "\\xc3"}},
      {"redis://x|Posix", {"column 1", "may only be the last stage"}},
      {"Cache|redis://", {"column 7", "names nothing"}},
      {"redis://a b", {"column 10", "cannot be in a url"}},
      {"://x", {"column 1", "\":\""}},
      {"9p://x", {"column 1", "\"9\""}},
      {std::string(65, 'a'), {"column 1", "more than 64"}},
      {std::string(5000, 'a'), {"column 4097", "at most 4096"}},
  };
  for (const auto& [spec, words] : cases) {
    const std::string error = Describe(spec);
    for (const std::string& word : words) {
      EXPECT_NE(error.find(word), std::string::npos) << "\"" << spec << "\" gave " << error;
    }
  }
}

TEST(Spec, DepthIsBounded) {
  std::string spec = "A";
  for (std::size_t i = 1; i < kMaxStages; ++i) spec += "|A";
  EXPECT_TRUE(ParseSpec(spec));
  spec += "|A";
  EXPECT_NE(Describe(spec).find("column 33: a spec has at most 16 stages"), std::string::npos)
      << Describe(spec);
}

TEST(Spec, RandomTextNeverCrashes) {
  test::Random random;
  constexpr std::string_view kAlphabet = "aZ9|| \t:/.+-\0\n\xFF";
  int accepted = 0;
  for (int i = 0; i < 100'000; ++i) {
    std::string spec;
    const std::uint64_t length = random.Between(0, 20);
    for (std::uint64_t j = 0; j < length; ++j) {
      spec += kAlphabet[random.Between(0, kAlphabet.size() - 1)];
    }
    const Result<std::vector<SpecStage>> stages = ParseSpec(spec);
    if (!stages) {
      ASSERT_EQ(stages.error().code, Code::kInvalidArgument);
      ASSERT_TRUE(stages.error().text().starts_with("spec column ")) << stages.error().text();
      continue;
    }
    ++accepted;
    // What was read is what is written at its column, and written out again reads the same.
    std::string again;
    for (const SpecStage& stage : *stages) {
      ASSERT_EQ(spec.compare(stage.column - 1, stage.name.size(), stage.name), 0) << spec;
      again += (again.empty() ? "" : "|") + stage.name;
    }
    const Result<std::vector<SpecStage>> second = ParseSpec(again);
    ASSERT_TRUE(second) << again;
    ASSERT_EQ(second->size(), stages->size());
  }
  EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace ucmstore
