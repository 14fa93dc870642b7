// SPDX-License-Identifier: Apache-2.0
//
// Arena: the memory that the kill suite's driver shares with its workers, a file mapped by all: who
// has done how much, what went wrong, and when to stop. Lock-free atomics only: a killed worker
// must not leave anything behind that another waits for.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <system_error>

#include "base/unique_fd.h"

namespace ucmstore::test {

inline constexpr std::size_t kMaxWorkers = 16;

struct Arena {
  std::atomic<std::uint32_t> stop;
  std::atomic<std::uint64_t> wrong;   // shards with wrong bytes, seen by anybody
  std::atomic<std::uint64_t> failed;  // operations that ended in a way they must not
  std::array<std::atomic<std::uint64_t>, kMaxWorkers> operations;  // ended, by worker
  std::array<std::atomic<std::uint32_t>, kMaxWorkers> writing;     // 1 while a dump is in flight
  std::array<std::atomic<std::uint64_t>, kMaxWorkers> kept;  // blocks confirmed and never deleted

  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
};

class ArenaFile {
 public:
  explicit ArenaFile(const std::string& path) {
    const UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!file || ::ftruncate(file.get(), sizeof(Arena)) != 0) Throw(path);
    void* memory =
        ::mmap(nullptr, sizeof(Arena), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (memory == MAP_FAILED) Throw(path);
    arena_ = static_cast<Arena*>(memory);
  }
  ArenaFile(const ArenaFile&) = delete;
  ArenaFile& operator=(const ArenaFile&) = delete;
  ~ArenaFile() { ::munmap(arena_, sizeof(Arena)); }

  Arena* operator->() const { return arena_; }

 private:
  [[noreturn]] static void Throw(const std::string& path) {
    throw std::system_error(errno, std::generic_category(), path);
  }
  Arena* arena_ = nullptr;
};

}  // namespace ucmstore::test
