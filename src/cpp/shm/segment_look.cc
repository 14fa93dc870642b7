// SPDX-License-Identifier: Apache-2.0
//
// Reading a segment's head, its processes and its slots by pread: a file that shrinks meanwhile is
// a short read, not a signal.
#include "shm/segment_look.h"

#include <fcntl.h>
#include <spdlog/fmt/fmt.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/unique_fd.h"
#include "shm/process_table.h"
#include "shm/segment_file.h"

namespace ucmstore {
namespace {

bool ReadAt(int fd, void* to, std::size_t size, std::uint64_t offset) noexcept {
  auto* at = static_cast<std::byte*>(to);
  while (size > 0) {
    const ssize_t got = ::pread(fd, at, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    size -= static_cast<std::size_t>(got);
    offset += static_cast<std::uint64_t>(got);
  }
  return true;
}

Status Damaged(const std::string& path, std::string_view what) {
  return Status::Error(
      Code::kCorruption,
      fmt::format("{}: a damaged segment: {}. Nobody can use it; remove it", path, what));
}

Status ReadHead(const std::string& path, int fd, std::uint64_t size, RingHeader* header) {
  if (size < kBucketsAt || !ReadAt(fd, header, sizeof(*header), 0) || header->magic != kRingMagic) {
    return Status::Error(Code::kUnsupported, fmt::format("{}: no segment of a ring", path));
  }
  if (header->version != kRingVersion) {
    return Status::Error(Code::kUnsupported,
                         fmt::format("{}: a ring of version {}; this release knows {}", path,
                                     header->version, kRingVersion));
  }
  if (header->header_crc32c != HeaderChecksum(*header) || header->identity_bytes > kIdentityRoom) {
    return Damaged(path, "its header's checksum differs");
  }
  if (header->segment_bytes != size) {
    return Damaged(path, fmt::format("it has {} bytes, not {}", size, header->segment_bytes));
  }
  return Status::Ok();
}

bool IsAlive(int fd, std::uint32_t place) noexcept {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = kPlaceLocksAt + place;
  lock.l_len = 1;
  return ::fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

Status CountSlots(const std::string& path, int fd, SegmentLook* look) {
  constexpr std::uint32_t kBatch = 4096;
  struct Words {  // of a slot, as plain memory
    std::uint64_t word;
    std::array<std::uint64_t, 7> rest;
  };
  static_assert(sizeof(Words) == sizeof(Slot));
  std::vector<Words> batch(std::min(kBatch, look->header.slot_count));
  for (std::uint32_t first = 0; first < look->header.slot_count; first += kBatch) {
    const std::uint32_t count = std::min(kBatch, look->header.slot_count - first);
    if (!ReadAt(fd, batch.data(), count * sizeof(Slot),
                look->header.slots_at + std::uint64_t{first} * sizeof(Slot))) {
      return Damaged(path, "its slots cannot be read");
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto state = static_cast<std::size_t>(SlotWord(batch[i].word).state());
      if (state < kSlotStates) ++look->slots[state];
    }
  }
  return Status::Ok();
}

}  // namespace

bool SegmentLook::in_use() const noexcept {
  return std::ranges::any_of(processes, [](const Process& process) { return process.alive; });
}

std::string_view SegmentNameOf(std::string_view file_name) noexcept {
  constexpr std::string_view kPrefix = "ucmstore.";
  const std::size_t dot = file_name.rfind(".r");
  if (!file_name.starts_with(kPrefix) || dot == std::string_view::npos || dot <= kPrefix.size()) {
    return {};
  }
  const std::string_view version = file_name.substr(dot + 2);
  const bool digits =
      !version.empty() && std::ranges::all_of(version, [](char c) { return c >= '0' && c <= '9'; });
  return digits ? file_name.substr(kPrefix.size(), dot - kPrefix.size()) : std::string_view{};
}

Result<SegmentLook> LookAtSegment(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file) return std::unexpected(ErrnoStatus(errno, path));
  struct stat stat{};
  if (::fstat(file.get(), &stat) != 0) return std::unexpected(ErrnoStatus(errno, path));
  if (!S_ISREG(stat.st_mode)) {
    return Failure(Code::kUnsupported, fmt::format("{}: not a file", path));
  }
  SegmentLook look;
  Status status =
      ReadHead(path, file.get(), static_cast<std::uint64_t>(stat.st_size), &look.header);
  if (!status.ok()) return std::unexpected(status);
  look.identity.assign(look.header.identity, look.header.identity_bytes);

  struct Entry {  // of a process, as plain memory
    std::uint32_t taken;
    std::uint32_t pid;
    std::uint64_t since_ns;
    std::uint64_t leases;
    std::array<std::uint64_t, 5> rest;
  };
  static_assert(sizeof(Entry) == sizeof(ProcessEntry));
  std::vector<Entry> entries(kMaxProcesses);
  if (!ReadAt(file.get(), entries.data(), entries.size() * sizeof(Entry), kProcessesAt)) {
    return std::unexpected(Damaged(path, "its processes cannot be read"));
  }
  for (std::uint32_t place = 0; place < kMaxProcesses; ++place) {
    const bool alive = IsAlive(file.get(), place);
    if (entries[place].taken == 0 && !alive) continue;
    look.processes.push_back({.place = place,
                              .pid = entries[place].pid,
                              .alive = alive,
                              .leases = entries[place].leases});
  }
  if (!ReadAt(file.get(), &look.evictions, sizeof(look.evictions),
              kSharedAt + offsetof(RingShared, evictions))) {
    return std::unexpected(Damaged(path, "its counters cannot be read"));
  }
  status = CountSlots(path, file.get(), &look);
  if (!status.ok()) return std::unexpected(status);
  return look;
}

}  // namespace ucmstore
