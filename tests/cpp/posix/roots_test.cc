// SPDX-License-Identifier: Apache-2.0
//
// Several roots: a block's home follows from its id and the roots' own ids, so neither the order of
// the list nor the paths matter, and one root more moves its share and nothing else.
#include <gtest/gtest.h>

#include <algorithm>

#include "posix/posix_fixture.h"

namespace ucmstore::test {
namespace {

constexpr std::uint64_t kBlocks = 120;

class PosixRoots : public PosixFaults {
 protected:
  PosixConfig ConfigOf(const std::vector<std::string>& names) {
    PosixConfig config = Config();
    config.roots.clear();
    for (const std::string& name : names) config.roots.push_back(dir_.string() + "/" + name);
    return config;
  }
  static void DumpAll(PosixStore& store) {
    DumpBatch dump(kSmall);
    for (std::uint64_t i = 0; i < kBlocks; ++i) dump.AddBlock(MakeId(1, i), 1);
    ASSERT_TRUE(Finish(store, dump).ok());
  }
  static std::uint64_t Good(PosixStore& store) {
    std::uint64_t good = 0;
    for (std::uint64_t i = 0; i < kBlocks; ++i) {
      if (!IsPresent(store, MakeId(1, i))) continue;
      EXPECT_EQ(BlockProblem(store, kSmall, MakeId(1, i), 1), "");
      ++good;
    }
    return good;
  }
};

TEST_F(PosixRoots, EachTakesItsShareAndAnyOrderFindsEveryBlock) {
  DumpAll(*PosixStore::Open(ConfigOf({"0", "1", "2"})));
  for (const char* root : {"0", "1", "2"}) {
    const std::size_t files = FilesBelow(dir_.path() / root).size();
    EXPECT_GT(files, kBlocks / 6) << root;
    EXPECT_LT(files, kBlocks / 2) << root;
  }
  std::vector<std::string> order{"0", "1", "2"};
  do {
    EXPECT_EQ(Good(*PosixStore::Open(ConfigOf(order))), kBlocks);
  } while (std::ranges::next_permutation(order).found);
  stdfs::rename(dir_.path() / "1", dir_.path() / "elsewhere");
  EXPECT_EQ(Good(*PosixStore::Open(ConfigOf({"elsewhere", "2", "0"}))), kBlocks);
}

TEST_F(PosixRoots, OneMoreMovesOnlyItsShareAndWithoutItTheyAreBack) {
  DumpAll(*PosixStore::Open(ConfigOf({"0", "1", "2"})));
  const PosixConfig more = ConfigOf({"new", "2", "1", "0"});
  const auto store = PosixStore::Open(more);
  std::uint64_t moved = 0;
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    const bool is_moved = HomeOf(more.roots, MakeId(1, i)) == 0;
    EXPECT_EQ(IsPresent(*store, MakeId(1, i)), !is_moved);
    moved += is_moved ? 1 : 0;
  }
  EXPECT_GT(moved, kBlocks / 8);
  EXPECT_LT(moved, kBlocks / 2);
  EXPECT_EQ(Good(*PosixStore::Open(ConfigOf({"2", "0", "1"}))), kBlocks);
}

TEST_F(PosixRoots, ACopyOfARootIsRefusedBesideIt) {
  DumpAll(*PosixStore::Open(ConfigOf({"0"})));
  stdfs::copy(dir_.path() / "0", dir_.path() / "1", stdfs::copy_options::recursive);
  Status status;
  (void)PosixStore::Try(ConfigOf({"0", "1"}), &status);
  EXPECT_EQ(status.code, Code::kInvalidArgument);
  EXPECT_NE(status.text().find("copy of the other"), std::string_view::npos) << status.message;
}

TEST_F(PosixRoots, TheIdentityIsThatOfTheRootsInAnyOrder) {
  const std::string identity = PosixStore::Open(ConfigOf({"0", "1", "2"}))->stage().Identity();
  EXPECT_EQ(PosixStore::Open(ConfigOf({"2", "0", "1"}))->stage().Identity(), identity);
  EXPECT_NE(PosixStore::Open(ConfigOf({"2", "0"}))->stage().Identity(), identity);
}

TEST_F(PosixRoots, IfAllAreDeadOpeningSaysWhy) {
  Status status;
  (void)PosixStore::Try(ConfigOf({"x/y", "x/z"}), &status);
  EXPECT_EQ(status.code, Code::kNotFound);
  EXPECT_NE(status.text().find("/x/y"), std::string_view::npos) << status.message;
}

}  // namespace
}  // namespace ucmstore::test
