// SPDX-License-Identifier: Apache-2.0
//
// Affinity, and the CPU bandwidth of the process's cgroup: version 2 as a container or a service
// sees it, version 1 as a container does. What cannot be read is no bound.
#include "task/usable_cpus.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <span>

#include "base/unique_fd.h"

namespace ucmstore {
namespace {

// Puts the parts of a path together. False: no room.
bool Join(std::initializer_list<std::string_view> parts, std::span<char> path) noexcept {
  std::size_t used = 0;
  for (const std::string_view part : parts) {
    if (part.size() + used + 1 > path.size()) return false;
    std::ranges::copy(part, path.begin() + static_cast<std::ptrdiff_t>(used));
    used += part.size();
  }
  path[used] = '\0';
  return true;
}

// The first bytes of a small file; "" if there is none.
std::string_view ReadHead(std::initializer_list<std::string_view> path,
                          std::span<char> text) noexcept {
  std::array<char, 1024> name{};
  if (!Join(path, name)) return {};
  const UniqueFd fd(::open(name.data(), O_RDONLY | O_CLOEXEC));
  const ssize_t got = fd ? ::read(fd.get(), text.data(), text.size()) : -1;
  return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
}

// Takes a number off the front. Nothing: there is none, as in "max".
std::optional<std::int64_t> TakeNumber(std::string_view& text) noexcept {
  while (text.starts_with(' ')) text.remove_prefix(1);
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

// Bounds `cpus` by so many microseconds in each period of so many.
void Bound(std::optional<std::int64_t> quota, std::optional<std::int64_t> period,
           std::uint32_t& cpus) noexcept {
  if (!quota || !period || *quota <= 0 || *period <= 0) return;
  const std::int64_t whole = (*quota + *period - 1) / *period;
  cpus = static_cast<std::uint32_t>(std::clamp<std::int64_t>(whole, 1, cpus));
}

void BoundByV2(std::string_view root, std::string_view cgroup, std::uint32_t& cpus) noexcept {
  std::array<char, 64> buffer{};
  std::string_view text = ReadHead({root, "/sys/fs/cgroup", cgroup, "/cpu.max"}, buffer);
  const auto quota = TakeNumber(text);
  Bound(quota, TakeNumber(text), cpus);
}

// The cgroup of version 2 in /proc/self/cgroup: "0::/a/b".
std::string_view OwnCgroup(std::string_view text) noexcept {
  const std::size_t line = text.starts_with("0::") ? 0 : text.find("\n0::");
  if (line == std::string_view::npos) return {};
  text.remove_prefix(text.find("0::", line) + 3);
  return text.substr(0, text.find('\n'));
}

}  // namespace

std::uint32_t UsableCpus(std::string_view root) noexcept {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  std::uint32_t cpus = 1;
  if (::sched_getaffinity(0, sizeof(mine), &mine) == 0) {
    cpus = static_cast<std::uint32_t>(std::max(CPU_COUNT(&mine), 1));
  } else {  // a machine of more CPUs than the set has room for
    cpus = static_cast<std::uint32_t>(std::max(::sysconf(_SC_NPROCESSORS_ONLN), 1L));
  }
  std::array<char, 512> buffer{};
  const std::string_view own = OwnCgroup(ReadHead({root, "/proc/self/cgroup"}, buffer));
  if (own.size() > 1) BoundByV2(root, own, cpus);
  BoundByV2(root, "", cpus);
  std::array<char, 64> quota{};
  std::array<char, 64> period{};
  std::string_view v1 = ReadHead({root, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"}, quota);
  std::string_view every = ReadHead({root, "/sys/fs/cgroup/cpu/cpu.cfs_period_us"}, period);
  Bound(TakeNumber(v1), TakeNumber(every), cpus);
  return cpus;
}

}  // namespace ucmstore
