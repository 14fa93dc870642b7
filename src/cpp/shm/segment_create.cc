// SPDX-License-Identifier: Apache-2.0
//
// How a segment comes to be: out of sight, every byte reserved, the header written, the mode set;
// then one link(2). Killed anywhere, the creator leaves no name.
#include <fcntl.h>
#include <linux/falloc.h>
#include <spdlog/fmt/fmt.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/checksum.h"
#include "io/file_system.h"
#include "shm/room.h"
#include "shm/segment_file.h"

namespace ucmstore {
namespace {

// Interrupted by a signal, an allocation is undone: short ones come to an end between two signals.
constexpr std::uint64_t kReserveStep = 16U << 20;

std::string BootId() {
  const UniqueFd fd(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  std::array<char, 36> text{};
  const ssize_t got = fd ? ::read(fd.get(), text.data(), text.size()) : -1;
  return got == static_cast<ssize_t>(text.size()) ? std::string(text.begin(), text.end())
                                                  : std::string("unknown");
}

// Every page, now: a sparse file kills with SIGBUS when the mount is full at the first touch.
Status Reserve(int fd, std::uint64_t bytes, const std::string& path) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes) {
    // Asked first: beyond this limit the kernel sends a signal that kills.
    return ErrnoStatus(EFBIG, fmt::format("{}: a ring of {} bytes", path, bytes));
  }
  for (std::uint64_t at = 0; at < bytes;) {
    const std::uint64_t step = std::min(kReserveStep, bytes - at);
    if (::fallocate(fd, 0, static_cast<off_t>(at), static_cast<off_t>(step)) == 0) {
      at += step;
    } else if (errno != EINTR) {
      return ErrnoStatus(errno, fmt::format("{}: reserving {} ({} bytes), of which {} were to be "
                                            "had",
                                            path, BytesText(bytes), bytes, BytesText(at)));
    }
  }
  return Status::Ok();
}

RingHeader MakeHeader(const SegmentRequest& request, std::uint32_t slots,
                      const std::string& identity) {
  RingHeader header = PlanRing({.shard_size = request.shard_size,
                                .shards_per_block = request.shards_per_block,
                                .slot_count = slots});
  header.identity_bytes = static_cast<std::uint32_t>(identity.size());
  std::memcpy(header.identity, identity.data(), identity.size());
  header.header_crc32c = HeaderChecksum(header);
  return header;
}

// Everything but the name. What was reserved reads as zeros, which is an empty ring.
Status Fill(int fd, const RingHeader& header, std::uint32_t mode, const std::string& path) {
  if (const Status status = Reserve(fd, header.segment_bytes, path); !status.ok()) return status;
  if (::pwrite(fd, &header, sizeof(header), 0) != static_cast<ssize_t>(sizeof(header))) {
    return ErrnoStatus(errno, path + ": writing the header");
  }
  if (::fchmod(fd, mode) != 0) return ErrnoStatus(errno, path + ": setting its mode");
  return Status::Ok();
}

Status LinkError(int error, const std::string& path) {
  if (error == EEXIST) return Status::Error(Code::kBusy, path + ": made by another process");
  return ErrnoStatus(error, path + ": giving the ring its name");
}

Status CannotCreate(int error, const std::string& path) {
  Status status = ErrnoStatus(error, path + ": cannot be created");
  if (error == EROFS) status.code = Code::kUnsupported;
  return status;
}

std::string StagingPrefix(const SegmentRequest& request) {
  return "." + SegmentFileName(request.name) + ".";
}
constexpr std::string_view kStagingSuffix = ".new";

// Removes what killed creators of this ring left. A living one holds the file's lock.
void SweepStaging(const SegmentFolder& folder, const SegmentRequest& request) {
  const std::string prefix = StagingPrefix(request);
  FileSystem& fs = FileSystem::Real();
  (void)fs.List(folder.fd(), [&](std::string_view name) {
    if (!name.starts_with(prefix) || !name.ends_with(kStagingSuffix)) return true;
    const std::string file(name);
    const UniqueFd fd(::openat(folder.fd(), file.c_str(),
                               O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
    struct stat stat{};
    if (fd && ::fstat(fd.get(), &stat) == 0 && S_ISREG(stat.st_mode) &&
        stat.st_uid == ::geteuid() && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) {
      (void)fs.Unlink(folder.fd(), file.c_str());
    }
    return true;
  });
}

// For file systems that know no file without a name.
Result<UniqueFd> CreateStaged(const SegmentFolder& folder, const SegmentRequest& request,
                              const RingHeader& header) {
  const std::string name = SegmentFileName(request.name);
  const std::string path = folder.PathOf(name);
  SweepStaging(folder, request);
  std::uint64_t random = 0;
  if (::getrandom(&random, sizeof(random), 0) != static_cast<ssize_t>(sizeof(random))) random = 0;
  const std::string staged =
      fmt::format("{}{:016x}{}", StagingPrefix(request), random, kStagingSuffix);
  UniqueFd fd(::openat(folder.fd(), staged.c_str(),
                       O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return std::unexpected(CannotCreate(errno, path));
  Status status = ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0
                      ? Fill(fd.get(), header, request.mode, path)
                      : Status::Error(Code::kBusy, path + ": swept while being made");
  FileSystem& fs = FileSystem::Real();
  if (status.ok()) {
    const int error = -fs.RenameNoReplace(folder.fd(), staged.c_str(), folder.fd(), name.c_str());
    // Gone: swept by somebody who came before the lock. Start again.
    if (error != 0) status = LinkError(error == ENOENT ? EEXIST : error, path);
  }
  if (!status.ok()) {
    (void)fs.Unlink(folder.fd(), staged.c_str());
    return std::unexpected(status);
  }
  (void)::flock(fd.get(), LOCK_UN);
  return fd;
}

}  // namespace

std::string IdentityText(const std::string& identity, bool outlives_boot) {
  return outlives_boot ? identity + std::string(kBootMark) + BootId() : identity;
}

std::uint32_t HeaderChecksum(const RingHeader& header) noexcept {
  RingHeader copy = header;
  copy.header_crc32c = 0;
  return Crc32c({reinterpret_cast<const std::byte*>(&copy), sizeof(copy)});
}

Result<SegmentFile> CreateSegment(const SegmentFolder& folder, const SegmentRequest& request,
                                  std::uint32_t slots, bool outlives_boot, Staging staging) {
  SegmentFile file;
  file.header = MakeHeader(request, slots, IdentityText(request.identity, outlives_boot));
  const std::string name = SegmentFileName(request.name);
  const std::string path = folder.PathOf(name);
  if (staging == Staging::kUnnamed) {
    file.fd.Reset(::openat(folder.fd(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    // What kernels and file systems say that do not know the flag.
    const bool unknown =
        !file.fd && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL || errno == ENOENT);
    if (!file.fd && !unknown) return std::unexpected(CannotCreate(errno, path));
  }
  if (!file.fd) {
    Result<UniqueFd> staged = CreateStaged(folder, request, file.header);
    if (!staged) return std::unexpected(staged.error());
    file.fd = std::move(*staged);
    return file;
  }
  const Status status = Fill(file.fd.get(), file.header, request.mode, path);
  if (!status.ok()) return std::unexpected(status);
  const std::string self = fmt::format("/proc/self/fd/{}", file.fd.get());
  if (::linkat(AT_FDCWD, self.c_str(), folder.fd(), name.c_str(), AT_SYMLINK_FOLLOW) != 0) {
    return std::unexpected(LinkError(errno, path));
  }
  return file;
}

Result<SegmentFile> CreatePrivateSegment(const SegmentRequest& request, std::uint32_t slots) {
  SegmentFile file;
  file.header = MakeHeader(request, slots, request.identity);
  const std::string name = SegmentFileName(request.name);
  const std::string path = "memfd:" + name;
  file.fd.Reset(::memfd_create(name.c_str(), MFD_CLOEXEC));
  if (!file.fd) return std::unexpected(ErrnoStatus(errno, path + ": anonymous memory"));
  const Status status = Fill(file.fd.get(), file.header, 0600, path);
  if (!status.ok()) return std::unexpected(status);
  return file;
}

}  // namespace ucmstore
