// SPDX-License-Identifier: Apache-2.0
//
// Making, locking and judging marks.
#include "store/posix/writer_mark.h"

#include <spdlog/fmt/fmt.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>

#include "io/psync.h"

namespace ucmstore {
namespace {

constexpr int kMaxTries = 32;
constexpr std::size_t kMaxMarkSize = 512;

// Differs after each start of a machine, and between machines. "" if unknown.
std::string BootId(FileSystem& fs) {
  const File file(fs, fs.OpenAt(AT_FDCWD, "/proc/sys/kernel/random/boot_id", O_RDONLY, 0));
  if (!file) return "";
  std::array<char, 64> text{};
  const iovec piece{.iov_base = text.data(), .iov_len = text.size() - 1};
  const ssize_t size = fs.ReadV(file.get(), &piece, 1, 0);
  const std::string_view line(text.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  return std::string(line.substr(0, line.find('\n')));
}

std::string MarkText(FileSystem& fs) {
  utsname host{};
  ::uname(&host);
  return fmt::format("host: {}\nboot: {}\npid: {}\n", host.nodename, BootId(fs), ::getpid());
}

std::string ReadMark(FileSystem& fs, int fd) {
  std::array<char, kMaxMarkSize> text{};
  const iovec piece{.iov_base = text.data(), .iov_len = text.size()};
  const ssize_t size = fs.ReadV(fd, &piece, 1, 0);
  return {text.data(), size > 0 ? static_cast<std::size_t>(size) : 0};
}

bool IsOfThisBoot(FileSystem& fs, std::string_view mark) {
  const std::string boot = BootId(fs);
  return !boot.empty() && mark.find(fmt::format("boot: {}\n", boot)) != std::string_view::npos;
}

}  // namespace

Modes Modes::FromWord(std::string_view word) noexcept {
  if (word == "group") return {.file = 0660, .folder = 0770, .exact = true};
  if (word == "world") return {.file = 0666, .folder = 0777, .exact = true};
  return {};
}

WriterMark::WriterMark(FileSystem& fs, int folder, WriterId id, File file, bool locked)
    : fs_(fs),
      folder_(folder),
      id_(id),
      file_(std::move(file)),
      guard_(file_.get()),
      locked_(locked) {}

WriterMark::~WriterMark() {
  if (!keep_.load()) (void)fs_.Unlink(folder_, MarkName(id_).c_str());
  guard_.reset();
}

Result<std::unique_ptr<WriterMark>> WriterMark::Create(FileSystem& fs, int folder,
                                                       const Modes& modes) {
  for (int i = 0; i < kMaxTries; ++i) {
    const WriterId id = NewWriterId();
    const Name name = MarkName(id);
    const int fd =
        fs.OpenAt(folder, name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, modes.file);
    if (fd == -EEXIST) continue;
    if (fd < 0) return std::unexpected(ErrnoStatus(-fd, name.text()));
    File file(fs, fd);
    if (modes.exact) (void)fs.SetMode(fd, modes.file);
    const int taken = fs.TryLock(fd, LockKind::kExclusive);
    FileStat stat;
    const int known = fs.Stat(fd, &stat);
    if ((taken < 0 && !HasNoLocks(taken)) || known < 0 || stat.links == 0) {
      // A reaper came between (it unlinks what it takes), or the lock failed: begin anew.
      (void)fs.Unlink(folder, name.c_str());
      if (taken < 0 && taken != -EAGAIN) return std::unexpected(ErrnoStatus(-taken, name.text()));
      if (known < 0) return std::unexpected(ErrnoStatus(-known, name.text()));
      continue;
    }
    std::string text = MarkText(fs);
    const iovec piece{.iov_base = text.data(), .iov_len = text.size()};
    // A failure (no space, say) leaves an empty mark, which on this machine is as good.
    (void)fs.WriteV(fd, &piece, 1, 0);
    return std::unique_ptr<WriterMark>(new WriterMark(fs, folder, id, std::move(file), taken == 0));
  }
  return Failure(Code::kBusy, fmt::format("{}/: {} marks in a row were taken for dead by others",
                                          kWritersName, kMaxTries));
}

MarkVerdict JudgeMark(FileSystem& fs, int folder, WriterId writer, bool local) {
  MarkVerdict verdict;
  const int fd = fs.OpenAt(folder, MarkName(writer).c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK, 0);
  if (fd < 0) {
    verdict.life = fd == -ENOENT ? Life::kGone : Life::kAlive;
    return verdict;
  }
  File file(fs, fd);
  verdict.text = ReadMark(fs, fd);
  if (fs.TryLock(fd, LockKind::kExclusive) < 0) return verdict;
  FileStat stat;
  if (fs.Stat(fd, &stat) < 0) return verdict;
  if (stat.links == 0) {
    verdict.life = Life::kGone;
  } else if (local || verdict.text.empty() || IsOfThisBoot(fs, verdict.text)) {
    // Empty: born, never locked, nothing written. The text is read before the lock, so a writer
    // that completed its mark in between has the lock and we do not.
    verdict.life = Life::kDead;
    verdict.lock = std::move(file);
  }
  return verdict;
}

}  // namespace ucmstore
