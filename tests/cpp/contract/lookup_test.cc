// SPDX-License-Identifier: Apache-2.0
//
// Promise 1: Lookup answers each block by itself, or up to the first miss if asked; duplicates are
// allowed; and what it refuses it refuses without an answer.
#include <algorithm>

#include "contract/contract.h"

namespace ucmstore::test {
namespace {

class LookupContract : public Contract {
 protected:
  // Stores the blocks of `ids` where `pattern` has a '1'.
  void StoreWhere(const std::vector<BlockId>& ids, const std::string& pattern) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (pattern[i] == '0') continue;
      ASSERT_TRUE(DumpBlock(store(), geometry(), ids[i], NextNonce()).ok());
    }
  }
};

TEST_P(LookupContract, AnEmptyStoreHasNothing) {
  EXPECT_EQ(Presence(store(), Ids(5)), "00000");
  EXPECT_EQ(Presence(store(), Ids(5), kStopAtMiss), "00000");
  EXPECT_EQ(AbsenceProblem(store(), geometry(), Id(0)), "");
}

TEST_P(LookupContract, EachBlockByItselfAcrossGaps) {
  const std::vector<BlockId> ids = Ids(8);
  StoreWhere(ids, "11010011");
  EXPECT_EQ(Presence(store(), ids), "11010011");
  EXPECT_EQ(Presence(store(), ids, kNoTouch), "11010011");
}

TEST_P(LookupContract, StopAtMissLeavesTheRestAbsent) {
  const std::vector<BlockId> ids = Ids(6);
  StoreWhere(ids, "110111");
  EXPECT_EQ(Presence(store(), ids, kStopAtMiss), "110000");
  EXPECT_EQ(Presence(store(), ids, kStopAtMiss | kNoTouch), "110000");
  EXPECT_EQ(Presence(store(), std::span(ids).subspan(2), kStopAtMiss), "0000");
  EXPECT_EQ(Presence(store(), std::span(ids).subspan(3), kStopAtMiss), "111");
}

TEST_P(LookupContract, DuplicatesAreAnsweredEach) {
  const std::vector<BlockId> ids = Ids(2);
  StoreWhere(ids, "10");
  const std::vector<BlockId> asked = {ids[0], ids[0], ids[1], ids[0], ids[1], ids[1], ids[0]};
  EXPECT_EQ(Presence(store(), asked), "1101001");
  EXPECT_EQ(Presence(store(), asked, kStopAtMiss), "1100000");
}

TEST_P(LookupContract, ManyBlocksAtOnce) {
  std::vector<BlockId> ids = Ids(2000);
  const std::vector<std::size_t> stored = {0, 1, 63, 64, 999, 1024, 1999};
  std::string want(ids.size(), '0');
  for (const std::size_t i : stored) {
    ASSERT_TRUE(DumpBlock(store(), geometry(), ids[i], NextNonce()).ok());
    want[i] = '1';
  }
  EXPECT_EQ(Presence(store(), ids), want);
}

TEST_P(LookupContract, NearIdsAreOtherBlocks) {
  const BlockId id = Id(0);
  ASSERT_TRUE(DumpBlock(store(), geometry(), id, NextNonce()).ok());
  std::vector<BlockId> near;
  for (std::size_t bit = 0; bit < 128; ++bit) {
    near.push_back(id);
    near.back().bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  EXPECT_EQ(Presence(store(), near), std::string(128, '0'));
  EXPECT_EQ(AbsenceProblem(store(), geometry(), near[0]), "");
  EXPECT_EQ(AbsenceProblem(store(), geometry(), near[127]), "");
}

TEST_P(LookupContract, UnusualIdsAreOrdinaryBlocks) {
  BlockId zeros{};
  BlockId ones{};
  ones.bytes.fill(std::byte{0xFF});
  for (const BlockId& id : {zeros, ones}) {
    EXPECT_FALSE(IsPresent(store(), id));
    ASSERT_TRUE(DumpBlock(store(), geometry(), id, NextNonce()).ok());
    EXPECT_TRUE(IsPresent(store(), id));
    EXPECT_EQ(BlockProblem(store(), geometry(), id), "");
  }
}

TEST_P(LookupContract, NoBlocksIsAnAnswer) {
  LookupDesc desc;
  std::uint8_t found = 0xEE;
  EXPECT_TRUE(store().Lookup(desc, &found).ok());
  EXPECT_TRUE(store().Lookup(desc, nullptr).ok());
  EXPECT_EQ(found, 0xEE);
}

TEST_P(LookupContract, ATimeoutThatIsNotReachedChangesNothing) {
  const std::vector<BlockId> ids = Ids(2);
  StoreWhere(ids, "10");
  std::vector<std::uint8_t> found(2, 0xEE);
  LookupDesc desc;
  desc.blocks = ids.data();
  desc.count = 2;
  desc.timeout_ms = kPatienceMs;
  ASSERT_TRUE(store().Lookup(desc, found.data()).ok());
  EXPECT_NE(found[0], kAbsent);
  EXPECT_EQ(found[1], kAbsent);
}

INSTANTIATE_TEST_SUITE_P(, LookupContract, testing::ValuesIn(AllCases()), CaseName);

class LookupMisuse : public Contract {
 protected:
  void ExpectRefused(const LookupDesc& desc, std::uint8_t* found) {
    const Status status = store().Lookup(desc, found);
    EXPECT_EQ(status.code, Code::kInvalidArgument) << status.message;
    EXPECT_NE(status.text(), "");
  }
};

TEST_P(LookupMisuse, IsRefusedInWords) {
  const std::vector<BlockId> ids = Ids(3);
  for (const BlockId& id : ids) ASSERT_TRUE(DumpBlock(store(), geometry(), id, NextNonce()).ok());
  std::vector<std::uint8_t> found(3, 0);
  LookupDesc good;
  good.blocks = ids.data();
  good.count = 3;
  for (std::uint32_t bit = 0; bit < 32; ++bit) {
    LookupDesc desc = good;
    desc.flags = 1U << bit;
    if ((desc.flags & kLookupFlags) == 0) ExpectRefused(desc, found.data());
  }
  LookupDesc desc = good;
  desc.struct_size = sizeof(LookupDesc) - 4;
  ExpectRefused(desc, found.data());
  desc.struct_size = 0;
  ExpectRefused(desc, found.data());
  desc = good;
  desc.blocks = nullptr;
  ExpectRefused(desc, found.data());
  ExpectRefused(good, nullptr);
  EXPECT_EQ(found, std::vector<std::uint8_t>(3, kAbsent)) << "a refusal is no answer";
  EXPECT_EQ(Presence(store(), ids), "111") << "and spoils nothing";
}

// A caller built with a later release, whose descriptor has grown at its end.
TEST_P(LookupMisuse, ALongerDescriptorIsUnderstood) {
  struct Longer {
    LookupDesc desc;
    std::uint64_t added = 0;
  } longer;
  const BlockId id = Id(0);
  ASSERT_TRUE(DumpBlock(store(), geometry(), id, NextNonce()).ok());
  longer.desc.struct_size = sizeof(Longer);
  longer.desc.blocks = &id;
  longer.desc.count = 1;
  std::uint8_t found = 0;
  ASSERT_TRUE(store().Lookup(longer.desc, &found).ok());
  EXPECT_NE(found, kAbsent);
}

INSTANTIATE_TEST_SUITE_P(, LookupMisuse, testing::ValuesIn(RawCases()), CaseName);

}  // namespace
}  // namespace ucmstore::test
