// SPDX-License-Identifier: Apache-2.0
//
// What reclaim below and the ring know of each other: hits in the ring keep the files young, and a
// file that went is no ghost.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <ctime>

#include "cache/cache_fixture.h"
#include "ucmstore/store_v1.h"

namespace ucmstore::test {
namespace {

class CacheUses : public CacheTest {
 protected:
  CacheUses() {
    config_.clock = &clock_;
    config_.options["posix.capacity"] = "1GiB";
  }
  [[nodiscard]] std::filesystem::path FileOf(std::uint64_t i) const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root())) {
      if (entry.path().filename() == ToHex(Id(i))) return entry.path();
    }
    return {};
  }
  [[nodiscard]] std::int64_t AgeOf(std::uint64_t i) const {
    struct stat stat{};
    EXPECT_EQ(::stat(FileOf(i).c_str(), &stat), 0);
    return std::time(nullptr) - stat.st_mtim.tv_sec;
  }
  void MakeOld(std::uint64_t i) const {
    const timespec then{.tv_sec = std::time(nullptr) - 1'000'000, .tv_nsec = 0};
    const timespec times[2] = {then, then};
    ASSERT_EQ(::utimensat(AT_FDCWD, FileOf(i).c_str(), times, 0), 0);
  }
  bool Look(std::uint64_t i, std::uint32_t flags = 0) {
    const BlockId id = Id(i);
    LookupDesc desc;
    desc.flags = flags;
    desc.blocks = &id;
    desc.count = 1;
    std::uint8_t found = kAbsent;
    EXPECT_TRUE(store().Lookup(desc, &found).ok());
    return found == kInMemory;
  }

  ManualClock clock_;
};

TEST_F(CacheUses, F04_AHitInTheRingKeepsTheFileYoung) {
  ASSERT_TRUE(Dump(0, 1).ok());
  ASSERT_TRUE(Dump(1, 1).ok());
  ASSERT_TRUE(Dump(2, 1).ok());
  ASSERT_TRUE(Reaches("cache.write_back_waiting_blocks", 0));
  ASSERT_TRUE(Reaches("cache.write_backs_in_flight", 0));
  for (const std::uint64_t i : {0, 1, 2}) {
    ASSERT_TRUE(Look(i)) << "seen for the first time: it has just come";
    MakeOld(i);
  }
  EXPECT_EQ(Figure("posix.touched_blocks"), 0);
  clock_.Advance(milliseconds(61'000));
  ASSERT_TRUE(Look(0));
  EXPECT_TRUE(Eventually([&] { return AgeOf(0) < 1000; }));
  clock_.Advance(milliseconds(2'000));
  EXPECT_EQ(Problem(1, 1), "") << "a load is a use, too";
  EXPECT_TRUE(Eventually([&] { return AgeOf(1) < 1000; }));
  clock_.Advance(milliseconds(2'000));
  ASSERT_TRUE(Look(2, kNoTouch));
  // Told of once in an interval only.
  MakeOld(0);
  for (int n = 0; n < 100; ++n) ASSERT_TRUE(Look(0));
  clock_.Advance(milliseconds(25'000));
  ASSERT_TRUE(Look(0));
  Close();
  EXPECT_GT(AgeOf(0), 1000);
  EXPECT_GT(AgeOf(2), 1000);
}

TEST_F(CacheUses, F09_AFileThatWentIsServedFromTheRingOrAbsent) {
  ASSERT_TRUE(Dump(0, 1).ok());
  ASSERT_TRUE(Reaches("cache.write_back_waiting_blocks", 0));
  ASSERT_TRUE(Reaches("cache.write_backs_in_flight", 0));
  DeleteBelow(0);
  EXPECT_TRUE(Look(0));
  EXPECT_EQ(Problem(0, 1), "");
  Close();
  for (const auto& entry : std::filesystem::directory_iterator(memory_.path())) {
    if (entry.is_regular_file()) std::filesystem::remove(entry.path());
  }
  EXPECT_EQ(Where(0), kAbsent);
  EXPECT_EQ(AbsenceProblem(store(), kGeometry, Id(0)), "");
}

}  // namespace
}  // namespace ucmstore::test
