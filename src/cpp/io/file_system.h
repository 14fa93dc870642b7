// SPDX-License-Identifier: Apache-2.0
//
// FileSystem: the one seam to the disk. Everything that this project does with files goes through
// these calls; tests derive from the class to fail, stretch, count or kill at any of them.
// Each returns what the kernel does: 0 or more, or a negative errno. Nothing is retried here.
// Paths are relative to a folder's descriptor, so a namespace stays where it was opened, whatever
// is renamed above it; symbolic links are never followed at the last component, except by
// OpenAt without O_NOFOLLOW. Thread-safe.
#pragma once

#include <fcntl.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>

namespace ucmstore {

enum class FileKind : std::uint8_t { kRegular, kFolder, kOther };

struct FileStat {
  FileKind kind = FileKind::kOther;
  std::uint32_t links = 0;
  std::uint32_t mode = 0;  // permission bits
  std::uint64_t size = 0;
  std::uint64_t disk_bytes = 0;  // what the file costs, in whole sectors
  std::uint64_t inode = 0;
  std::uint64_t device = 0;
  std::int64_t mtime_ns = 0;  // since the epoch

  // The same file, not just the same name. Certain while a descriptor of one of them is open.
  [[nodiscard]] bool SameFile(const FileStat& other) const noexcept {
    return inode == other.inode && device == other.device;
  }
};

// What direct I/O asks of memory addresses, and of file offsets and lengths. 1: nothing.
struct DirectAlignment {
  std::uint32_t memory = 1;
  std::uint32_t offset = 1;
};

struct FileSystemFacts {
  std::uint64_t type = 0;  // statfs(2) f_type
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;  // for an ordinary user
};

enum class LockKind : std::uint8_t { kShared, kExclusive };

// A folder's entry. `name` is valid during the callback; false stops the listing.
using ListCallback = std::function<bool(std::string_view name)>;

class FileSystem {
 public:
  FileSystem() = default;
  FileSystem(const FileSystem&) = delete;
  FileSystem& operator=(const FileSystem&) = delete;
  virtual ~FileSystem() = default;

  // The kernel's. Lives for ever.
  [[nodiscard]] static FileSystem& Real() noexcept;

  // O_CLOEXEC and O_NOCTTY are added. `mode` is subject to the umask.
  virtual int OpenAt(int folder, const char* path, int flags, std::uint32_t mode) noexcept;
  // Gives the error that a file system may report late (NFS). The descriptor is gone either way.
  virtual int Close(int fd) noexcept;
  virtual int StatAt(int folder, const char* path, FileStat* stat) noexcept;
  virtual int Stat(int fd, FileStat* stat) noexcept;

  virtual ssize_t ReadV(int fd, const iovec* pieces, int count, std::uint64_t offset) noexcept;
  virtual ssize_t WriteV(int fd, const iovec* pieces, int count, std::uint64_t offset) noexcept;
  virtual int Sync(int fd, bool data_only) noexcept;

  virtual int Rename(int from_folder, const char* from, int to_folder, const char* to) noexcept;
  // -EEXIST if `to` exists. Never replaces it, also where the file system lacks the flag: then by
  // Link and Unlink.
  virtual int RenameNoReplace(int from_folder, const char* from, int to_folder,
                              const char* to) noexcept;
  virtual int Link(int from_folder, const char* from, int to_folder, const char* to) noexcept;
  virtual int Unlink(int folder, const char* path) noexcept;
  virtual int MakeFolder(int folder, const char* path, std::uint32_t mode) noexcept;
  virtual int RemoveFolder(int folder, const char* path) noexcept;
  virtual int SetMode(int fd, std::uint32_t mode) noexcept;
  // Sets the times of what has this name to now. Never follows a link at the end, never creates.
  virtual int SetTimes(int folder, const char* path) noexcept;
  // Every entry but "." and "..", in no order, each time from the start.
  virtual int List(int folder, const ListCallback& entry) noexcept;

  // An open-file-description lock on the whole file: it belongs to this opening of it, ends with
  // its last descriptor, and is not lost when another one is closed. -EAGAIN: somebody has it.
  virtual int TryLock(int fd, LockKind kind) noexcept;
  virtual int Facts(int fd, FileSystemFacts* facts) noexcept;
  // What direct I/O asks for on this file; {page, page} where the kernel does not say.
  virtual int Alignment(int fd, DirectAlignment* alignment) noexcept;
  // Turns O_DIRECT off for this opening of the file.
  virtual int DropDirect(int fd) noexcept;
};

// Owns a descriptor and closes it through the seam. Move-only; not synchronised.
class File {
 public:
  File() = default;
  File(FileSystem& fs, int fd) noexcept : fs_(&fs), fd_(fd) {}
  File(File&& other) noexcept : fs_(other.fs_), fd_(std::exchange(other.fd_, -1)) {}
  File& operator=(File&& other) noexcept {
    if (this != &other) {
      (void)Close();
      fs_ = other.fs_;
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { (void)Close(); }

  [[nodiscard]] explicit operator bool() const noexcept { return fd_ >= 0; }
  [[nodiscard]] int get() const noexcept { return fd_; }
  // 0 or a negative errno. The descriptor is gone either way.
  int Close() noexcept { return fd_ < 0 ? 0 : fs_->Close(std::exchange(fd_, -1)); }

 private:
  FileSystem* fs_ = nullptr;
  int fd_ = -1;
};

// An answer of TryLock: the file system has no locks at all, as opposed to: somebody has this one.
[[nodiscard]] bool HasNoLocks(int error) noexcept;

// Whether the file system of these facts is known to be this machine's own: no server behind it,
// so its locks tell about every process that can reach it.
[[nodiscard]] bool IsLocal(const FileSystemFacts& facts) noexcept;
// "ext4", "tmpfs", "nfs", or words for one that is not known.
[[nodiscard]] std::string_view FileSystemName(std::uint64_t type) noexcept;

}  // namespace ucmstore
