// SPDX-License-Identifier: Apache-2.0
//
// Mapping the ring's pages in the background.
#include <cstdint>
#include <fstream>

#include "cache/cache_fixture.h"

namespace ucmstore::test {
namespace {

// How much of the mapped files of this folder the kernel has mapped into this process.
std::uint64_t MappedBytes(const std::filesystem::path& folder) {
  std::ifstream maps("/proc/self/smaps");
  std::uint64_t bytes = 0;
  bool ours = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.find(" r") != std::string::npos && line.find('-') < line.find(' ')) {
      ours = line.find(folder.string()) != std::string::npos;
    } else if (ours && line.starts_with("Rss:")) {
      bytes += std::stoull(line.substr(4)) * 1024;
    }
  }
  return bytes;
}

class CachePrefault : public CacheTest {
 protected:
  static constexpr std::uint32_t kSlots = 1024;  // 16 MiB: some steps
  CachePrefault() { config_.options["cache.capacity"] = CapacityOf(kSlots); }
  [[nodiscard]] static std::uint64_t DataBytes() {
    return kSlots * kGeometry.shard_size * kGeometry.shards_per_block;
  }
  bool IsPrefaulted() {
    return Eventually([&] {
      return static_cast<std::uint64_t>(Figure("cache.ring_prefaulted_bytes")) >= DataBytes();
    });
  }
};

TEST_F(CachePrefault, AllOfAFreshRingIsMapped) {
  (void)store();
  ASSERT_TRUE(IsPrefaulted());
  EXPECT_GE(MappedBytes(memory_.path()), DataBytes());
}

TEST_F(CachePrefault, OnlyIfWanted) {
  config_.options["cache.prefault"] = "false";
  (void)store();
  EXPECT_LT(MappedBytes(memory_.path()), DataBytes() / 2);
  EXPECT_EQ(Figure("cache.ring_prefaulted_bytes"), 0);
}

TEST_F(CachePrefault, OncePerProcessAndRing) {
  (void)store();
  const auto other = OpenAnother();
  EXPECT_EQ(other->Stats().at("cache.ring_prefaulted_bytes"), 0);
}

TEST_F(CachePrefault, BlocksInAWarmRingStayAsTheyAre) {
  const std::uint64_t nonce = NextNonce();
  for (std::uint64_t i = 0; i < 100; ++i) ASSERT_TRUE(Dump(i, nonce).ok());
  Close();
  (void)store();
  ASSERT_TRUE(IsPrefaulted());
  for (std::uint64_t i = 0; i < 100; ++i) EXPECT_EQ(Problem(i, nonce), "");
}

TEST_F(CachePrefault, CloseDoesNotWaitForAllOfIt) {
  for (int i = 0; i < 20; ++i) {
    (void)store();
    Close();
  }
}

}  // namespace
}  // namespace ucmstore::test
