// SPDX-License-Identifier: Apache-2.0
//
// How many CPUs can be used, on machines made of files.
#include "task/usable_cpus.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "support/temp_dir.h"

namespace ucmstore::test {
namespace {

class UsableCpusTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = dir_.string() + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  std::uint32_t Here() { return UsableCpus(dir_.string()); }
  static std::uint32_t Allowed() {
    cpu_set_t set;
    CPU_ZERO(&set);
    EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
    return static_cast<std::uint32_t>(CPU_COUNT(&set));
  }
  TempDir dir_;
};

TEST_F(UsableCpusTest, WithoutALimitAsManyAsTheThreadMayRunOn) {
  EXPECT_EQ(Here(), Allowed());
  Write("/sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(Here(), Allowed());
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(sched_getcpu()), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(Here(), 1U);
  }).join();
}

TEST_F(UsableCpusTest, AContainersLimitIsRoundedUp) {
  Write("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(Here(), 1U);
  Write("/sys/fs/cgroup/cpu.max", "150000 100000\n");
  EXPECT_EQ(Here(), std::min(2U, Allowed()));
  Write("/sys/fs/cgroup/cpu.max", "99900000 100000\n");
  EXPECT_EQ(Here(), Allowed());
}

TEST_F(UsableCpusTest, AServicesLimitIsFoundByItsCgroup) {
  Write("/proc/self/cgroup", "12:pids:/x\n0::/system.slice/engine.service\n");
  Write("/sys/fs/cgroup/system.slice/engine.service/cpu.max", "100000 100000\n");
  EXPECT_EQ(Here(), 1U);
}

TEST_F(UsableCpusTest, Version1CountsToo) {
  Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(Here(), Allowed());
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n");
  EXPECT_EQ(Here(), 1U);
}

TEST_F(UsableCpusTest, NonsenseIsNoLimit) {
  for (const char* text : {"", "x", "0 0", "-5 100000", "100000", "100000 0", "max"}) {
    Write("/sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(Here(), Allowed()) << text;
  }
}

}  // namespace
}  // namespace ucmstore::test
