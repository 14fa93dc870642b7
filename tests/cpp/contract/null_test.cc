// SPDX-License-Identifier: Apache-2.0
//
// Null keeps the contract but for one thing: it accepts everything and finds nothing. So it has a
// suite of its own, alone and below a Fault.
#include "contract/contract.h"
#include "support/checks.h"

namespace ucmstore::test {
namespace {

class NullContract : public testing::TestWithParam<const char*> {
 protected:
  NullContract() {
    config_.spec = GetParam();
    config_.geometry = {1000, 30};
    store_ = OpenRaw(config_);
  }
  StackConfig config_;
  std::unique_ptr<TestStore> store_;
};

TEST_P(NullContract, AcceptsEverythingAndFindsNothing) {
  for (std::uint64_t b = 0; b < 5; ++b) {
    const BlockId id = MakeId(1, b);
    DumpBatch dump(config_.geometry);
    dump.AddBlock(id, NextNonce());
    EXPECT_TRUE(Finish(*store_, dump).ok());
    for (std::size_t i = 0; i < dump.size(); ++i) {
      EXPECT_EQ(dump.result(i).code, Code::kOk);
      EXPECT_EQ(dump.result(i).bytes, config_.geometry.shard_size);
    }
    EXPECT_FALSE(IsPresent(*store_, id));
    EXPECT_EQ(AbsenceProblem(*store_, config_.geometry, id), "");
  }
}

TEST_P(NullContract, ShortShardsAndSingleShardsAreAccepted) {
  for (std::uint32_t i = 0; i < config_.geometry.shards_per_block; ++i) {
    DumpBatch dump(config_.geometry);
    dump.Add(MakeId(2, 0), i, NextNonce(), i + 1);
    EXPECT_TRUE(Finish(*store_, dump).ok());
    EXPECT_EQ(dump.result(0).bytes, i + 1);
  }
}

TEST_P(NullContract, TheRestOfTheContractHolds) {
  CheckRetirement(*store_, config_.geometry, MakeId(3, 0));
  CheckOnDone(*store_, config_.geometry, MakeId(3, 1));
  LoadBatch prefetch(config_.geometry);
  prefetch.AddPrefetch(MakeId(3, 2), 0);
  EXPECT_EQ(Finish(*store_, prefetch).code, Code::kNotFound);
  TaskId task = 77;
  DumpBatch bad(config_.geometry);
  bad.Add(MakeId(3, 3), 30, 1);
  EXPECT_EQ(store_->Dump(bad.desc(), &task).code, Code::kInvalidArgument);
  EXPECT_EQ(task, 0U);
  std::vector<std::uint8_t> found(3, 0xEE);
  const BlockId ids[3] = {MakeId(3, 0), MakeId(3, 0), MakeId(3, 4)};
  LookupDesc desc;
  desc.blocks = ids;
  desc.count = 3;
  EXPECT_TRUE(store_->Lookup(desc, found.data()).ok());
  EXPECT_EQ(found, std::vector<std::uint8_t>(3, kAbsent));
  EXPECT_TRUE(store_->Close(kPatienceMs));
}

std::string NameOf(const testing::TestParamInfo<const char*>& info) {
  return std::string(info.param) == "Null" ? "Null" : "Fault_Null";
}

INSTANTIATE_TEST_SUITE_P(, NullContract, testing::Values("Null", "Fault|Null"), NameOf);

}  // namespace
}  // namespace ucmstore::test
