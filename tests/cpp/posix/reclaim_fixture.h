// SPDX-License-Identifier: Apache-2.0
//
// PosixReclaim: a root whose blocks have ages that a test chooses, and what is left of them. The
// clock is the test's own. Not synchronised.
#pragma once

#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "posix/children.h"
#include "posix/posix_fixture.h"
#include "support/eventually.h"

namespace ucmstore::test {

// What `du` counts, in bytes; a link counts itself.
[[nodiscard]] inline std::uint64_t DiskBytes(const stdfs::path& folder) {
  const auto of = [](const stdfs::path& path) -> std::uint64_t {
    struct stat stat{};
    return ::lstat(path.c_str(), &stat) == 0 ? static_cast<std::uint64_t>(stat.st_blocks) * 512 : 0;
  };
  std::uint64_t sum = of(folder);
  std::error_code error;
  stdfs::recursive_directory_iterator at(folder, error);
  for (; !error && at != end(at); at.increment(error)) sum += of(at->path());
  return sum;
}

// Sets a file's time to so many seconds ago.
inline void MakeOld(const stdfs::path& path, std::int64_t seconds) {
  const std::time_t then = std::time(nullptr) - seconds;
  const timespec times[2] = {{.tv_sec = then, .tv_nsec = 0}, {.tv_sec = then, .tv_nsec = 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW), 0) << path;
}

class PosixReclaim : public PosixFaults {
 protected:
  // 4 shards of 8 KiB and a footer, in a folder of its own: 40 KiB at most.
  static constexpr std::uint64_t kBlockBytes = 4 * 8192 + 4096;

  PosixConfig Limited(std::uint64_t capacity) {
    PosixConfig config = Config();
    config.clock = &clock_;
    config.options["capacity"] = static_cast<std::int64_t>(capacity);
    return config;
  }
  PosixConfig Unlimited() {
    PosixConfig config = Config();
    config.fs = &FileSystem::Real();
    return config;
  }
  [[nodiscard]] stdfs::path Root() const { return dir_.path(); }
  [[nodiscard]] stdfs::path BlockPath(const std::string& label, std::uint64_t i,
                                      std::uint32_t digits = 3) const {
    return Root() / label / BlockName(MakeId(1, i), digits).c_str();
  }
  // Blocks 0 to n - 1, the first the oldest, a minute between each.
  void Fill(const PosixConfig& config, std::uint64_t blocks, std::uint32_t digits = 3) {
    auto store = PosixStore::Open(config);
    for (std::uint64_t i = 0; i < blocks; ++i) {
      ASSERT_TRUE(DumpBlock(*store, kSmall, MakeId(1, i), 1).ok());
      MakeOld(BlockPath(config.label, i, digits), static_cast<std::int64_t>(60 * (1 + blocks - i)));
    }
  }
  [[nodiscard]] std::set<std::uint64_t> Left(std::uint64_t blocks,
                                             const std::string& label = PosixConfig().label) const {
    std::set<std::uint64_t> left;
    for (std::uint64_t i = 0; i < blocks; ++i) {
      if (stdfs::exists(BlockPath(label, i))) left.insert(i);
    }
    return left;
  }
  // Waits until the store's n-th cycle has ended.
  [[nodiscard]] static bool AwaitCycles(PosixStore& store, double n) {
    return Eventually([&] { return store.Stat("reclaim_cycles") >= n; });
  }

  const std::thread::id main_ = std::this_thread::get_id();
  ManualClock clock_;
};

}  // namespace ucmstore::test
