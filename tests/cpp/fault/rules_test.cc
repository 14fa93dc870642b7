// SPDX-License-Identifier: Apache-2.0
//
// The rules of a Fault stage: the grammar, in words where it is broken, and which shards a rule
// meets.
#include "store/fault/rules.h"

#include <gtest/gtest.h>

#include <string>

namespace ucmstore::fault {
namespace {

// 'x' for each of n shards that a load rule acts on.
std::string Hits(Rules& rules, int n, std::uint32_t shards = 4) {
  std::string hits;
  for (int i = 0; i < n; ++i) {
    const Plan plan = rules.PlanFor(Call::kLoad, static_cast<std::uint32_t>(i) % shards);
    hits += plan.at(Point::kBefore).failure ? 'x' : '.';
  }
  return hits;
}

std::string HitsOf(const std::string& rule, int n) {
  Rules rules(1);
  EXPECT_TRUE(rules.Add(rule).has_value()) << rule;
  return Hits(rules, n);
}

TEST(FaultRules, ChooseTheirShards) {
  EXPECT_EQ(HitsOf("load fail", 4), "xxxx");
  EXPECT_EQ(HitsOf("load fail nth=3", 6), "..x...");
  EXPECT_EQ(HitsOf("load fail every=3", 7), "..x..x.");
  EXPECT_EQ(HitsOf("load fail count=2", 5), "xx...");
  EXPECT_EQ(HitsOf("load fail shard=1", 8), ".x...x..");
  EXPECT_EQ(HitsOf("load fail shard=1 nth=2", 12), ".....x......") << "the 2nd of that shard";
  EXPECT_EQ(HitsOf("load fail every=2 count=2", 8), ".x.x....");
  EXPECT_EQ(HitsOf("load fail chance=0", 8), "........");
  EXPECT_EQ(HitsOf("load fail chance=1", 4), "xxxx");
  EXPECT_EQ(HitsOf("  load   fail  ", 2), "xx");
  EXPECT_EQ(HitsOf("dump fail", 4), "....");
}

TEST(FaultRules, ChanceIsSeeded) {
  const auto draw = [](std::uint64_t seed) {
    Rules rules(seed);
    EXPECT_TRUE(rules.Add("load fail chance=0.5").has_value());
    return Hits(rules, 64);
  };
  EXPECT_EQ(draw(7), draw(7));
  EXPECT_NE(draw(7), draw(8));
}

TEST(FaultRules, FailuresCarryCodeAndErrno) {
  Rules rules(1);
  ASSERT_TRUE(rules.Add("load fail=no_space errno=28 when=after").has_value());
  const Plan plan = rules.PlanFor(Call::kLoad, 0);
  EXPECT_FALSE(plan.at(Point::kBefore).failure);
  ASSERT_TRUE(plan.at(Point::kAfter).failure);
  EXPECT_EQ(plan.at(Point::kAfter).failure->code, Code::kNoSpace);
  EXPECT_EQ(plan.at(Point::kAfter).failure->sys_errno, 28);
}

TEST(FaultRules, EveryCodeHasAWord) {
  for (const char* code :
       {"not_found", "invalid_argument", "unsupported", "busy", "no_space", "timeout", "cancelled",
        "aborted", "corruption", "io_error", "system_limit", "closed", "internal_error"}) {
    Rules rules(1);
    EXPECT_TRUE(rules.Add(std::string("load fail=") + code).has_value()) << code;
  }
}

TEST(FaultRules, RefusalsAreOfCallsNotOfShards) {
  Rules rules(1);
  ASSERT_TRUE(rules.Add("dump refuse nth=2").has_value());
  ASSERT_TRUE(rules.Add("lookup refuse=io_error count=1").has_value());
  EXPECT_FALSE(rules.Refusal(Call::kDump));
  EXPECT_FALSE(rules.Refusal(Call::kLoad));
  ASSERT_TRUE(rules.Refusal(Call::kDump));
  EXPECT_FALSE(rules.Refusal(Call::kDump));
  EXPECT_EQ(rules.Refusal(Call::kLookup)->code, Code::kIoError);
  EXPECT_FALSE(rules.Refusal(Call::kLookup));
}

TEST(FaultRules, AddUp) {
  Rules rules(1);
  for (const char* rule : {"load delay=5", "load delay=7", "load flip", "load short=3",
                           "load short=4", "load scribble", "load hold when=after"}) {
    ASSERT_TRUE(rules.Add(rule).has_value()) << rule;
  }
  const Plan plan = rules.PlanFor(Call::kLoad, 0);
  EXPECT_EQ(plan.at(Point::kBefore).delay_ms, 12U);
  EXPECT_TRUE(plan.flips);
  EXPECT_EQ(plan.short_bytes, 7U);
  EXPECT_EQ(plan.scribble_ms, 0U);
  EXPECT_EQ(plan.at(Point::kAfter).hold_rule, 7U);
  EXPECT_EQ(rules.AllHits(), 7U);
}

TEST(FaultRules, DisarmedRulesKeepTheirCount) {
  Rules rules(1);
  const std::uint64_t first = rules.Add("load fail").value();
  const std::uint64_t second = rules.Add("load fail").value();
  EXPECT_NE(first, second);
  EXPECT_EQ(Hits(rules, 3), "xxx");
  rules.Remove(first);
  EXPECT_EQ(Hits(rules, 2), "xx");
  rules.Remove(0);
  EXPECT_EQ(Hits(rules, 2), "..");
  EXPECT_EQ(rules.Hits(first), 3U);
  EXPECT_EQ(rules.Hits(second), 5U);
  EXPECT_EQ(rules.Hits(99), 0U);
}

TEST(FaultRules, ABrokenRuleIsNamed) {
  for (const char* text : {"",
                           "load",
                           "store fail",
                           "load explode",
                           "load fail=no_such_code",
                           "load fail=pending",
                           "load fail=ok",
                           "load delay",
                           "load delay=",
                           "load delay=x",
                           "load delay=-1",
                           "load throw=1",
                           "load fail nth",
                           "load fail nth=0",
                           "load fail nth=1x",
                           "load fail when=later",
                           "load fail chance=2",
                           "load fail color=red",
                           "dump flip",
                           "dump short=1",
                           "dump scribble",
                           "lookup fail",
                           "lookup throw",
                           "load hold=1",
                           "load short"}) {
    Rules rules(1);
    const auto added = rules.Add(text);
    ASSERT_FALSE(added.has_value()) << text;
    EXPECT_EQ(added.error().code, Code::kInvalidArgument);
    EXPECT_NE(added.error().text().find("rule '" + std::string(text) + "'"), std::string_view::npos)
        << added.error().message;
  }
}

}  // namespace
}  // namespace ucmstore::fault
