// SPDX-License-Identifier: Apache-2.0
//
// How a process comes to share a segment that is there: everything that could differ is compared
// before a byte of it is believed, and each difference is said in words with both sides and what
// to do. A name may be anybody's file, so it is looked at before it is opened.
#include <fcntl.h>
#include <spdlog/fmt/fmt.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "shm/room.h"
#include "shm/segment_file.h"

namespace ucmstore {
namespace {

class SegmentJudge {
 public:
  SegmentJudge(const SegmentFolder& folder, const SegmentRequest& request)
      : folder_(folder),
        request_(request),
        file_name_(SegmentFileName(request.name)),
        path_(folder.PathOf(file_name_)),
        remedy_("give this store another ring (option `name`), or run: ucmstore shm rm " +
                request.name) {}

  Result<SegmentFile> Run(bool folder_locked);

 private:
  Status Open();
  Status JudgeOwner() const;
  Status ReadHeader();
  Status JudgeGeometry() const;
  Status JudgeIdentity(bool outlives_boot) const;
  Status JudgePages() const;
  bool IsOfEarlierBoot() const;
  bool IsHeldByAnybody() const;
  std::string Notes() const;

  Status Refuse(Code code, const std::string& what) const {
    return Status::Error(code, fmt::format("{}: {}", path_, what));
  }
  Status Differs(const char* field, std::uint64_t there, std::uint64_t asked) const {
    return Refuse(Code::kInvalidArgument, fmt::format("its {} is {}, this store asks for {}: {}",
                                                      field, there, asked, remedy_));
  }
  std::string_view identity() const { return {file_.header.identity, file_.header.identity_bytes}; }

  const SegmentFolder& folder_;
  const SegmentRequest& request_;
  std::string file_name_;
  std::string path_;
  std::string remedy_;
  struct stat stat_{};
  SegmentFile file_;
};

bool InMyGroups(gid_t group) {
  std::vector<gid_t> mine(256);
  const int count = ::getgroups(static_cast<int>(mine.size()), mine.data());
  mine.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return group == ::getegid() || std::find(mine.begin(), mine.end(), group) != mine.end();
}

// A few of the words around the first that differs.
std::string Excerpt(std::string_view text, std::size_t at) {
  constexpr std::size_t kBefore = 10;  // so that both fit into a Status
  constexpr std::size_t kLength = 30;
  const std::size_t from = at > kBefore ? at - kBefore : 0;
  std::string shown = from > 0 ? "..." : "";
  for (const char c : text.substr(std::min(from, text.size()), kLength)) {
    shown += c >= ' ' && c <= '~' ? c : ' ';  // it may be anything
  }
  if (text.size() > from + kLength) shown += "...";
  return shown;
}

// Whose it is, before anything else: bytes of another user are believed only if asked for.
Status SegmentJudge::JudgeOwner() const {
  const std::uint32_t mode = stat_.st_mode & 07777U;
  const uid_t me = ::geteuid();
  const bool shared_with_all = (request_.mode & 0006U) != 0;
  const bool shared = shared_with_all || ((request_.mode & 0060U) != 0 && InMyGroups(stat_.st_gid));
  if (stat_.st_uid != me && !shared) {
    return Refuse(
        Code::kInvalidArgument,
        fmt::format("is of uid {} (gid {}, mode {:04o}), and this process is uid {}: give "
                    "this store another ring (option `name`), or mode 0660 and a common "
                    "group on both sides",
                    stat_.st_uid, stat_.st_gid, mode, me));
  }
  if ((mode & ~request_.mode) != 0) {
    return Refuse(
        Code::kInvalidArgument,
        fmt::format("its mode is {:04o}, which lets more users write than {:04o}, as this "
                    "store asks for: {}",
                    mode, request_.mode, remedy_));
  }
  return Status::Ok();
}

Status SegmentJudge::Open() {
  const UniqueFd handle(
      ::openat(folder_.fd(), file_name_.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!handle) return ErrnoStatus(errno, path_);
  if (::fstat(handle.get(), &stat_) != 0) {
    return Status::Error(Code::kIoError, path_ + ": " + ErrnoText(errno), errno);
  }
  if (!S_ISREG(stat_.st_mode)) {
    return Refuse(Code::kCorruption,
                  "is no regular file and not of this store's making: remove it, "
                  "or give this store another ring (option `name`)");
  }
  if (const Status status = JudgeOwner(); !status.ok()) return status;
  const std::string self = fmt::format("/proc/self/fd/{}", handle.get());
  file_.fd.Reset(::open(self.c_str(), O_RDWR | O_CLOEXEC | O_NOCTTY));
  if (!file_.fd) {
    const int error = errno;
    Status status = ErrnoStatus(
        error, fmt::format("{}: cannot be opened by uid {}; it is of uid {}, gid {}, mode {:04o}",
                           path_, ::geteuid(), stat_.st_uid, stat_.st_gid, stat_.st_mode & 07777U));
    if (status.code == Code::kNotFound) status.code = Code::kIoError;  // no /proc
    return status;
  }
  if (::fstat(file_.fd.get(), &stat_) != 0) return ErrnoStatus(errno, path_);
  return Status::Ok();
}

// A copy: what is judged is what is used.
Status SegmentJudge::ReadHeader() {
  RingHeader& header = file_.header;
  const auto size = static_cast<std::uint64_t>(stat_.st_size);
  const ssize_t got = ::pread(file_.fd.get(), &header, sizeof(header), 0);
  if (got < 0) return ErrnoStatus(errno, path_ + ": reading its header");
  if (got != static_cast<ssize_t>(sizeof(header)) || header.magic != kRingMagic) {
    return Refuse(Code::kCorruption,
                  fmt::format("this file of {} bytes is no ring and is left alone: remove it, or "
                              "give this store another ring (option `name`)",
                              size));
  }
  if (header.version != kRingVersion) return Differs("version", header.version, kRingVersion);
  if (header.header_crc32c != HeaderChecksum(header) || header.identity_bytes > kIdentityRoom) {
    return Refuse(Code::kCorruption, "its header is damaged (the checksum differs): " + remedy_);
  }
  if (header.segment_bytes != size) {
    return Refuse(Code::kCorruption, fmt::format("the file has {} bytes and its header says {}: {}",
                                                 size, header.segment_bytes, remedy_));
  }
  return Status::Ok();
}

Status SegmentJudge::JudgeGeometry() const {
  const RingHeader& header = file_.header;
  if (header.shard_size != request_.shard_size) {
    return Differs("shard_size", header.shard_size, request_.shard_size);
  }
  if (header.shards_per_block != request_.shards_per_block) {
    return Differs("shards_per_block", header.shards_per_block, request_.shards_per_block);
  }
  // The rest follows from these, or it is of another layout than the version says.
  const std::uint32_t most =
      SlotsFor(header.segment_bytes, header.shard_size, header.shards_per_block);
  bool same = header.slot_count >= 1 && header.slot_count <= most;
  if (same) {
    RingHeader plan = PlanRing({.shard_size = header.shard_size,
                                .shards_per_block = header.shards_per_block,
                                .slot_count = header.slot_count});
    plan.header_crc32c = header.header_crc32c;
    plan.identity_bytes = header.identity_bytes;
    same = std::memcmp(&plan, &header, offsetof(RingHeader, identity)) == 0;
  }
  if (same) return Status::Ok();
  return Refuse(Code::kCorruption, "its header contradicts itself: " + remedy_);
}

Status SegmentJudge::JudgeIdentity(bool outlives_boot) const {
  const std::string asked = IdentityText(request_.identity, outlives_boot);
  const std::string_view there = identity();
  if (there == asked) return Status::Ok();
  const auto at = static_cast<std::size_t>(
      std::mismatch(there.begin(), there.end(), asked.begin(), asked.end()).first - there.begin());
  return Refuse(Code::kInvalidArgument,
                fmt::format("is the ring of other blocks, '{}' and not '{}': {}",
                            Excerpt(there, at), Excerpt(asked, at), remedy_));
}

// Pages that somebody punched out of it are had now or never: not at a first touch, by a signal.
Status SegmentJudge::JudgePages() const {
  const std::uint64_t bytes = file_.header.segment_bytes;
  if (static_cast<std::uint64_t>(stat_.st_blocks) * 512 >= bytes) return Status::Ok();
  if (::fallocate(file_.fd.get(), 0, 0, static_cast<off_t>(bytes)) == 0) return Status::Ok();
  return Refuse(Code::kCorruption,
                fmt::format("some of its pages are gone and there is no room for new ones, {}: {}",
                            ErrnoText(errno), remedy_));
}

bool SegmentJudge::IsOfEarlierBoot() const {
  const std::string_view there = identity();
  const std::size_t mark = there.rfind(kBootMark);
  return mark != std::string_view::npos && there.substr(0, mark) == request_.identity &&
         there != IdentityText(request_.identity, true);
}

bool SegmentJudge::IsHeldByAnybody() const {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;  // the whole file, and whatever lies behind it
  return ::fcntl(file_.fd.get(), F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

std::string SegmentJudge::Notes() const {
  std::string notes;
  const RingHeader& header = file_.header;
  if (request_.capacity_bytes != 0 && SlotsFor(request_.capacity_bytes, header.shard_size,
                                               header.shards_per_block) != header.slot_count) {
    notes = fmt::format(
        "{}: the ring is there already, with {} ({} bytes) and not the {} ({} "
        "bytes) that capacity asks for",
        path_, BytesText(header.segment_bytes), header.segment_bytes,
        BytesText(request_.capacity_bytes), request_.capacity_bytes);
  }
  const std::uint32_t mode = stat_.st_mode & 07777U;
  if (mode != request_.mode) {
    notes += fmt::format("{}its mode is {:04o} and not the {:04o} asked for",
                         notes.empty() ? path_ + ": " : std::string("; "), mode, request_.mode);
  }
  return notes;
}

Result<SegmentFile> SegmentJudge::Run(bool folder_locked) {
  const Status gone = Status::Error(Code::kNotFound, path_ + ": no such ring");
  Status status = Open();
  if (status.ok() && stat_.st_nlink == 0) status = gone;  // removed since
  if (status.ok()) status = ReadHeader();
  if (!status.ok()) return std::unexpected(status);
  const Result<MountRoom> mount = ReadMountRoom(file_.fd.get(), folder_.path());
  if (!mount) return std::unexpected(mount.error());
  const bool outlives_boot = !mount->in_memory;
  if (outlives_boot && IsOfEarlierBoot() && !IsHeldByAnybody()) {
    struct stat named{};
    if (folder_locked && stat_.st_uid == ::geteuid() &&
        ::fstatat(folder_.fd(), file_name_.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
        named.st_ino == stat_.st_ino && named.st_dev == stat_.st_dev) {
      (void)::unlinkat(folder_.fd(), file_name_.c_str(), 0);
    }
    return std::unexpected(gone);
  }
  for (const Status& verdict : {JudgeGeometry(), JudgeIdentity(outlives_boot)}) {
    if (!verdict.ok()) return std::unexpected(verdict);
  }
  if (status = JudgePages(); !status.ok()) return std::unexpected(status);
  file_.note = Notes();
  return std::move(file_);
}

}  // namespace

Result<SegmentFile> AttachSegment(const SegmentFolder& folder, const SegmentRequest& request,
                                  bool folder_locked) {
  return SegmentJudge(folder, request).Run(folder_locked);
}

}  // namespace ucmstore
