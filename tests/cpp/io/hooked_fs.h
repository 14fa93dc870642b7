// SPDX-License-Identifier: Apache-2.0
//
// HookedFs: the real file system with a hook before each call: to count calls, fail the nth, cut a
// transfer short, change bytes on their way in, wait, or end the process. Thread-safe; the hook
// runs without a lock and must be thread-safe itself.
#pragma once

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "io/file_system.h"

namespace ucmstore::test {

enum class Op : std::uint8_t {
  kOpen,
  kClose,
  kStatAt,
  kStat,
  kRead,
  kWrite,
  kSync,
  kRename,
  kRenameNoReplace,
  kLink,
  kUnlink,
  kMakeFolder,
  kRemoveFolder,
  kSetMode,
  kSetTimes,
  kList,
  kTryLock,
  kFacts,
  kAlignment,
  kDropDirect,
};

struct Call {
  Op op;
  std::string_view path;  // "" where there is none
  int flags;              // of kOpen
  std::uint64_t nth;      // since the hook was set, from 0
};

class HookedFs final : public FileSystem {
 public:
  // What a hook may answer, besides a negative errno that the call then fails with.
  static constexpr int kGoOn = 0;
  static constexpr int kShort = 1;  // transfers only: move about half of the first piece
  using Hook = std::function<int(const Call&)>;
  // Gets what a read brought, and may change it.
  using AfterRead = std::function<void(const iovec* pieces, int count, std::uint64_t offset)>;

  void Set(Hook hook) {
    const MutexLock lock(mutex_);
    hook_ = std::make_shared<const Hook>(std::move(hook));
    calls_.store(0);
  }
  void SetAfterRead(AfterRead after) {
    const MutexLock lock(mutex_);
    after_read_ = std::make_shared<const AfterRead>(std::move(after));
  }
  void Clear() {
    const MutexLock lock(mutex_);
    hook_ = nullptr;
    after_read_ = nullptr;
  }
  [[nodiscard]] std::uint64_t calls() const { return calls_.load(); }

  int OpenAt(int folder, const char* path, int flags, std::uint32_t mode) noexcept override {
    if (const int f = Before(Op::kOpen, path, flags)) return f;
    return FileSystem::OpenAt(folder, path, flags, mode);
  }
  int Close(int fd) noexcept override {
    const int f = Before(Op::kClose);
    const int result = FileSystem::Close(fd);  // gone either way
    return f != 0 ? f : result;
  }
  int StatAt(int folder, const char* path, FileStat* stat) noexcept override {
    if (const int f = Before(Op::kStatAt, path)) return f;
    return FileSystem::StatAt(folder, path, stat);
  }
  int Stat(int fd, FileStat* stat) noexcept override {
    if (const int f = Before(Op::kStat)) return f;
    return FileSystem::Stat(fd, stat);
  }
  ssize_t ReadV(int fd, const iovec* pieces, int count, std::uint64_t offset) noexcept override {
    const int f = Before(Op::kRead);
    if (f < 0) return f;
    const iovec part = Half(pieces[0]);
    const ssize_t moved = f == kShort ? FileSystem::ReadV(fd, &part, 1, offset)
                                      : FileSystem::ReadV(fd, pieces, count, offset);
    std::shared_ptr<const AfterRead> after;
    {
      const MutexLock lock(mutex_);
      after = after_read_;
    }
    if (after != nullptr && moved > 0) (*after)(pieces, count, offset);
    return moved;
  }
  ssize_t WriteV(int fd, const iovec* pieces, int count, std::uint64_t offset) noexcept override {
    const int f = Before(Op::kWrite);
    if (f < 0) return f;
    const iovec part = Half(pieces[0]);
    return f == kShort ? FileSystem::WriteV(fd, &part, 1, offset)
                       : FileSystem::WriteV(fd, pieces, count, offset);
  }
  int Sync(int fd, bool data_only) noexcept override {
    if (const int f = Before(Op::kSync)) return f;
    return FileSystem::Sync(fd, data_only);
  }
  int Rename(int from_folder, const char* from, int to_folder, const char* to) noexcept override {
    if (const int f = Before(Op::kRename, to)) return f;
    return FileSystem::Rename(from_folder, from, to_folder, to);
  }
  int RenameNoReplace(int from_folder, const char* from, int to_folder,
                      const char* to) noexcept override {
    if (const int f = Before(Op::kRenameNoReplace, to)) return f;
    return FileSystem::RenameNoReplace(from_folder, from, to_folder, to);
  }
  int Link(int from_folder, const char* from, int to_folder, const char* to) noexcept override {
    if (const int f = Before(Op::kLink, to)) return f;
    return FileSystem::Link(from_folder, from, to_folder, to);
  }
  int Unlink(int folder, const char* path) noexcept override {
    if (const int f = Before(Op::kUnlink, path)) return f;
    return FileSystem::Unlink(folder, path);
  }
  int MakeFolder(int folder, const char* path, std::uint32_t mode) noexcept override {
    if (const int f = Before(Op::kMakeFolder, path)) return f;
    return FileSystem::MakeFolder(folder, path, mode);
  }
  int RemoveFolder(int folder, const char* path) noexcept override {
    if (const int f = Before(Op::kRemoveFolder, path)) return f;
    return FileSystem::RemoveFolder(folder, path);
  }
  int SetMode(int fd, std::uint32_t mode) noexcept override {
    if (const int f = Before(Op::kSetMode)) return f;
    return FileSystem::SetMode(fd, mode);
  }
  int SetTimes(int folder, const char* path) noexcept override {
    if (const int f = Before(Op::kSetTimes, path)) return f;
    return FileSystem::SetTimes(folder, path);
  }
  int List(int folder, const ListCallback& entry) noexcept override {
    if (const int f = Before(Op::kList)) return f;
    return FileSystem::List(folder, entry);
  }
  int TryLock(int fd, LockKind kind) noexcept override {
    if (const int f = Before(Op::kTryLock)) return f;
    return FileSystem::TryLock(fd, kind);
  }
  int Facts(int fd, FileSystemFacts* facts) noexcept override {
    if (const int f = Before(Op::kFacts)) return f;
    return FileSystem::Facts(fd, facts);
  }
  int Alignment(int fd, DirectAlignment* alignment) noexcept override {
    if (const int f = Before(Op::kAlignment)) return f;
    return FileSystem::Alignment(fd, alignment);
  }
  int DropDirect(int fd) noexcept override {
    if (const int f = Before(Op::kDropDirect)) return f;
    return FileSystem::DropDirect(fd);
  }

 private:
  int Before(Op op, const char* path = "", int flags = 0) noexcept {
    const std::uint64_t nth = calls_.fetch_add(1);
    std::shared_ptr<const Hook> hook;
    {
      const MutexLock lock(mutex_);
      hook = hook_;
    }
    const int answer = hook == nullptr ? kGoOn : (*hook)({op, path, flags, nth});
    const bool transfer = op == Op::kRead || op == Op::kWrite;
    return answer == kShort && !transfer ? kGoOn : answer;
  }
  static iovec Half(const iovec& piece) noexcept {
    return {.iov_base = piece.iov_base, .iov_len = (piece.iov_len + 1) / 2};
  }

  Mutex mutex_;
  std::shared_ptr<const Hook> hook_ UCMSTORE_GUARDED_BY(mutex_);
  std::shared_ptr<const AfterRead> after_read_ UCMSTORE_GUARDED_BY(mutex_);
  std::atomic<std::uint64_t> calls_{0};
};

}  // namespace ucmstore::test
