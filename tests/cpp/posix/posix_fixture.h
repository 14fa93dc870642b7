// SPDX-License-Identifier: Apache-2.0
//
// PosixFaults: a folder, a hooked file system and what tests of faults do with them. Not
// synchronised.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "io/hooked_fs.h"
#include "posix/posix_store.h"
#include "store/posix/names.h"
#include "store/posix/root_file.h"
#include "support/temp_dir.h"

namespace ucmstore::test {

namespace stdfs = std::filesystem;
inline constexpr Geometry kSmall{.shard_size = 8192, .shards_per_block = 4};

class PosixFaults : public ::testing::Test {
 protected:
  PosixConfig Config() {
    PosixConfig config;
    config.roots = {dir_.string()};
    config.fs = &fs_;
    return config;
  }
  [[nodiscard]] stdfs::path Folder() const { return dir_.path() / PosixConfig().label; }
  [[nodiscard]] stdfs::path PathOf(const BlockId& id) const {
    return Folder() / BlockName(id, 3).c_str();
  }
  [[nodiscard]] std::size_t Leftovers() const {
    return FilesBelow(dir_.path(), ".activated").size();
  }

  static void FlipByte(const stdfs::path& path, std::streamoff at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const auto byte = static_cast<char>(file.get() ^ 1);
    file.seekp(at);
    file.put(byte);
    ASSERT_TRUE(file.good()) << path;
  }

  TempDir dir_;
  HookedFs fs_;
};

// What the UCMSTORE below a root says.
[[nodiscard]] inline RootFile RootFileOf(const std::string& root) {
  std::ifstream in(stdfs::path(root) / PosixConfig().label / kRootFileName);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const Result<RootFile> file = ParseRootFile(text);
  EXPECT_TRUE(file) << root;
  return file ? *file : RootFile{};
}

// Which of several roots, each once opened, keeps the block: its place in the list.
[[nodiscard]] inline std::size_t HomeOf(const std::vector<std::string>& roots, const BlockId& id) {
  std::size_t best = 0;
  std::uint64_t best_score = 0;
  for (std::size_t i = 0; i < roots.size(); ++i) {
    const std::uint64_t score = RootScore(id, RootSeed(RootFileOf(roots[i]).root_id));
    if (i == 0 || score > best_score) {
      best = i;
      best_score = score;
    }
  }
  return best;
}

[[nodiscard]] inline std::size_t OpenDescriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : stdfs::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

// A gate that calls at a pause point wait at until it is opened.
class Gate {
 public:
  void Wait() {
    waiting_.fetch_add(1);
    waiting_.notify_all();
    open_.wait(false);
  }
  void AwaitOne() const { waiting_.wait(0); }
  void Open() {
    open_.store(true);
    open_.notify_all();
  }

 private:
  std::atomic<int> waiting_{0};
  std::atomic<bool> open_{false};
};

}  // namespace ucmstore::test
