// SPDX-License-Identifier: Apache-2.0
//
// What the kernel says about memory and mounts, and the arithmetic on it.
#include "shm/room.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <spdlog/fmt/fmt.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <memory>

#include "base/unique_fd.h"
#include "io/file_system.h"

namespace ucmstore {
namespace {

constexpr std::size_t kMostRead = 16U << 20;  // a node of many containers has many mounts

// "" if there is no such file, or an absurd amount of it.
std::string ReadText(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 4096> piece{};
  while (fd && text.size() < kMostRead) {
    const ssize_t got = ::read(fd.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return {};
    if (got == 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(got));
  }
  return {};
}

std::optional<std::uint64_t> Number(std::string_view text) noexcept {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

std::string_view NextLine(std::string_view& rest) noexcept {
  const std::size_t end = std::min(rest.find('\n'), rest.size());
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return line;
}

std::string_view NextWord(std::string_view& rest) noexcept {
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  const std::size_t end = std::min(rest.find(' '), rest.size());
  const std::string_view word = rest.substr(0, end);
  rest.remove_prefix(end);
  return word;
}

// Whether a list like "rw,cpu,memory" has the word.
bool Lists(std::string_view list, std::string_view word) noexcept {
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(','), list.size());
    if (list.substr(0, end) == word) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

// mountinfo writes space, tab, newline and backslash as \ and three octal digits.
std::string Unescape(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned code = 0;
    if (text[i] == '\\' && i + 3 < text.size() &&
        std::from_chars(&text[i + 1], &text[i + 1] + 3, code, 8).ptr == &text[i + 1] + 3) {
      plain += static_cast<char>(code);
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

struct CgroupMount {
  std::string root;  // what of the hierarchy is mounted
  std::string mount_point;
};

// Where the hierarchy that accounts memory is mounted: the first such mount.
std::optional<CgroupMount> FindCgroupMount(std::string_view mountinfo, bool v2) {
  while (!mountinfo.empty()) {
    const std::string_view line = NextLine(mountinfo);
    const std::size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    std::string_view tail = line.substr(dash + 3);
    const std::string_view type = NextWord(tail);
    (void)NextWord(tail);  // the source
    const std::string_view options = NextWord(tail);
    const bool wanted = v2 ? type == "cgroup2" : type == "cgroup" && Lists(options, "memory");
    if (!wanted) continue;
    std::string_view head = line.substr(0, dash);
    for (int skipped = 0; skipped < 3; ++skipped) (void)NextWord(head);
    CgroupMount mount;
    mount.root = Unescape(NextWord(head));
    mount.mount_point = Unescape(NextWord(head));
    return mount;
  }
  return std::nullopt;
}

// This process's path in the hierarchy: "0::/path" (v2), "4:cpu,memory:/path" (v1).
std::optional<std::string> CgroupPath(std::string_view cgroup, bool v2) {
  while (!cgroup.empty()) {
    const std::string_view line = NextLine(cgroup);
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    if (v2 ? controllers.empty() && line.substr(0, first) == "0" : Lists(controllers, "memory")) {
      return std::string(line.substr(second + 1));
    }
  }
  return std::nullopt;
}

void Bound(std::uint64_t bytes, const std::string& of, std::uint64_t& least,
           std::string& least_of) {
  if (bytes >= least) return;
  least = bytes;
  least_of = of;
}

// The bounds that one cgroup sets. File pages count as free: the kernel drops them first.
void BoundByCgroup(const std::string& folder, const std::string& name, bool v2, MemoryRoom& room) {
  const auto limit = LimitBytes(ReadText(folder + (v2 ? "/memory.max" : "/memory.limit_in_bytes")));
  if (!limit) return;
  Bound(*limit, "the limit of cgroup " + name, room.total_bytes, room.total_of);
  const auto used =
      LimitBytes(ReadText(folder + (v2 ? "/memory.current" : "/memory.usage_in_bytes")));
  if (!used) return;
  const std::string stat = ReadText(folder + "/memory.stat");
  const std::uint64_t file =
      StatBytes(stat, v2 ? "inactive_file" : "total_inactive_file").value_or(0) +
      StatBytes(stat, v2 ? "active_file" : "total_active_file").value_or(0);
  const std::uint64_t held = *used - std::min(*used, file);
  Bound(*limit - std::min(*limit, held), "what cgroup " + name + " has left", room.available_bytes,
        room.available_of);
}

// The closest ancestor of the folder that another mount lies above.
std::string MountPointOf(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr),
                                                         &std::free);
  std::string point = real ? real.get() : path;
  struct stat here{};
  if (::stat(point.c_str(), &here) != 0) return point;
  while (point.size() > 1) {
    const std::size_t slash = point.find_last_of('/');
    if (slash == std::string::npos) return point;
    const std::string above = slash == 0 ? "/" : point.substr(0, slash);
    struct stat there{};
    if (::stat(above.c_str(), &there) != 0 || there.st_dev != here.st_dev) return point;
    point = above;
  }
  return point;
}

}  // namespace

std::optional<std::uint64_t> MeminfoBytes(std::string_view text, std::string_view name) noexcept {
  while (!text.empty()) {
    std::string_view line = NextLine(text);
    if (!line.starts_with(name) || line.substr(name.size(), 1) != ":") continue;
    line.remove_prefix(name.size() + 1);
    const auto value = Number(NextWord(line));
    if (!value || NextWord(line) != "kB" || *value > UINT64_MAX / 1024) return std::nullopt;
    return *value * 1024;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> StatBytes(std::string_view text, std::string_view name) noexcept {
  while (!text.empty()) {
    std::string_view line = NextLine(text);
    if (NextWord(line) == name) return Number(NextWord(line));
  }
  return std::nullopt;
}

std::optional<std::uint64_t> LimitBytes(std::string_view text) noexcept { return Number(text); }

std::vector<CgroupPlace> MemoryCgroups(std::string_view cgroup, std::string_view mountinfo) {
  std::vector<CgroupPlace> places;
  for (const bool v2 : {true, false}) {
    const auto mount = FindCgroupMount(mountinfo, v2);
    const auto path = CgroupPath(cgroup, v2);
    if (!mount || !path) continue;
    CgroupPlace place{.mount_point = mount->mount_point, .path = *path, .v2 = v2};
    // A container may see but a part of the hierarchy; a path outside of it means the part's top.
    if (mount->root != "/") {
      const bool below = path->starts_with(mount->root) &&
                         (path->size() == mount->root.size() || (*path)[mount->root.size()] == '/');
      place.path = below ? path->substr(mount->root.size()) : "/";
    }
    if (place.path.empty() || place.path.find("/..") != std::string::npos) place.path = "/";
    places.push_back(std::move(place));
  }
  return places;
}

MemoryRoom ReadMemoryRoom(const std::string& root) {
  constexpr std::uint64_t kNoBound = UINT64_MAX;
  const std::string machine = "this machine's memory";
  const std::string meminfo = ReadText(root + "/proc/meminfo");
  MemoryRoom room;
  room.total_bytes = MeminfoBytes(meminfo, "MemTotal").value_or(kNoBound);
  room.total_of = machine;
  const auto available = MeminfoBytes(meminfo, "MemAvailable");
  room.available_bytes =
      available ? *available + MeminfoBytes(meminfo, "SwapFree").value_or(0) : kNoBound;
  room.available_of = "what is free of " + machine;
  for (const CgroupPlace& place : MemoryCgroups(ReadText(root + "/proc/self/cgroup"),
                                                ReadText(root + "/proc/self/mountinfo"))) {
    // A limit anywhere above counts. The top has no files of its own, or those of a container.
    std::string path = place.path;
    while (true) {
      BoundByCgroup(root + place.mount_point + (path == "/" ? "" : path), path, place.v2, room);
      if (path == "/") break;
      path.resize(std::max<std::size_t>(path.find_last_of('/'), 1));
    }
  }
  return room;
}

Result<MountRoom> ReadMountRoom(int folder, const std::string& path) {
  struct statfs facts{};
  if (::fstatfs(folder, &facts) != 0) return std::unexpected(ErrnoStatus(errno, path));
  const FileSystemFacts kind{.type = static_cast<std::uint64_t>(facts.f_type)};
  MountRoom room;
  room.mount_point = MountPointOf(path);
  room.type = FileSystemName(kind.type);
  room.in_memory = kind.type == TMPFS_MAGIC || kind.type == RAMFS_MAGIC;
  room.local = room.in_memory || IsLocal(kind);
  room.free_bytes =
      facts.f_blocks == 0 ? UINT64_MAX : facts.f_bavail * static_cast<std::uint64_t>(facts.f_bsize);
  return room;
}

std::uint64_t AutoCapacity(const MemoryRoom& memory,
                           const std::optional<MountRoom>& mount) noexcept {
  // Division first: the numbers may be "no bound".
  std::uint64_t capacity = std::min(memory.total_bytes / 4, memory.available_bytes / 5 * 4);
  if (mount) capacity = std::min(capacity, mount->free_bytes / 5 * 4);
  return capacity;
}

Status JudgeCapacity(std::uint64_t capacity_bytes, const MemoryRoom& memory) {
  if (capacity_bytes <= memory.total_bytes) return Status::Ok();
  return Status::Error(
      Code::kInvalidArgument,
      fmt::format("capacity is {} ({} bytes), but {} is {} ({} bytes): lower it, or leave it at "
                  "auto",
                  BytesText(capacity_bytes), capacity_bytes, memory.total_of,
                  BytesText(memory.total_bytes), memory.total_bytes));
}

Status JudgeMemory(std::uint64_t bytes, const MemoryRoom& memory) {
  // Page tables and the file's own tree come on top: far less than a 64th.
  if (bytes <= memory.available_bytes - memory.available_bytes / 64) return Status::Ok();
  return Status::Error(
      Code::kNoSpace,
      fmt::format("a ring of {} ({} bytes) is more than {}, {} ({} bytes), and pages beyond it "
                  "get processes killed: lower capacity, or raise the limit",
                  BytesText(bytes), bytes, memory.available_of, BytesText(memory.available_bytes),
                  memory.available_bytes));
}

std::string BytesText(std::uint64_t bytes) {
  constexpr std::array<const char*, 7> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace ucmstore
