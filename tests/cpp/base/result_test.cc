// SPDX-License-Identifier: Apache-2.0
//
// Statuses: what a long message loses, and what an errno becomes.
#include "base/result.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <set>
#include <string>

namespace ucmstore {
namespace {

bool Has(const Status& status, std::string_view part) {
  return status.text().find(part) != std::string_view::npos;
}

TEST(Status, OkIsEmpty) {
  const Status status = Status::Ok();
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.text(), "");
  EXPECT_EQ(status.sys_errno, 0);
}

TEST(Status, KeepsWhatFits) {
  for (const std::size_t size : {0U, 1U, 246U, 247U}) {
    const std::string text(size, 'x');
    const Status status = Status::Error(Code::kBusy, text, 7);
    EXPECT_EQ(status.text(), text);
    EXPECT_EQ(status.code, Code::kBusy);
    EXPECT_EQ(status.sys_errno, 7);
    EXPECT_FALSE(status.ok());
  }
}

TEST(Status, LongMessageLosesItsMiddle) {
  for (const std::size_t size : {248U, 249U, 500U, 5000U}) {
    std::string text(size, 'm');
    text.replace(0, 12, "posix: /root");
    text.replace(size - 12, 12, "is full (28)");
    const Status status = Status::Error(Code::kNoSpace, text);
    EXPECT_EQ(status.text().size(), 247U);
    EXPECT_TRUE(status.text().starts_with("posix: /root"));
    EXPECT_TRUE(status.text().ends_with("is full (28)"));
    EXPECT_TRUE(Has(status, "m ... m"));
    EXPECT_EQ(status.message[247], '\0');
  }
}

TEST(Status, EveryCodeHasItsOwnName) {
  std::set<std::string> names;
  for (int code = 0; code <= static_cast<int>(Code::kInternal); ++code) {
    names.insert(CodeName(static_cast<Code>(code)));
  }
  EXPECT_EQ(names.size(), 15U);
  EXPECT_FALSE(names.contains("unknown code"));
  EXPECT_STREQ(CodeName(static_cast<Code>(99)), "unknown code");
}

TEST(Errno, TextSaysWordsAndNumber) {
  EXPECT_EQ(ErrnoText(ENOSPC), "No space left on device (errno 28)");
  EXPECT_EQ(ErrnoText(EACCES), "Permission denied (errno 13)");
  EXPECT_NE(ErrnoText(99'999).find("(errno 99999)"), std::string::npos);
}

TEST(Errno, Codes) {
  EXPECT_EQ(CodeOfErrno(ENOSPC), Code::kNoSpace);
  EXPECT_EQ(CodeOfErrno(EDQUOT), Code::kNoSpace);
  EXPECT_EQ(CodeOfErrno(ENOENT), Code::kNotFound);
  EXPECT_EQ(CodeOfErrno(EMFILE), Code::kLimit);
  EXPECT_EQ(CodeOfErrno(ENFILE), Code::kLimit);
  EXPECT_EQ(CodeOfErrno(ENOMEM), Code::kLimit);
  EXPECT_EQ(CodeOfErrno(EFBIG), Code::kLimit);
  EXPECT_EQ(CodeOfErrno(EINVAL), Code::kUnsupported);
  EXPECT_EQ(CodeOfErrno(ENOSYS), Code::kUnsupported);
  EXPECT_EQ(CodeOfErrno(EOPNOTSUPP), Code::kUnsupported);
  EXPECT_EQ(CodeOfErrno(EIO), Code::kIoError);
  EXPECT_EQ(CodeOfErrno(EACCES), Code::kIoError);
  EXPECT_EQ(CodeOfErrno(ESTALE), Code::kIoError);
}

TEST(Errno, StatusSaysWhereAndWhat) {
  const Status status = ErrnoStatus(EACCES, "posix: open /a/b");
  EXPECT_EQ(status.text(), "posix: open /a/b: Permission denied (errno 13)");
  EXPECT_EQ(status.code, Code::kIoError);
  EXPECT_EQ(status.sys_errno, EACCES);
}

// The value in force now, not some constant.
TEST(Errno, DescriptorLimitIsNamedWithItsValue) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit lowered = before;
  lowered.rlim_cur = 123;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &lowered), 0);
  const Status status = ErrnoStatus(EMFILE, "posix: open /a");
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(status.code, Code::kLimit);
  EXPECT_TRUE(Has(status, "Too many open files (errno 24)")) << status.text();
  EXPECT_TRUE(Has(status, "RLIMIT_NOFILE is 123")) << status.text();
  EXPECT_TRUE(Has(status, "ulimit -n")) << status.text();
}

TEST(Errno, OtherLimitsAreNamed) {
  const Status files = ErrnoStatus(ENFILE, "posix: open /a");
  EXPECT_TRUE(Has(files, "fs.file-max is ")) << files.text();
  const Status size = ErrnoStatus(EFBIG, "posix: write /a");
  EXPECT_TRUE(Has(size, "RLIMIT_FSIZE is ")) << size.text();
  const Status memory = ErrnoStatus(ENOMEM, "posix: mmap");
  EXPECT_TRUE(Has(memory, "RLIMIT_AS is ")) << memory.text();
  EXPECT_TRUE(Has(memory, "vm.max_map_count is ")) << memory.text();
}

TEST(Errno, LimitSurvivesALongPath) {
  const Status status = ErrnoStatus(EMFILE, "posix: open /" + std::string(4000, 'p'));
  EXPECT_TRUE(status.text().starts_with("posix: open /p")) << status.text();
  EXPECT_TRUE(Has(status, "(errno 24)")) << status.text();
  EXPECT_TRUE(Has(status, "RLIMIT_NOFILE is ")) << status.text();
}

TEST(Result, FailureCarriesItsStatus) {
  const Result<int> result = Failure(Code::kUnsupported, "no");
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, Code::kUnsupported);
  EXPECT_EQ(result.error().text(), "no");
}

}  // namespace
}  // namespace ucmstore
