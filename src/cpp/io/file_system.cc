// SPDX-License-Identifier: Apache-2.0
//
// The kernel's file system behind the seam: one system call for each method.
#include "io/file_system.h"

#include <dirent.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <new>

#include "base/aligned_buffer.h"

// From <linux/stat.h> 6.1; the C library of an older base does not name them.
#ifndef STATX_DIOALIGN
#define STATX_DIOALIGN 0x00002000U
#endif

namespace ucmstore {
namespace {

int Returned(int result) noexcept { return result < 0 ? -errno : result; }

FileKind KindOf(std::uint32_t mode) noexcept {
  if (S_ISREG(mode)) return FileKind::kRegular;
  return S_ISDIR(mode) ? FileKind::kFolder : FileKind::kOther;
}

void Fill(const struct stat& from, FileStat* to) noexcept {
  to->kind = KindOf(from.st_mode);
  to->links = static_cast<std::uint32_t>(from.st_nlink);
  to->mode = from.st_mode & 07777U;
  to->size = static_cast<std::uint64_t>(from.st_size);
  to->disk_bytes = static_cast<std::uint64_t>(from.st_blocks) * 512;
  to->inode = from.st_ino;
  to->device = from.st_dev;
  to->mtime_ns = static_cast<std::int64_t>(from.st_mtim.tv_sec) * 1'000'000'000 +
                 static_cast<std::int64_t>(from.st_mtim.tv_nsec);
}

// struct statx as the kernel has it, with the two fields of STATX_DIOALIGN by their offsets.
struct StatxWithAlignment {
  std::uint32_t mask;
  std::array<std::byte, 148> skipped;
  std::uint32_t memory_align;
  std::uint32_t offset_align;
  std::array<std::byte, 96> spare;
};
static_assert(sizeof(StatxWithAlignment) == 256);
static_assert(offsetof(StatxWithAlignment, memory_align) == 0x98);

struct NamedType {
  std::uint64_t type;
  std::string_view name;
  bool local;
};

// statfs(2) and <linux/magic.h>.
constexpr std::array<NamedType, 21> kTypes{{
    {0xEF53, "ext4", true},        {0x58465342, "xfs", true},     {0x9123683E, "btrfs", true},
    {0x01021994, "tmpfs", true},   {0x858458F6, "ramfs", true},   {0x794C7630, "overlayfs", true},
    {0x2FC12FC1, "zfs", true},     {0xF2F52010, "f2fs", true},    {0xCA451A4E, "bcachefs", true},
    {0x4D44, "vfat", true},        {0x2011BAB0, "exfat", true},   {0x6969, "nfs", false},
    {0xFF534D42, "cifs", false},   {0xFE534D42, "smb2", false},   {0x65735546, "fuse", false},
    {0x0BD00BD0, "lustre", false}, {0x00C36400, "ceph", false},   {0x01021997, "9p", false},
    {0x47504653, "gpfs", false},   {0x19830326, "beegfs", false}, {0x01161970, "gfs2", false},
}};

const NamedType* FindType(std::uint64_t type) noexcept {
  for (const NamedType& known : kTypes) {
    if (known.type == type) return &known;
  }
  return nullptr;
}

}  // namespace

FileSystem& FileSystem::Real() noexcept {
  // Never destroyed, since threads may outlive main.
  alignas(FileSystem) static std::array<std::byte, sizeof(FileSystem)> memory;
  static FileSystem* const real = new (memory.data()) FileSystem;
  return *real;
}

int FileSystem::OpenAt(int folder, const char* path, int flags, std::uint32_t mode) noexcept {
  return Returned(::openat(folder, path, flags | O_CLOEXEC | O_NOCTTY, mode));
}

int FileSystem::Close(int fd) noexcept { return Returned(::close(fd)); }

int FileSystem::StatAt(int folder, const char* path, FileStat* stat) noexcept {
  struct stat raw;
  const int result = ::fstatat(folder, path, &raw, AT_SYMLINK_NOFOLLOW);
  if (result < 0) return -errno;
  Fill(raw, stat);
  return 0;
}

int FileSystem::Stat(int fd, FileStat* stat) noexcept {
  struct stat raw;
  const int result = ::fstat(fd, &raw);
  if (result < 0) return -errno;
  Fill(raw, stat);
  return 0;
}

ssize_t FileSystem::ReadV(int fd, const iovec* pieces, int count, std::uint64_t offset) noexcept {
  const ssize_t result = ::preadv(fd, pieces, count, static_cast<off_t>(offset));
  return result < 0 ? -errno : result;
}

ssize_t FileSystem::WriteV(int fd, const iovec* pieces, int count, std::uint64_t offset) noexcept {
  const ssize_t result = ::pwritev(fd, pieces, count, static_cast<off_t>(offset));
  return result < 0 ? -errno : result;
}

int FileSystem::Sync(int fd, bool data_only) noexcept {
  return Returned(data_only ? ::fdatasync(fd) : ::fsync(fd));
}

int FileSystem::Rename(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  return Returned(::renameat(from_folder, from, to_folder, to));
}

int FileSystem::RenameNoReplace(int from_folder, const char* from, int to_folder,
                                const char* to) noexcept {
  const int result = Returned(::renameat2(from_folder, from, to_folder, to, RENAME_NOREPLACE));
  if (result != -EINVAL && result != -ENOSYS) return result;
  // NFS and others know no flag. A link refuses an existing name just as well.
  const int linked = Link(from_folder, from, to_folder, to);
  return linked < 0 ? linked : Unlink(from_folder, from);
}

int FileSystem::Link(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  return Returned(::linkat(from_folder, from, to_folder, to, 0));
}

int FileSystem::Unlink(int folder, const char* path) noexcept {
  return Returned(::unlinkat(folder, path, 0));
}

int FileSystem::MakeFolder(int folder, const char* path, std::uint32_t mode) noexcept {
  return Returned(::mkdirat(folder, path, mode));
}

int FileSystem::RemoveFolder(int folder, const char* path) noexcept {
  return Returned(::unlinkat(folder, path, AT_REMOVEDIR));
}

int FileSystem::SetMode(int fd, std::uint32_t mode) noexcept {
  return Returned(::fchmod(fd, mode));
}

int FileSystem::SetTimes(int folder, const char* path) noexcept {
  // Both: then the right to write the file is enough, and it need not be our own.
  const std::array<timespec, 2> now{
      {{.tv_sec = 0, .tv_nsec = UTIME_NOW}, {.tv_sec = 0, .tv_nsec = UTIME_NOW}}};
  return Returned(::utimensat(folder, path, now.data(), AT_SYMLINK_NOFOLLOW));
}

int FileSystem::List(int folder, const ListCallback& entry) noexcept {
  // A descriptor of its own: two listings of one folder would share its position.
  const int fd = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return -errno;
  DIR* listing = ::fdopendir(fd);
  if (listing == nullptr) {
    const int error = -errno;
    ::close(fd);
    return error;
  }
  int result = 0;
  for (;;) {
    errno = 0;
    const dirent* next = ::readdir(listing);  // NOLINT(concurrency-mt-unsafe): own stream
    if (next == nullptr) {
      result = -errno;
      break;
    }
    const std::string_view name(next->d_name);
    if (name == "." || name == "..") continue;
    try {
      if (!entry(name)) break;
    } catch (...) {  // out of memory for what it keeps
      result = -ENOMEM;
      break;
    }
  }
  ::closedir(listing);
  return result;
}

int FileSystem::TryLock(int fd, LockKind kind) noexcept {
  struct flock lock{};
  lock.l_type = static_cast<short>(kind == LockKind::kShared ? F_RDLCK : F_WRLCK);
  lock.l_whence = SEEK_SET;
  const int result = Returned(::fcntl(fd, F_OFD_SETLK, &lock));
  return result == -EACCES ? -EAGAIN : result;
}

int FileSystem::Facts(int fd, FileSystemFacts* facts) noexcept {
  struct statfs raw;
  if (::fstatfs(fd, &raw) < 0) return -errno;
  facts->type = static_cast<std::uint32_t>(raw.f_type);
  facts->total_bytes =
      static_cast<std::uint64_t>(raw.f_blocks) * static_cast<std::uint64_t>(raw.f_bsize);
  facts->free_bytes =
      static_cast<std::uint64_t>(raw.f_bavail) * static_cast<std::uint64_t>(raw.f_bsize);
  return 0;
}

int FileSystem::Alignment(int fd, DirectAlignment* alignment) noexcept {
  *alignment = {.memory = kPageSize, .offset = kPageSize};
  StatxWithAlignment raw{};
  const long result = ::syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &raw);
  if (result < 0) return errno == ENOSYS ? 0 : -errno;
  if ((raw.mask & STATX_DIOALIGN) != 0) *alignment = {raw.memory_align, raw.offset_align};
  return 0;
}

int FileSystem::DropDirect(int fd) noexcept {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0) return -errno;
  return Returned(::fcntl(fd, F_SETFL, flags & ~O_DIRECT));
}

bool HasNoLocks(int error) noexcept {
  return error == -ENOLCK || error == -EOPNOTSUPP || error == -ENOSYS || error == -EINVAL;
}

bool IsLocal(const FileSystemFacts& facts) noexcept {
  const NamedType* known = FindType(facts.type);
  return known != nullptr && known->local;
}

std::string_view FileSystemName(std::uint64_t type) noexcept {
  const NamedType* known = FindType(type);
  return known != nullptr ? known->name : "a file system of unknown type";
}

}  // namespace ucmstore
