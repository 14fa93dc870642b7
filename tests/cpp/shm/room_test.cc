// SPDX-License-Identifier: Apache-2.0
//
// Tests of how much memory and room there is, on machines made of files.
#include "shm/room.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/unique_fd.h"
#include "shm/segment_fixture.h"
#include "support/temp_dir.h"

namespace ucmstore::test {
namespace {

constexpr std::uint64_t kGiB = 1ULL << 30;

// A machine's /proc and /sys as files.
class RoomTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = dir_.string() + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  void WriteMemory(std::uint64_t total, std::uint64_t available, std::uint64_t swap = 0) {
    Write("/proc/meminfo",
          "MemTotal:       " + std::to_string(total / 1024) +
              " kB\nMemFree:  1 kB\nMemAvailable:   " + std::to_string(available / 1024) +
              " kB\nSwapFree: " + std::to_string(swap / 1024) + " kB\n");
  }
  void WriteV2(const std::string& path, const std::string& limit, std::uint64_t used,
               std::uint64_t file = 0) {
    Write("/sys/fs/cgroup" + path + "/memory.max", limit + "\n");
    Write("/sys/fs/cgroup" + path + "/memory.current", std::to_string(used) + "\n");
    Write("/sys/fs/cgroup" + path + "/memory.stat",
          "anon 1\ninactive_file " + std::to_string(file) + "\nactive_file 0\n");
  }
  [[nodiscard]] MemoryRoom Read() const { return ReadMemoryRoom(dir_.string()); }

  TempDir dir_;
};

constexpr const char* kV2Mount =
    "22 27 0:21 / /proc rw - proc proc rw\n"
    "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

TEST_F(RoomTest, WithoutCgroupsTheMachineIsTheBound) {
  WriteMemory(64 * kGiB, 40 * kGiB, 2 * kGiB);
  const MemoryRoom room = Read();
  EXPECT_EQ(room.total_bytes, 64 * kGiB);
  EXPECT_EQ(room.available_bytes, 42 * kGiB);
  EXPECT_EQ(AutoCapacity(room, std::nullopt), 16 * kGiB);
}

TEST_F(RoomTest, WhatCannotBeReadIsNoBound) {
  const MemoryRoom room = Read();
  EXPECT_EQ(room.total_bytes, UINT64_MAX);
  EXPECT_EQ(room.available_bytes, UINT64_MAX);
  EXPECT_TRUE(JudgeCapacity(1ULL << 60, room).ok());
  EXPECT_TRUE(JudgeMemory(1ULL << 60, room).ok());
}

TEST_F(RoomTest, TheTightestCgroupAboveCounts) {
  WriteMemory(64 * kGiB, 60 * kGiB);
  Write("/proc/self/cgroup", "0::/kubepods/pod1/engine\n");
  Write("/proc/self/mountinfo", kV2Mount);
  WriteV2("/kubepods/pod1/engine", "max", 3 * kGiB);
  WriteV2("/kubepods/pod1", std::to_string(8 * kGiB), 5 * kGiB, 2 * kGiB);
  WriteV2("/kubepods", std::to_string(32 * kGiB), 30 * kGiB);
  const MemoryRoom room = Read();
  EXPECT_EQ(room.total_bytes, 8 * kGiB);
  EXPECT_EQ(Lacks(room.total_of, {"/kubepods/pod1"}), "");
  EXPECT_EQ(room.available_bytes, 2 * kGiB);  // of /kubepods: nothing there is file pages
  EXPECT_EQ(room.available_of, "what cgroup /kubepods has left");
}

TEST_F(RoomTest, FilePagesCountAsFree) {
  WriteMemory(64 * kGiB, 60 * kGiB);
  Write("/proc/self/cgroup", "0::/a\n");
  Write("/proc/self/mountinfo", kV2Mount);
  WriteV2("/a", std::to_string(8 * kGiB), 7 * kGiB, 5 * kGiB);
  EXPECT_EQ(Read().available_bytes, 6 * kGiB);
}

TEST_F(RoomTest, ACgroupOverItsLimitHasNothingLeft) {
  WriteMemory(64 * kGiB, 60 * kGiB);
  Write("/proc/self/cgroup", "0::/a\n");
  Write("/proc/self/mountinfo", kV2Mount);
  WriteV2("/a", std::to_string(kGiB), 2 * kGiB, 0);
  EXPECT_EQ(Read().available_bytes, 0U);
  EXPECT_EQ(AutoCapacity(Read(), std::nullopt), 0U);
}

TEST_F(RoomTest, TheOlderHierarchyCountsToo) {
  WriteMemory(64 * kGiB, 60 * kGiB);
  Write("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/\n");
  Write("/proc/self/mountinfo",
        "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  const std::string at = "/sys/fs/cgroup/memory/docker/abc";
  Write(at + "/memory.limit_in_bytes", std::to_string(4 * kGiB) + "\n");
  Write(at + "/memory.usage_in_bytes", std::to_string(3 * kGiB) + "\n");
  Write(at + "/memory.stat", "inactive_file 5\ntotal_inactive_file 1073741824\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const MemoryRoom room = Read();
  EXPECT_EQ(room.total_bytes, 4 * kGiB);
  EXPECT_EQ(room.available_bytes, 2 * kGiB);
}

TEST_F(RoomTest, AContainerSeesItsPartOfTheHierarchy) {
  // Docker, v1: the container's own cgroup is mounted as if it were the top.
  auto places = MemoryCgroups("4:memory:/docker/abc\n",
                              "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup c "
                              "rw,memory\n");
  ASSERT_EQ(places.size(), 1U);
  EXPECT_EQ(places[0].path, "/");
  // Elsewhere in the hierarchy than what is mounted: what is mounted is all there is to know.
  places = MemoryCgroups("0::/../other\n", kV2Mount);
  ASSERT_EQ(places.size(), 1U);
  EXPECT_EQ(places[0].path, "/");
  places = MemoryCgroups("4:memory:/docker/abcd/in\n",
                         "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup c rw,memory\n");
  ASSERT_EQ(places.size(), 1U);
  EXPECT_EQ(places[0].path, "/");
  places = MemoryCgroups("0::/a/b\n", "1 2 0:3 /a /sys/fs/with\\040space rw - cgroup2 c rw\n");
  ASSERT_EQ(places.size(), 1U);
  EXPECT_EQ(places[0].path, "/b");
  EXPECT_EQ(places[0].mount_point, "/sys/fs/with space");
}

TEST_F(RoomTest, NonsenseIsNoBound) {
  EXPECT_EQ(MeminfoBytes("MemTotal: twelve kB\n", "MemTotal"), std::nullopt);
  EXPECT_EQ(MeminfoBytes("MemTotal: 99999999999999999999 kB\n", "MemTotal"), std::nullopt);
  EXPECT_EQ(MeminfoBytes("MemTotal: 18446744073709551615 kB\n", "MemTotal"), std::nullopt);
  EXPECT_EQ(MeminfoBytes("MemTotalX: 1 kB\nMemTotal: 2 kB", "MemTotal"), 2048U);
  EXPECT_EQ(MeminfoBytes("", "MemTotal"), std::nullopt);
  EXPECT_EQ(LimitBytes("max\n"), std::nullopt);
  EXPECT_EQ(LimitBytes("123\n"), 123U);
  EXPECT_EQ(StatBytes("total_inactive_file 7\ninactive_file 9\n", "inactive_file"), 9U);
  EXPECT_TRUE(MemoryCgroups("", "").empty());
  EXPECT_TRUE(MemoryCgroups(":::::\n0::/a\n", "- - -\n\n 1 2 3\n - cgroup2 c").size() <= 1);
}

TEST_F(RoomTest, AutoIsTheSmallestOfMemoryAndMount) {
  const MemoryRoom memory{
      .total_bytes = 40 * kGiB, .available_bytes = 20 * kGiB, .total_of = {}, .available_of = {}};
  MountRoom mount;
  mount.free_bytes = 5 * kGiB;
  EXPECT_EQ(AutoCapacity(memory, mount), 4 * kGiB);
  mount.free_bytes = 100 * kGiB;
  EXPECT_EQ(AutoCapacity(memory, mount), 10 * kGiB);
  EXPECT_EQ(AutoCapacity(memory, std::nullopt), 10 * kGiB);
  // What is left counts as well: a quarter of the limit may not be there any more.
  MemoryRoom tight = memory;
  tight.available_bytes = 5 * kGiB;
  EXPECT_EQ(AutoCapacity(tight, mount), 4 * kGiB);
}

TEST_F(RoomTest, J08_BothNumbersAreSaid) {
  const MemoryRoom memory{.total_bytes = 8 * kGiB,
                          .available_bytes = kGiB,
                          .total_of = "the limit of cgroup /pod",
                          .available_of = "what cgroup /pod has left"};
  EXPECT_TRUE(JudgeCapacity(8 * kGiB, memory).ok());
  const Status status = JudgeCapacity(32 * kGiB, memory);
  EXPECT_EQ(status.code, Code::kInvalidArgument);
  EXPECT_EQ(Lacks(status.text(), {"34359738368", "8589934592", "32.0 GiB", "cgroup /pod", "lower"}),
            "");
  EXPECT_TRUE(JudgeMemory(kGiB / 2, memory).ok());
  const Status left = JudgeMemory(2 * kGiB, memory);
  EXPECT_EQ(left.code, Code::kNoSpace);
  EXPECT_EQ(Lacks(left.text(), {"2147483648", "1073741824", "cgroup /pod has left", "lower"}), "");
}

TEST_F(RoomTest, AMountSaysWhatItIs) {
  const UniqueFd folder(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const auto proc = ReadMountRoom(folder.get(), "/proc/self/fd");
  ASSERT_TRUE(proc.has_value());
  EXPECT_EQ(proc->mount_point, "/proc");
  EXPECT_FALSE(proc->in_memory);
  EXPECT_FALSE(proc->local);
  EXPECT_FALSE(ReadMountRoom(-1, "nowhere").has_value());
}

TEST_F(RoomTest, BytesAreWrittenForPeople) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(1023), "1023 B");
  EXPECT_EQ(BytesText(64U << 20), "64.0 MiB");
  EXPECT_EQ(BytesText(3ULL << 29), "1.5 GiB");
  EXPECT_EQ(BytesText(UINT64_MAX), "16.0 EiB");
}

}  // namespace
}  // namespace ucmstore::test
