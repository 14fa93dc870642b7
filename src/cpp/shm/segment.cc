// SPDX-License-Identifier: Apache-2.0
//
// Attach, or make, or make do with a private one; then map. The order of the questions is that of
// their cost: the request's words, the machine's memory, the name, the mount's room.
#include "shm/segment.h"

#include <fcntl.h>
#include <spdlog/fmt/fmt.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "shm/room.h"
#include "shm/segment_file.h"
#include "shm/segment_folder.h"

namespace ucmstore {
namespace {

// How often a name may appear and vanish under our hands before that is the answer.
constexpr int kAttempts = 16;

constexpr std::size_t kMaxNameLength = 80;

constexpr std::uint64_t kMostBytes = INT64_MAX;  // of a file

bool IsNameCharacter(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

Status JudgeRequest(const SegmentRequest& request) {
  const std::string& name = request.name;
  const auto invalid = [](const std::string& text) {
    return Status::Error(Code::kInvalidArgument, text);
  };
  if (name.empty() || name.size() > kMaxNameLength) {
    return invalid(fmt::format("name of a ring: it has {} characters, and 1 to {} are allowed",
                               name.size(), kMaxNameLength));
  }
  if (!std::all_of(name.begin(), name.end(), IsNameCharacter)) {
    return invalid("name of a ring: letters, digits, '.', '_' and '-' are allowed, nothing else");
  }
  if (request.directory.empty() || request.directory.find('\0') != std::string::npos) {
    return invalid("the folder for rings: a path is needed");
  }
  if (request.mode > 0777 || (request.mode & 0600U) != 0600) {
    return invalid(
        fmt::format("mode of a ring: {:o} is not one between 0600 and 0777 that lets "
                    "its owner read and write",
                    request.mode));
  }
  if (request.identity.size() > kMaxIdentityBytes) {
    return invalid(fmt::format("the ring's identity has {} bytes, and at most {} are allowed",
                               request.identity.size(), kMaxIdentityBytes));
  }
  return Status::Ok();
}

// What a ring of one slot takes. Nothing where that cannot be computed.
std::uint64_t OneSlotBytes(const SegmentRequest& request) noexcept {
  if (SlotsFor(kMostBytes, request.shard_size, request.shards_per_block) == 0) return UINT64_MAX;
  return PlanRing({.shard_size = request.shard_size,
                   .shards_per_block = request.shards_per_block,
                   .slot_count = 1})
      .segment_bytes;
}

Status JudgeOneSlot(const SegmentRequest& request, std::uint64_t capacity) {
  const std::uint64_t need = OneSlotBytes(request);
  if (capacity >= need) return Status::Ok();
  if (need == UINT64_MAX) {
    return Status::Error(Code::kInvalidArgument,
                         fmt::format("no ring holds a block of {} shards of {} bytes",
                                     request.shards_per_block, request.shard_size));
  }
  return Status::Error(
      Code::kInvalidArgument,
      fmt::format("capacity is {} ({} bytes){}, and a ring of one block of {} x {} bytes takes {} "
                  "bytes: that much is needed",
                  BytesText(capacity), capacity, request.capacity_bytes == 0 ? " by auto" : "",
                  request.shards_per_block, request.shard_size, need));
}

struct Made {
  SegmentFile file;
  std::string why_private;
};

class Maker {
 public:
  Maker(const SegmentFolder& folder, const SegmentRequest& request, const MemoryRoom& memory)
      : folder_(folder), request_(request), memory_(memory) {}

  // kBusy: the name is in use by now.
  Result<Made> Run() const;

 private:
  Result<Made> MakePrivate(const std::string& reason) const;
  std::uint32_t Slots(std::uint64_t capacity) const {
    return SlotsFor(capacity, request_.shard_size, request_.shards_per_block);
  }
  std::uint64_t BytesOf(std::uint32_t slots) const {
    return PlanRing({.shard_size = request_.shard_size,
                     .shards_per_block = request_.shards_per_block,
                     .slot_count = slots})
        .segment_bytes;
  }
  std::string NoRoom(std::uint64_t need, const MountRoom& mount) const {
    return fmt::format("it needs {} ({} bytes), and {} ({}) has {} ({} bytes) free",
                       BytesText(need), need, mount.mount_point, mount.type,
                       BytesText(mount.free_bytes), mount.free_bytes);
  }

  const SegmentFolder& folder_;
  const SegmentRequest& request_;
  const MemoryRoom& memory_;
};

Result<Made> Maker::Run() const {
  if (request_.only_private) return MakePrivate("that was asked for");
  const Result<MountRoom> mount = ReadMountRoom(folder_.fd(), folder_.path());
  if (!mount) return std::unexpected(mount.error());
  if (!mount->local) {
    return MakePrivate(fmt::format("{} ({}) cannot hold what processes of this machine share",
                                   mount->mount_point, mount->type));
  }
  const std::uint64_t capacity =
      request_.capacity_bytes != 0 ? request_.capacity_bytes : AutoCapacity(memory_, *mount);
  const std::uint32_t slots = Slots(capacity);
  if (slots == 0) return MakePrivate(NoRoom(OneSlotBytes(request_), *mount));
  const std::uint64_t bytes = BytesOf(slots);
  if (bytes > mount->free_bytes) return MakePrivate(NoRoom(bytes, *mount));
  if (mount->in_memory) {
    if (const Status status = JudgeMemory(bytes, memory_); !status.ok()) {
      return std::unexpected(status);
    }
  }
  Result<SegmentFile> file = CreateSegment(folder_, request_, slots, !mount->in_memory);
  if (file) return Made{.file = std::move(*file), .why_private = {}};
  const Code code = file.error().code;
  if (code == Code::kNoSpace || code == Code::kUnsupported) {
    return MakePrivate(fmt::format("{}; {}", file.error().text(), NoRoom(bytes, *mount)));
  }
  return std::unexpected(file.error());
}

Result<Made> Maker::MakePrivate(const std::string& reason) const {
  const std::uint64_t capacity =
      request_.capacity_bytes != 0 ? request_.capacity_bytes : AutoCapacity(memory_, std::nullopt);
  const std::uint32_t slots = Slots(capacity);
  if (slots == 0) return std::unexpected(JudgeOneSlot(request_, capacity));
  if (const Status status = JudgeMemory(BytesOf(slots), memory_); !status.ok()) {
    return std::unexpected(status);
  }
  Result<SegmentFile> file = CreatePrivateSegment(request_, slots);
  if (!file) return std::unexpected(file.error());
  constexpr const char* kRemedy =
      " Make room there (in a container: --shm-size, or an emptyDir of medium Memory; on a host: "
      "mount -o remount,size=...), lower its capacity, or put it into another folder of a tmpfs.";
  return Made{
      .file = std::move(*file),
      .why_private = fmt::format(
          "ring {}: private to this process ({}), shared with no other and gone with it, because "
          "{}.{}",
          folder_.PathOf(SegmentFileName(request_.name)), BytesText(BytesOf(slots)), reason,
          request_.only_private ? "" : kRemedy)};
}

struct Obtained {
  Made made;
  bool created = false;
};

// Making a ring takes as long as zeroing its pages.
UniqueFd LockToMake(const SegmentFolder& folder, const SegmentRequest& request,
                    std::uint64_t bytes) {
  const std::string name = SegmentFileName(request.name);
  const auto patience = std::chrono::seconds(10 + std::min<std::uint64_t>(bytes >> 30, 600));
  return folder.Lock(patience, [&] {
    struct stat named{};
    return ::fstatat(folder.fd(), name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0;
  });
}

Result<Obtained> Obtain(const SegmentFolder& folder, const SegmentRequest& request) {
  if (request.only_private) {
    Result<Made> made = Maker(folder, request, ReadMemoryRoom()).Run();
    if (!made) return std::unexpected(made.error());
    return Obtained{.made = std::move(*made), .created = true};
  }
  Result<SegmentFile> file = AttachSegment(folder, request, false);
  for (int attempt = 1; !file && file.error().code == Code::kNotFound; ++attempt) {
    const MemoryRoom memory = ReadMemoryRoom();
    const UniqueFd lock = LockToMake(
        folder, request,
        request.capacity_bytes != 0 ? request.capacity_bytes : AutoCapacity(memory, std::nullopt));
    // Another process may have made it while this one waited.
    file = AttachSegment(folder, request, static_cast<bool>(lock));
    if (file || file.error().code != Code::kNotFound) break;
    Result<Made> made = Maker(folder, request, ReadMemoryRoom()).Run();
    if (made) return Obtained{.made = std::move(*made), .created = true};
    if (made.error().code != Code::kBusy || attempt == kAttempts) {
      return std::unexpected(made.error());
    }
  }
  if (!file) return std::unexpected(file.error());
  return Obtained{.made = {.file = std::move(*file), .why_private = {}}, .created = false};
}

}  // namespace

std::string SegmentFileName(const std::string& name) {
  return fmt::format("ucmstore.{}.r{}", name, kRingVersion);
}

Result<std::unique_ptr<RingSegment>> RingSegment::Open(const SegmentRequest& request) {
  Status status = JudgeRequest(request);
  if (status.ok()) {
    status =
        JudgeOneSlot(request, request.capacity_bytes != 0 ? request.capacity_bytes : kMostBytes);
  }
  if (status.ok()) status = JudgeCapacity(request.capacity_bytes, ReadMemoryRoom());
  if (!status.ok()) return std::unexpected(status);
  const Result<SegmentFolder> folder = SegmentFolder::Open(request.directory);
  if (!folder) return std::unexpected(folder.error());
  Result<Obtained> obtained = Obtain(*folder, request);
  if (!obtained) return std::unexpected(obtained.error());

  std::unique_ptr<RingSegment> segment(new RingSegment());
  SegmentFile& file = obtained->made.file;
  segment->header_ = file.header;
  segment->fd_ = std::move(file.fd);
  segment->note_ = std::move(file.note);
  segment->why_private_ = std::move(obtained->made.why_private);
  segment->created_ = obtained->created;
  segment->directory_ = request.directory;
  segment->file_name_ = SegmentFileName(request.name);
  segment->path_ =
      segment->is_private() ? "memfd:" + segment->file_name_ : folder->PathOf(segment->file_name_);
  status = segment->Map();
  if (status.ok()) return segment;
  if (segment->created_) (void)segment->Unlink();
  return std::unexpected(status);
}

Status RingSegment::Map() {
  const auto bytes = static_cast<std::size_t>(header_.segment_bytes);
  void* const base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (base == MAP_FAILED) {
    return ErrnoStatus(errno, fmt::format("{}: mapping its {} bytes", path_, bytes));
  }
  base_ = static_cast<std::byte*>(base);
  // A core dump of any of its processes would be as large as the ring and hold its content.
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t data_at = (header_.data_at + page - 1) / page * page;
  if (data_at < bytes) (void)::madvise(base_ + data_at, bytes - data_at, MADV_DONTDUMP);
  return Status::Ok();
}

RingSegment::~RingSegment() {
  if (base_ != nullptr) (void)::munmap(base_, static_cast<std::size_t>(header_.segment_bytes));
}

bool RingSegment::HasName() const noexcept {
  struct stat mine{};
  return ::fstat(fd_.get(), &mine) == 0 && mine.st_nlink > 0;
}

bool RingSegment::Unlink() const {
  if (is_private()) return false;
  const Result<SegmentFolder> folder = SegmentFolder::Open(directory_);
  if (!folder) return false;
  // Between the look and the removal nobody else puts another file there while this is held.
  const UniqueFd lock = folder->Lock(std::chrono::seconds(1), [] { return false; });
  struct stat mine{};
  struct stat named{};
  if (::fstat(fd_.get(), &mine) != 0 ||
      ::fstatat(folder->fd(), file_name_.c_str(), &named, AT_SYMLINK_NOFOLLOW) != 0 ||
      mine.st_ino != named.st_ino || mine.st_dev != named.st_dev) {
    return false;
  }
  return ::unlinkat(folder->fd(), file_name_.c_str(), 0) == 0;
}

}  // namespace ucmstore
