// SPDX-License-Identifier: Apache-2.0
//
// Layouts: ranks whose bytes differ never share an id, ranks that are replicas always do, and both
// sides of an engine come to the same ids.
#include "block_id/layout.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "block_id/namespace.h"

namespace ucmstore {
namespace {

using Fields = std::map<std::string, std::string>;

// What one side of an engine computes for one rank, from configuration alone.
std::vector<BlockId> IdsOfRank(const Ranks& sizes, bool replicated, const Ranks& rank,
                               std::uint32_t every = 1) {
  const Layout layout = Layout::Make(sizes, replicated).value();
  Fields fields = {{"model", "m"}, {"dtype", "bfloat16"}};
  EXPECT_TRUE(layout.AddTo(fields).ok());
  const Namespace name_space = Namespace::FromFields(fields).value();
  std::vector<std::uint8_t> hashes(256);
  std::iota(hashes.begin(), hashes.end(), std::uint8_t{0});
  std::vector<BlockId> ids(8 / every);
  const Status status = name_space.Derive(hashes, 32, every, layout.Tag(rank).value(), ids);
  EXPECT_TRUE(status.ok()) << status.text();
  return ids;
}

std::vector<Ranks> AllRanks(const Ranks& sizes) {
  std::vector<Ranks> ranks;
  for (std::uint32_t t = 0; t < sizes.tensor; ++t) {
    for (std::uint32_t p = 0; p < sizes.pipeline; ++p) {
      for (std::uint32_t c = 0; c < sizes.context; ++c) ranks.push_back({t, p, c});
    }
  }
  return ranks;
}

TEST(Layout, FieldsAndTags) {
  Fields fields;
  const Layout sharded = Layout::Make({4, 2, 1}).value();
  ASSERT_TRUE(sharded.AddTo(fields).ok());
  EXPECT_EQ(fields, (Fields{{"tp", "4"}, {"pp", "2"}, {"cp", "1"}}));
  EXPECT_EQ(sharded.Tag({3, 1, 0}).value(), "tp3 pp1 cp0");

  Fields mla;
  const Layout replicated = Layout::Make({4, 2, 1}, true).value();
  ASSERT_TRUE(replicated.AddTo(mla).ok());
  EXPECT_EQ(mla, (Fields{{"tp", "replicated"}, {"pp", "2"}, {"cp", "1"}}));
  EXPECT_EQ(replicated.Tag({3, 1, 0}).value(), "pp1 cp0");
}

TEST(Layout, RefusesInWords) {
  EXPECT_EQ(Layout::Make({1, 0, 1}).error().text(),
            "layout: the size of pp is 0, must be at least 1");
  const Layout layout = Layout::Make({4, 1, 1}, true).value();
  EXPECT_EQ(layout.Tag({4, 0, 0}).error().text(),
            "layout: rank tp is 4, must be below its size, 4");
  EXPECT_EQ(layout.Tag({0, 0, 7}).error().text(),
            "layout: rank cp is 7, must be below its size, 1");
  Fields fields = {{"pp", "3"}};
  EXPECT_EQ(layout.AddTo(fields).text(),
            "layout: the namespace has pp = \"3\" already, the layout says \"1\"");
  EXPECT_EQ(fields, (Fields{{"pp", "3"}})) << "a refusal changes nothing";
  fields = {{"pp", "1"}};
  EXPECT_TRUE(layout.AddTo(fields).ok()) << "what agrees is no conflict";
}

TEST(IdentityFaults, A13_ShardedRanksNeverShareReplicasAlwaysDo) {
  const Ranks sizes = {2, 2, 2};
  std::set<BlockId> sharded;
  std::set<BlockId> replicated;
  for (const Ranks& rank : AllRanks(sizes)) {
    for (const BlockId& id : IdsOfRank(sizes, false, rank)) sharded.insert(id);
    for (const BlockId& id : IdsOfRank(sizes, true, rank)) replicated.insert(id);
    EXPECT_EQ(IdsOfRank(sizes, true, rank),
              IdsOfRank(sizes, true, {0, rank.pipeline, rank.context}));
  }
  EXPECT_EQ(sharded.size(), 8U * 8U);
  EXPECT_EQ(replicated.size(), 8U * 4U) << "pipeline and context ranks still differ";
}

TEST(IdentityFaults, H05_PipelineRanksNeverShare) {
  EXPECT_NE(IdsOfRank({1, 2, 1}, false, {0, 0, 0}), IdsOfRank({1, 2, 1}, false, {0, 1, 0}));
  EXPECT_NE(IdsOfRank({1, 2, 1}, true, {0, 0, 0}), IdsOfRank({1, 2, 1}, true, {0, 1, 0}));
}

// The scheduler asks for all ranks, each worker for its own; each from its own copy of the
// configuration.
TEST(IdentityFaults, H11_SchedulerAndWorkersAgreeOnEveryRank) {
  for (const std::uint32_t tp : {1U, 2U, 4U, 8U}) {
    const Ranks sizes = {tp, 1, 1};
    std::vector<std::vector<BlockId>> scheduler;
    for (const Ranks& rank : AllRanks(sizes)) scheduler.push_back(IdsOfRank(sizes, false, rank, 2));
    std::set<BlockId> all;
    for (std::uint32_t r = 0; r < tp; ++r) {
      EXPECT_EQ(IdsOfRank(sizes, false, {r, 0, 0}, 2), scheduler[r])
          << "tp " << tp << " rank " << r;
      all.insert(scheduler[r].begin(), scheduler[r].end());
    }
    EXPECT_EQ(all.size(), tp * 4U);
  }
}

TEST(IdentityFaults, H12_WorldSizeMattersOnlyWhereBytesDiffer) {
  const auto dumped = IdsOfRank({4, 1, 1}, true, {3, 0, 0});
  EXPECT_EQ(IdsOfRank({8, 1, 1}, true, {7, 0, 0}), dumped);
  EXPECT_EQ(IdsOfRank({1, 1, 1}, true, {0, 0, 0}), dumped);

  std::set<BlockId> sharded;
  for (const std::uint32_t tp : {1U, 4U, 8U}) {
    for (const BlockId& id : IdsOfRank({tp, 1, 1}, false, {0, 0, 0})) sharded.insert(id);
  }
  EXPECT_EQ(sharded.size(), 3U * 8U);
  EXPECT_NE(IdsOfRank({1, 1, 1}, false, {0, 0, 0}), dumped);
}

}  // namespace
}  // namespace ucmstore
