// SPDX-License-Identifier: Apache-2.0
//
// TempDir: a fresh directory, removed with all that is in it. Usually on disk; where a test makes
// many small files and does not mind, in memory, if there is room. Not synchronised.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace ucmstore::test {

class TempDir {
 public:
  TempDir() : TempDir(std::filesystem::temp_directory_path()) {}
  explicit TempDir(const std::filesystem::path& parent) {
    std::string pattern = (parent / "ucmstore-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) {
      throw std::system_error(errno, std::generic_category(), pattern);
    }
    path_ = pattern;
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;  // nothing to be done about it in a destructor
    std::filesystem::remove_all(path_, ignored);
  }

  // The parent of one in memory: a tmpfs with enough room for any test, else the disk after all.
  [[nodiscard]] static std::filesystem::path Memory() {
    constexpr std::uintmax_t kRoom = 512ULL << 20;
    std::error_code none;
    const std::filesystem::path memory = "/dev/shm";
    const auto space = std::filesystem::space(memory, none);
    const bool usable = !none && space.available >= kRoom && ::access(memory.c_str(), W_OK) == 0;
    return usable ? memory : std::filesystem::temp_directory_path();
  }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::string string() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace ucmstore::test
