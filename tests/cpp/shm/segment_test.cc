// SPDX-License-Identifier: Apache-2.0
//
// Tests of attaching to a segment: whose it is, whether it is what was asked for, whether it is one
// at all; and of its name.
#include "shm/segment.h"

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>

#include "posix/children.h"
#include "shm/segment_file.h"
#include "shm/segment_fixture.h"

namespace ucmstore::test {
namespace {

namespace stdfs = std::filesystem;

ino_t InodeOf(const RingSegment& segment) {
  struct stat stat{};
  EXPECT_EQ(::fstat(segment.fd(), &stat), 0);
  return stat.st_ino;
}

TEST_F(SegmentTest, IsZeroButForItsHeader) {
  const Opened made = OpenSegment(Request());
  ASSERT_TRUE(made.segment) << made.status.message;
  const RingSegment& segment = *made.segment;
  EXPECT_TRUE(segment.created());
  EXPECT_FALSE(segment.is_private()) << segment.why_private();
  EXPECT_EQ(segment.note(), "");
  EXPECT_EQ(segment.path(), FilePath().string());
  const RingHeader& header = segment.header();
  EXPECT_EQ(header.segment_bytes, stdfs::file_size(FilePath()));
  EXPECT_LE(header.segment_bytes, kSmallCapacity);
  EXPECT_EQ(header.slot_count, SlotsFor(kSmallCapacity, 4096, 4));
  EXPECT_EQ(std::memcmp(segment.base(), &header, sizeof(header)), 0);
  const std::byte* rest = segment.base() + kSharedAt;
  const std::byte* end = segment.base() + header.segment_bytes;
  EXPECT_TRUE(std::all_of(rest, end, [](std::byte byte) { return byte == std::byte{0}; }));
  EXPECT_EQ(reinterpret_cast<std::byte*>(segment.slots()), segment.base() + header.slots_at);
  EXPECT_EQ(segment.PaddedShards(), 8U);
}

TEST_F(SegmentTest, E01_ACrashLeavesWhatTheNextStartUses) {
  ino_t inode = 0;
  for (int round = 0; round < 10; ++round) {
    Children children;
    children.Start([&]() -> std::string {
      const Opened opened = OpenSegment(Request());
      if (!opened.segment) return opened.status.message;
      opened.segment->shared().hand.fetch_add(1);
      ::raise(SIGKILL);
      return {};
    });
    EXPECT_EQ(children.Finish(), std::vector<int>{128 + SIGKILL});
    const Opened opened = OpenSegment(Request());
    ASSERT_TRUE(opened.segment) << opened.status.message;
    EXPECT_FALSE(opened.segment->created());
    EXPECT_EQ(opened.segment->shared().hand.load(), static_cast<std::uint64_t>(round) + 1);
    EXPECT_EQ(opened.segment->header().slot_count, SlotsFor(kSmallCapacity, 4096, 4));
    if (round == 0) inode = InodeOf(*opened.segment);
    EXPECT_EQ(InodeOf(*opened.segment), inode);
    EXPECT_EQ(NamesIn(dir_.path()), std::vector<std::string>{"ucmstore.test.r1"});
  }
}

TEST_F(SegmentTest, E07_AllOfOneNameShareOneSegment) {
  const Opened first = OpenSegment(Request());
  const Opened second = OpenSegment(Request());
  ASSERT_TRUE(first.segment && second.segment);
  EXPECT_EQ(InodeOf(*first.segment), InodeOf(*second.segment));
  first.segment->data()[7] = std::byte{42};
  EXPECT_EQ(second.segment->data()[7], std::byte{42});
  SegmentRequest other = Request();
  other.name = "other";
  const Opened third = OpenSegment(other);
  ASSERT_TRUE(third.segment);
  EXPECT_EQ(third.segment->data()[7], std::byte{0});
}

// What is there stays there, whole, however much another asks for something else.
TEST_F(SegmentTest, E09_AnotherGeometryOrIdentityIsRefusedInWords) {
  const Opened there = OpenSegment(Request());
  ASSERT_TRUE(there.segment);
  struct Case {
    std::function<void(SegmentRequest&)> change;
    std::vector<std::string> words;
  };
  const std::vector<Case> cases = {
      {[](SegmentRequest& r) { r.shard_size = 8192; }, {"shard_size", "4096", "8192"}},
      {[](SegmentRequest& r) { r.shards_per_block = 5; }, {"shards_per_block", " 4,", " 5:"}},
      {[](SegmentRequest& r) { r.identity[11] = 'q'; }, {"amespace llama", "amespace lqama"}},
      {[](SegmentRequest& r) { r.identity += " more"; }, {"elow posix", "posix more"}},
      {[](SegmentRequest& r) { r.identity.clear(); }, {"'namespace llama", "and not"}},
  };
  for (const Case& one : cases) {
    SegmentRequest request = Request();
    one.change(request);
    const Opened opened = OpenSegment(request);
    ASSERT_FALSE(opened.segment);
    EXPECT_EQ(opened.status.code, Code::kInvalidArgument) << opened.status.message;
    EXPECT_EQ(Lacks(opened.status.text(), one.words), "");
    EXPECT_EQ(Lacks(opened.status.text(), {"option `name`", "ucmstore shm rm test"}), "");
  }
  EXPECT_TRUE(OpenSegment(Request()).segment);
}

TEST_F(SegmentTest, E09_TwoReleasesLieSideBySide) {
  EXPECT_EQ(SegmentFileName("a.b"), "ucmstore.a.b.r" + std::to_string(kRingVersion));
}

TEST_F(SegmentTest, AnotherCapacityIsNotedNotRefused) {
  ASSERT_TRUE(OpenSegment(Request()).segment);
  const Opened opened = OpenSegment(Request(2 * kSmallCapacity));
  ASSERT_TRUE(opened.segment) << opened.status.message;
  EXPECT_EQ(opened.segment->header().slot_count, SlotsFor(kSmallCapacity, 4096, 4));
  EXPECT_EQ(Lacks(opened.segment->note(),
                  {"2097152", std::to_string(opened.segment->header().segment_bytes)}),
            "");
  EXPECT_EQ(OpenSegment(Request(0)).segment->note(), "");
}

class DamagedSegmentTest : public SegmentTest {
 protected:
  void SetUp() override { ASSERT_TRUE(OpenSegment(Request()).segment); }

  // Changes the header; `sealed` as a program would that knows the format.
  void Change(const std::function<void(RingHeader&)>& change, bool sealed) {
    std::fstream file(FilePath(), std::ios::in | std::ios::out | std::ios::binary);
    RingHeader header{};
    file.read(reinterpret_cast<char*>(&header), sizeof(header));
    change(header);
    if (sealed) header.header_crc32c = HeaderChecksum(header);
    file.seekp(0);
    file.write(reinterpret_cast<const char*>(&header), sizeof(header));
    ASSERT_TRUE(file.good());
  }
  void ExpectRefused(const std::vector<std::string>& words) {
    const auto size = stdfs::file_size(FilePath());
    const Opened opened = OpenSegment(Request());
    ASSERT_FALSE(opened.segment);
    EXPECT_NE(opened.status.code, Code::kNotFound);
    EXPECT_EQ(Lacks(opened.status.text(), words), "");
    EXPECT_EQ(Lacks(opened.status.text(), {FilePath().string(), "option `name`"}), "");
    EXPECT_EQ(stdfs::file_size(FilePath()), size);
  }
};

TEST_F(DamagedSegmentTest, E09_AnotherVersionIsNeverRead) {
  Change([](RingHeader& header) { header.version = 2; }, true);
  ExpectRefused({"version is 2", "asks for 1"});
}

TEST_F(DamagedSegmentTest, E09_EveryFlippedBitOfTheHeaderIsSeen) {
  for (std::size_t at = 0; at < 200; ++at) {
    const auto flip = [at](RingHeader& header) {
      reinterpret_cast<unsigned char*>(&header)[at] ^= 0x10;
    };
    Change(flip, false);
    ExpectRefused({});
    Change(flip, false);
  }
  EXPECT_TRUE(OpenSegment(Request()).segment);
}

TEST_F(DamagedSegmentTest, E09_AHeaderThatContradictsItselfIsRefused) {
  const std::vector<std::function<void(RingHeader&)>> changes = {
      [](RingHeader& h) { h.slot_count += 1; },
      [](RingHeader& h) { h.slot_count = 0; },
      [](RingHeader& h) { h.slot_count = UINT32_MAX; },
      [](RingHeader& h) { h.bucket_count *= 2; },
      [](RingHeader& h) { h.data_at += 4096; },
      [](RingHeader& h) { h.slots_at = UINT64_MAX - 7; },
      [](RingHeader& h) { h.shard_stride = 1ULL << 60; },
  };
  for (const auto& change : changes) {
    RingHeader before{};
    Change(
        [&](RingHeader& header) {
          before = header;
          change(header);
        },
        true);
    ExpectRefused({"contradicts itself"});
    Change([&](RingHeader& header) { header = before; }, true);
  }
  Change([](RingHeader& h) { h.identity_bytes = kIdentityRoom + 1; }, true);
  ExpectRefused({"damaged"});
}

TEST_F(DamagedSegmentTest, E04_AFileThatWasCutOffIsRefusedNotTouched) {
  stdfs::resize_file(FilePath(), 65'536);
  ExpectRefused({"65536 bytes", "header says"});
  stdfs::resize_file(FilePath(), 100);
  ExpectRefused({"100 bytes", "no ring"});
  stdfs::resize_file(FilePath(), 0);
  ExpectRefused({"0 bytes", "no ring"});
}

TEST_F(DamagedSegmentTest, E04_HolesAreFilledBeforeTheFirstTouch) {
  const int fd = ::open(FilePath().c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  struct stat stat{};
  ASSERT_EQ(::fstat(fd, &stat), 0);
  ASSERT_EQ(::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 65'536, 131'072), 0);
  const Opened opened = OpenSegment(Request());
  ASSERT_TRUE(opened.segment) << opened.status.message;
  ASSERT_EQ(::fstat(fd, &stat), 0);
  EXPECT_GE(stat.st_blocks * 512, stat.st_size);
  ::close(fd);
}

TEST_F(SegmentTest, WhatIsNoSegmentIsLeftAlone) {
  const std::string text(5000, 'x');
  std::ofstream(FilePath()) << text;
  stdfs::permissions(FilePath(), stdfs::perms(0600));
  const Opened file = OpenSegment(Request());
  EXPECT_EQ(file.status.code, Code::kCorruption);
  EXPECT_EQ(Lacks(file.status.text(), {"5000 bytes", "left alone"}), "");
  std::string now(5001, '\0');
  std::ifstream(FilePath()).read(now.data(), 5001);
  EXPECT_EQ(now.substr(0, 5000), text);
  stdfs::remove(FilePath());

  stdfs::create_directory(FilePath());
  EXPECT_EQ(Lacks(OpenSegment(Request()).status.text(), {"no regular file"}), "");
  stdfs::remove(FilePath());
  ASSERT_EQ(::mkfifo(FilePath().c_str(), 0600), 0);  // opening one would wait for a writer
  EXPECT_EQ(Lacks(OpenSegment(Request()).status.text(), {"no regular file"}), "");
  stdfs::remove(FilePath());
  SegmentRequest other = Request();
  other.name = "target";
  ASSERT_TRUE(OpenSegment(other).segment);
  stdfs::create_symlink(dir_.path() / "ucmstore.target.r1", FilePath());
  EXPECT_EQ(Lacks(OpenSegment(Request()).status.text(), {"no regular file"}), "");
  EXPECT_TRUE(stdfs::is_symlink(FilePath()));
}

TEST_F(SegmentTest, E10_TheModeIsExactWhateverTheUmask) {
  for (const mode_t mask : {0000U, 0022U, 0077U, 0777U}) {
    for (const std::uint32_t mode : {0600U, 0660U, 0666U}) {
      const mode_t before = ::umask(mask);
      SegmentRequest request = Request();
      request.mode = mode;
      const Opened opened = OpenSegment(request);
      ::umask(before);
      ASSERT_TRUE(opened.segment) << opened.status.message;
      struct stat stat{};
      ASSERT_EQ(::stat(FilePath().c_str(), &stat), 0);
      EXPECT_EQ(stat.st_mode & 07777U, mode) << "umask " << mask;
      EXPECT_TRUE(opened.segment->Unlink());
    }
  }
}

TEST_F(SegmentTest, E10_AModeWiderThanAskedForIsRefusedAndANarrowerNoted) {
  SegmentRequest wide = Request();
  wide.mode = 0666;
  ASSERT_TRUE(OpenSegment(wide).segment);
  const Opened narrow = OpenSegment(Request());
  EXPECT_EQ(narrow.status.code, Code::kInvalidArgument);
  EXPECT_EQ(Lacks(narrow.status.text(), {"0666", "0600", "option `name`"}), "");
  stdfs::permissions(FilePath(), stdfs::perms(0600));
  const Opened noted = OpenSegment(wide);
  ASSERT_TRUE(noted.segment) << noted.status.message;
  EXPECT_EQ(Lacks(noted.segment->note(), {"0600", "0666"}), "");
}

TEST_F(SegmentTest, E10_AnotherUsersSegmentIsRefusedInWords) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs two users, so root";
  constexpr uid_t kOther = 54'321;
  stdfs::permissions(dir_.path(), stdfs::perms(01777));
  // Opens as the other user; gives what went wrong, of what should go wrong in these words.
  const auto as_other = [&](std::uint32_t mode, const std::vector<std::string>& words) {
    Children children;
    children.Start([&]() -> std::string {
      if (::setgroups(0, nullptr) != 0 || ::setegid(kOther) != 0 || ::seteuid(kOther) != 0) {
        return "cannot be the other user";
      }
      SegmentRequest request = Request();
      request.mode = mode;
      const Opened opened = OpenSegment(request);
      if (words.empty()) return opened.segment ? "" : opened.status.message;
      return opened.segment ? "was let in" : Lacks(opened.status.text(), words);
    });
    EXPECT_EQ(children.Finish(), std::vector<int>{0});
  };
  const std::string path = FilePath().string();
  ASSERT_TRUE(OpenSegment(Request()).segment);
  as_other(0600, {path, "uid 0 ", "0600", "uid 54321", "0660"});
  as_other(0660, {path, "uid 0 ", "0600", "uid 54321"});  // asks, but the owner does not let it
  as_other(0666, {path, "uid 0,", "0600", "uid 54321"});
  stdfs::remove(FilePath());

  as_other(0600, {});  // the other user's own, now; root is no exception
  const Opened opened = OpenSegment(Request());
  EXPECT_EQ(opened.status.code, Code::kInvalidArgument);
  EXPECT_EQ(Lacks(opened.status.text(), {path, "uid 54321 ", "uid 0:"}), "");
  stdfs::remove(FilePath());

  SegmentRequest all = Request();
  all.mode = 0666;
  ASSERT_TRUE(OpenSegment(all).segment);
  as_other(0666, {});
}

TEST_F(SegmentTest, E11_AVanishedNameLeavesThoseWhoRunAlone) {
  const Opened first = OpenSegment(Request());
  ASSERT_TRUE(first.segment);
  first.segment->data()[0] = std::byte{1};
  stdfs::remove(FilePath());
  EXPECT_FALSE(first.segment->HasName());
  const Opened second = OpenSegment(Request());
  ASSERT_TRUE(second.segment);
  EXPECT_TRUE(second.segment->created());
  EXPECT_EQ(second.segment->data()[0], std::byte{0});
  EXPECT_TRUE(EveryByteHolds(*first.segment, std::byte{2}));
  EXPECT_EQ(second.segment->data()[0], std::byte{0});
  // The name is another file's now, so it is not the first one's to remove.
  EXPECT_FALSE(first.segment->Unlink());
  EXPECT_TRUE(stdfs::exists(FilePath()));
  EXPECT_TRUE(second.segment->HasName());
  EXPECT_TRUE(second.segment->Unlink());
  EXPECT_FALSE(stdfs::exists(FilePath()));
  EXPECT_FALSE(second.segment->Unlink());
}

}  // namespace
}  // namespace ucmstore::test
