// SPDX-License-Identifier: Apache-2.0
//
// The seam to the disk, its direct-I/O probe, and the guard that keeps locks from forked children.
#include "io/file_system.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <string>

#include "io/direct_probe.h"
#include "io/fork_guard.h"
#include "io/hooked_fs.h"
#include "support/temp_dir.h"

namespace ucmstore::test {
namespace {

class FileSystemTest : public ::testing::Test {
 protected:
  FileSystemTest() : folder_(fs_, fs_.OpenAt(AT_FDCWD, dir_.string().c_str(), O_RDONLY, 0)) {}

  File Make(const char* name) {
    return {fs_, fs_.OpenAt(folder_.get(), name, O_RDWR | O_CREAT, 0600)};
  }
  std::set<std::string> Names() {
    std::set<std::string> names;
    EXPECT_EQ(fs_.List(folder_.get(),
                       [&names](std::string_view name) {
                         names.emplace(name);
                         return true;
                       }),
              0);
    return names;
  }

  TempDir dir_;
  HookedFs fs_;
  File folder_;
};

TEST_F(FileSystemTest, RenameNoReplaceNeverReplaces) {
  (void)Make("a");
  (void)Make("b");
  EXPECT_EQ(fs_.RenameNoReplace(folder_.get(), "a", folder_.get(), "b"), -EEXIST);
  EXPECT_EQ(fs_.RenameNoReplace(folder_.get(), "a", folder_.get(), "c"), 0);
  EXPECT_EQ(fs_.RenameNoReplace(folder_.get(), "a", folder_.get(), "d"), -ENOENT);
  EXPECT_EQ(Names(), (std::set<std::string>{"b", "c"}));
}

TEST_F(FileSystemTest, StatTellsKindsAndFollowsNoLink) {
  FileStat stat;
  const File file = Make("file");
  EXPECT_EQ(::ftruncate(file.get(), 100'000), 0);
  EXPECT_EQ(fs_.StatAt(folder_.get(), "file", &stat), 0);
  EXPECT_EQ(stat.kind, FileKind::kRegular);
  EXPECT_EQ(stat.size, 100'000U);
  EXPECT_EQ(stat.disk_bytes, 0U) << "a hole costs nothing";
  FileStat same;
  EXPECT_EQ(fs_.Stat(file.get(), &same), 0);
  EXPECT_TRUE(stat.SameFile(same));
  EXPECT_EQ(::symlinkat("file", folder_.get(), "link"), 0);
  EXPECT_EQ(fs_.StatAt(folder_.get(), "link", &stat), 0);
  EXPECT_EQ(stat.kind, FileKind::kOther);
  EXPECT_EQ(fs_.MakeFolder(folder_.get(), "folder", 0700), 0);
  EXPECT_EQ(fs_.StatAt(folder_.get(), "folder", &stat), 0);
  EXPECT_EQ(stat.kind, FileKind::kFolder);
  EXPECT_EQ(fs_.StatAt(folder_.get(), "nothing", &stat), -ENOENT);
}

TEST_F(FileSystemTest, ListsEachTimeFromTheStart) {
  (void)Make("a");
  (void)Make("b");
  EXPECT_EQ(Names().size(), 2U);
  EXPECT_EQ(Names().size(), 2U);
  int seen = 0;
  EXPECT_EQ(fs_.List(folder_.get(), [&seen](std::string_view) { return ++seen < 1; }), 0);
  EXPECT_EQ(seen, 1);
}

TEST_F(FileSystemTest, LocksBelongToTheOpening) {
  const File one = Make("lock");
  File two = Make("lock");
  EXPECT_EQ(fs_.TryLock(one.get(), LockKind::kExclusive), 0);
  EXPECT_EQ(fs_.TryLock(two.get(), LockKind::kExclusive), -EAGAIN) << "in one process, too";
  EXPECT_EQ(fs_.TryLock(two.get(), LockKind::kShared), -EAGAIN);
  (void)Make("lock");  // opened and closed: with POSIX record locks that lost the lock (S03)
  EXPECT_EQ(fs_.TryLock(two.get(), LockKind::kExclusive), -EAGAIN);
}

TEST_F(FileSystemTest, S03_AForkedChildDoesNotInheritAGuardedLock) {
  File holder = Make("lock");
  ASSERT_EQ(fs_.TryLock(holder.get(), LockKind::kExclusive), 0);
  int to_child[2];
  int from_child[2];
  ASSERT_EQ(::pipe(to_child), 0);
  ASSERT_EQ(::pipe(from_child), 0);
  char byte = 0;
  pid_t child = 0;
  {
    const ForkGuard guard(holder.get());
    child = ::fork();
    if (child == 0) {  // lives on, holding nothing, until it is told to end
      ::close(to_child[1]);
      (void)!::write(from_child[1], &byte, 1);
      (void)!::read(to_child[0], &byte, 1);
      ::_exit(0);
    }
  }
  ASSERT_EQ(::read(from_child[0], &byte, 1), 1);  // fork has returned in the child
  holder = File();                                // the parent's only descriptor
  const File next = Make("lock");
  EXPECT_EQ(fs_.TryLock(next.get(), LockKind::kExclusive), 0);
  for (const int fd : {to_child[0], to_child[1], from_child[0], from_child[1]}) ::close(fd);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
}

TEST_F(FileSystemTest, TheProbeLeavesNothingAndTellsWhatItSaw) {
  const DirectVerdict verdict = ProbeDirect(fs_, folder_.get(), "probe", 0600, 4096);
  EXPECT_EQ(verdict.error, 0);
  EXPECT_TRUE(Names().empty());
  EXPECT_EQ(verdict.usable, verdict.reason.empty()) << verdict.reason;
}

TEST_F(FileSystemTest, I02_TheProbeBelievesTransfersNotFlags) {
  fs_.Set([](const Call& call) {
    return call.op == Op::kOpen && (call.flags & O_DIRECT) != 0 ? -EINVAL : HookedFs::kGoOn;
  });
  DirectVerdict verdict = ProbeDirect(fs_, folder_.get(), "probe", 0600, 4096);
  EXPECT_FALSE(verdict.usable);
  EXPECT_NE(verdict.reason.find("O_DIRECT"), std::string::npos) << verdict.reason;

  bool refused = false;  // opens, then refuses the first transfer
  fs_.Set([&refused](const Call& call) {
    if (call.op != Op::kWrite || refused) return HookedFs::kGoOn;
    refused = true;
    return -EINVAL;
  });
  verdict = ProbeDirect(fs_, folder_.get(), "probe", 0600, 4096);
  EXPECT_FALSE(verdict.usable);
  EXPECT_NE(verdict.reason.find("refused"), std::string::npos) << verdict.reason;

  fs_.Clear();
  fs_.SetAfterRead([](const iovec* pieces, int, std::uint64_t) {
    static_cast<char*>(pieces[0].iov_base)[7] ^= 1;
  });
  verdict = ProbeDirect(fs_, folder_.get(), "probe", 0600, 4096);
  EXPECT_FALSE(verdict.usable) << "a page that comes back changed is no support";

  fs_.Clear();
  fs_.Set([](const Call& call) { return call.op == Op::kOpen ? -EROFS : HookedFs::kGoOn; });
  verdict = ProbeDirect(fs_, folder_.get(), "probe", 0600, 4096);
  EXPECT_EQ(verdict.error, -EROFS) << "not a matter of direct I/O";
  fs_.Clear();
  EXPECT_TRUE(Names().empty());
}

}  // namespace
}  // namespace ucmstore::test
