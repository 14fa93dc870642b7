// SPDX-License-Identifier: Apache-2.0
//
// Tests of making a segment: with no room, too much asked for, many at once, killed on the way.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>
#include <functional>

#include "posix/children.h"
#include "shm/room.h"
#include "shm/segment.h"
#include "shm/segment_file.h"
#include "shm/segment_fixture.h"
#include "shm/small_mount.h"

namespace ucmstore::test {
namespace {

namespace stdfs = std::filesystem;

TEST_F(SegmentTest, MalformedRequestsAreRefused) {
  const auto refused = [&](const std::function<void(SegmentRequest&)>& change) {
    SegmentRequest request = Request();
    change(request);
    const Opened opened = OpenSegment(request);
    EXPECT_FALSE(opened.segment);
    EXPECT_EQ(opened.status.code, Code::kInvalidArgument) << opened.status.message;
    EXPECT_TRUE(NamesIn(dir_.path()).empty());
  };
  using namespace std::string_literals;
  for (const std::string& name :
       {""s, "a/b"s, "../x"s, "a b"s, "a\0b"s, "ä"s, "a\n"s, std::string(81, 'a')}) {
    refused([&](SegmentRequest& r) { r.name = name; });
  }
  for (const std::uint32_t mode : {0U, 0400U, 0066U, 01600U, 04755U}) {
    refused([&](SegmentRequest& r) { r.mode = mode; });
  }
  refused([](SegmentRequest& r) { r.directory.clear(); });
  refused([](SegmentRequest& r) { r.shard_size = 0; });
  refused([](SegmentRequest& r) { r.shards_per_block = 0; });
  refused([](SegmentRequest& r) { r.shard_size = UINT64_MAX; });
  refused([](SegmentRequest& r) { r.identity.assign(kMaxIdentityBytes + 1, 'i'); });
  SegmentRequest longest = Request();
  longest.name = std::string(80, 'n');
  longest.identity.assign(kMaxIdentityBytes, 'i');
  EXPECT_TRUE(OpenSegment(longest).segment);
  SegmentRequest nowhere = Request();
  nowhere.directory += "/missing";
  EXPECT_EQ(Lacks(OpenSegment(nowhere).status.text(), {"/missing", "No such file"}), "");
}

TEST_F(SegmentTest, J08_MoreThanTheMachineHasIsRefusedWithBothNumbers) {
  const MemoryRoom memory = ReadMemoryRoom();
  const Opened opened = OpenSegment(Request(4 * memory.total_bytes));
  EXPECT_EQ(opened.status.code, Code::kInvalidArgument);
  EXPECT_EQ(Lacks(opened.status.text(), {std::to_string(4 * memory.total_bytes),
                                         std::to_string(memory.total_bytes), "capacity"}),
            "");
  EXPECT_TRUE(NamesIn(dir_.path()).empty());
}

TEST_F(SegmentTest, J08_LessThanOneBlockIsRefusedWithTheNumberNeeded) {
  const std::uint64_t need =
      PlanRing({.shard_size = 4096, .shards_per_block = 4, .slot_count = 1}).segment_bytes;
  const Opened opened = OpenSegment(Request(need - 1));
  EXPECT_EQ(opened.status.code, Code::kInvalidArgument);
  EXPECT_EQ(Lacks(opened.status.text(), {std::to_string(need - 1), std::to_string(need)}), "");
  const Opened one = OpenSegment(Request(need));
  ASSERT_TRUE(one.segment) << one.status.message;
  EXPECT_EQ(one.segment->header().slot_count, 1U);
}

TEST_F(SegmentTest, E04_AFileSizeLimitIsAnErrorNotASignal) {
  Children children;
  children.Start([&]() -> std::string {
    const rlimit limit{.rlim_cur = 65'536, .rlim_max = 65'536};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return "cannot set the limit";
    const Opened opened = OpenSegment(Request());
    if (opened.segment) return "a segment beyond the limit";
    if (opened.status.code != Code::kLimit) return opened.status.message;
    return Lacks(opened.status.text(), {"RLIMIT_FSIZE", "65536"});
  });
  EXPECT_EQ(children.Finish(), std::vector<int>{0});
  EXPECT_TRUE(NamesIn(dir_.path()).empty());
}

TEST_F(SegmentTest, OnlyPrivateIsPrivateThoughThereIsRoom) {
  SegmentRequest request = Request();
  request.only_private = true;
  const Opened opened = OpenSegment(request);
  ASSERT_TRUE(opened.segment) << opened.status.message;
  EXPECT_TRUE(opened.segment->is_private());
  EXPECT_TRUE(EveryByteHolds(*opened.segment, std::byte{1}));
  EXPECT_TRUE(NamesIn(dir_.path()).empty());
}

// ---- a mount that is too small ------------------------------------------------------------------

class SmallMountTest : public SegmentTest {
 protected:
  void Run(const std::string& options,
           const std::function<std::string(const std::string&)>& run) const {
    const MountOutcome outcome = InSmallMount(dir_.string(), options, run);
    if (outcome == MountOutcome::kForbidden) GTEST_SKIP() << "mounting a tmpfs is not allowed here";
    EXPECT_EQ(outcome, MountOutcome::kPassed);
  }
};

std::string PrivateProblem(const Opened& opened, const std::vector<std::string>& words) {
  if (!opened.segment) return opened.status.message;
  if (!opened.segment->is_private()) return "not private";
  if (!EveryByteHolds(*opened.segment, std::byte{3})) return "memory does not hold";
  if (opened.segment->Unlink()) return "a private segment has no name to remove";
  return Lacks(opened.segment->why_private(), words);
}

TEST_F(SmallMountTest, E04_NoRoomMakesItPrivateAndSaysWhy) {
  Run("size=4m", [](const std::string& mount) -> std::string {
    const std::uint64_t need = SmallRequest(mount, 16U << 20).capacity_bytes;
    const std::uint64_t bytes =
        PlanRing({.shard_size = 4096, .shards_per_block = 4, .slot_count = SlotsFor(need, 4096, 4)})
            .segment_bytes;
    const Opened first = OpenSegment(SmallRequest(mount, need));
    std::string problem =
        PrivateProblem(first, {mount, "tmpfs", std::to_string(bytes), "4194304 bytes) free",
                               "remount,size=", "--shm-size", "private"});
    if (!problem.empty()) return problem;
    const Opened second = OpenSegment(SmallRequest(mount, need));
    if (!second.segment || second.segment->data()[0] != std::byte{0}) return "two share one";
    return NamesIn(mount).empty() ? "" : "a file is left in the mount";
  });
}

TEST_F(SmallMountTest, E04_NoInodeMakesItPrivateToo) {
  Run("size=64m,nr_inodes=1", [](const std::string& mount) {
    return PrivateProblem(OpenSegment(SmallRequest(mount)), {mount, "No space left"});
  });
}

TEST_F(SmallMountTest, E04_AReadOnlyMountMakesItPrivateToo) {
  Run("size=64m", [](const std::string& mount) -> std::string {
    if (::mount("none", mount.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0) {
      return "cannot make it read-only";
    }
    return PrivateProblem(OpenSegment(SmallRequest(mount)), {mount, "Read-only"});
  });
}

TEST_F(SmallMountTest, E04_AMountThatFillsUpLaterHarmsNoSegment) {
  Run("size=4m", [](const std::string& mount) -> std::string {
    const Opened opened = OpenSegment(SmallRequest(mount, 2U << 20));
    if (!opened.segment || opened.segment->is_private()) return "no segment";
    std::ofstream filler(mount + "/filler", std::ios::binary);
    const std::string chunk(4096, 'x');
    while (filler.write(chunk.data(), static_cast<std::streamsize>(chunk.size())).flush()) {
    }
    return EveryByteHolds(*opened.segment, std::byte{9}) ? "" : "memory does not hold";
  });
}

TEST_F(SmallMountTest, AutoTakesMostOfASmallMount) {
  Run("size=10m", [](const std::string& mount) -> std::string {
    const Opened opened = OpenSegment(SmallRequest(mount, 0));
    if (!opened.segment) return opened.status.message;
    if (opened.segment->is_private()) return opened.segment->why_private();
    const std::uint64_t bytes = opened.segment->header().segment_bytes;
    constexpr std::uint64_t kMost = (10ULL << 20) / 5 * 4;
    return bytes <= kMost && bytes + 5ULL * 4096 > kMost ? "" : std::to_string(bytes);
  });
}

// ---- many at once -------------------------------------------------------------------------------

// So many processes open one segment at the same moment. Gives what went wrong: one must have made
// it, all must have it.
std::string RaceProblem(const std::string& directory, std::uint64_t capacity) {
  constexpr int kProcesses = 16;
  struct stat created{};
  std::array<int, 2> go{};
  std::array<int, 2> told{};
  if (::pipe(go.data()) != 0 || ::pipe(told.data()) != 0) return "no pipe";
  Children children;
  for (int i = 0; i < kProcesses; ++i) {
    children.Start([&]() -> std::string {
      ::close(go[1]);
      char none = 0;
      (void)!::read(go[0], &none, 1);  // until the parent closes its end
      const Opened opened = OpenSegment(SmallRequest(directory, capacity));
      if (!opened.segment) return opened.status.message;
      if (opened.segment->is_private()) return opened.segment->why_private();
      const char made = opened.segment->created() ? 'c' : 'a';
      return ::write(told[1], &made, 1) == 1 ? "" : "cannot tell";
    });
  }
  ::close(go[0]);
  ::close(go[1]);
  for (const int code : children.Finish()) {
    if (code != 0) return "a child failed";
  }
  ::close(told[1]);
  std::string made(kProcesses + 1, '\0');
  made.resize(
      static_cast<std::size_t>(std::max<ssize_t>(::read(told[0], made.data(), made.size()), 0)));
  ::close(told[0]);
  if (made.size() != kProcesses || std::count(made.begin(), made.end(), 'c') != 1) return made;
  const std::string path = directory + "/ucmstore.test.r1";
  if (::stat(path.c_str(), &created) != 0) return "no file";
  return NamesIn(directory).size() == 1 ? "" : "more files than one";
}

TEST_F(SegmentTest, S06_OfManyCreatorsOneWinsAndAllAttach) {
  for (int round = 0; round < 10; ++round) {
    EXPECT_EQ(RaceProblem(dir_.string(), kSmallCapacity), "");
    stdfs::remove(FilePath());
  }
}

TEST_F(SmallMountTest, S06_ManyCreatorsNeedTheRoomOfOne) {
  Run("size=6m", [](const std::string& mount) { return RaceProblem(mount, 4U << 20); });
}

// ---- killed on the way --------------------------------------------------------------------------

enum class Trace { kKilled, kRanThrough, kForbidden };

// Runs `run` in a child and kills it when it has entered and left system calls `stops` times.
Trace KillAfter(int stops, const std::function<void()>& run) {
  constexpr int kForbidden = 77;
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(kForbidden);
    ::raise(SIGSTOP);
    run();
    ::_exit(0);
  }
  int status = 0;
  for (int stop = 0; ::waitpid(pid, &status, 0) == pid && WIFSTOPPED(status); ++stop) {
    if (stop == stops) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, &status, 0);
      return Trace::kKilled;
    }
    ::ptrace(PTRACE_SYSCALL, pid, nullptr, nullptr);
  }
  const bool forbidden = WIFEXITED(status) && WEXITSTATUS(status) == kForbidden;
  return forbidden ? Trace::kForbidden : Trace::kRanThrough;
}

TEST_F(SegmentTest, E01_ACreatorKilledAnywhereLeavesNothingOrAWholeSegment) {
  int whole = 0;
  int stops = 0;
  for (Trace trace = Trace::kKilled; trace == Trace::kKilled; ++stops) {
    trace = KillAfter(stops, [&] { const Opened opened = OpenSegment(Request()); });
    if (trace == Trace::kForbidden) GTEST_SKIP() << "tracing a child is not allowed here";
    const std::vector<std::string> names = NamesIn(dir_.path());
    ASSERT_LE(names.size(), 1U);
    const Opened opened = OpenSegment(Request());
    ASSERT_TRUE(opened.segment) << opened.status.message;
    EXPECT_EQ(opened.segment->created(), names.empty()) << "after " << stops << " stops";
    whole += names.empty() ? 0 : 1;
    ASSERT_TRUE(opened.segment->Unlink());
  }
  EXPECT_GT(whole, 1);
  EXPECT_LT(whole, stops);
}

// The way of file systems that know no file without a name.
TEST_F(SegmentTest, E01_WhatAKilledCreatorStagedIsSwept) {
  const Result<SegmentFolder> folder = SegmentFolder::Open(dir_.string());
  ASSERT_TRUE(folder.has_value());
  const SegmentRequest request = Request();
  const Result<MountRoom> mount = ReadMountRoom(folder->fd(), folder->path());
  ASSERT_TRUE(mount.has_value());
  const bool on_disk = !mount->in_memory;  // where there is little room in memory
  const auto create = [&] { return CreateSegment(*folder, request, 8, on_disk, Staging::kNamed); };
  std::size_t staged = 0;
  int stops = 0;
  for (Trace trace = Trace::kKilled; trace == Trace::kKilled; ++stops) {
    trace = KillAfter(stops, [&] { const Result<SegmentFile> made = create(); });
    if (trace == Trace::kForbidden) GTEST_SKIP() << "tracing a child is not allowed here";
    const bool named = stdfs::exists(FilePath());
    staged += NamesIn(dir_.path()).size() - (named ? 1 : 0);
    const Result<SegmentFile> made = create();
    EXPECT_EQ(made.has_value(), !named);
    if (named) {
      EXPECT_EQ(made.error().code, Code::kBusy);
    }
    EXPECT_EQ(NamesIn(dir_.path()), std::vector<std::string>{"ucmstore.test.r1"});
    const Opened opened = OpenSegment(Request());
    ASSERT_TRUE(opened.segment) << opened.status.message;
    EXPECT_FALSE(opened.segment->created());
    ASSERT_TRUE(opened.segment->Unlink());
  }
  EXPECT_GT(staged, 1U);
}

// ---- on a disk ----------------------------------------------------------------------------------

// What was in memory at a power cut may be on the disk or not: nobody can tell, so nobody uses it.
TEST(SegmentOnDisk, S06_ASegmentOfAnEarlierBootIsReplaced) {
  const TempDir dir;  // usually on a disk
  const std::string path = dir.string() + "/ucmstore.test.r1";
  const SegmentRequest request = SmallRequest(dir.string());
  {
    const Opened made = OpenSegment(request);
    ASSERT_TRUE(made.segment) << made.status.message;
    ASSERT_FALSE(OpenSegment(request).segment->created());
    made.segment->data()[0] = std::byte{1};
  }
  RingHeader header{};
  {
    std::ifstream file(path, std::ios::binary);
    file.read(reinterpret_cast<char*>(&header), sizeof(header));
  }
  const std::size_t mark =
      std::string_view(header.identity, header.identity_bytes).rfind(kBootMark);
  if (mark == std::string_view::npos) return;  // in memory here, too
  header.identity[mark + kBootMark.size()] ^= 1;
  header.header_crc32c = HeaderChecksum(header);
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.write(reinterpret_cast<const char*>(&header), sizeof(header));
  }
  const Opened again = OpenSegment(request);
  ASSERT_TRUE(again.segment) << again.status.message;
  EXPECT_TRUE(again.segment->created());
  EXPECT_EQ(again.segment->data()[0], std::byte{0});
  EXPECT_EQ(NamesIn(dir.path()).size(), 1U);
}

}  // namespace
}  // namespace ucmstore::test
