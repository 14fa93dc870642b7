// SPDX-License-Identifier: Apache-2.0
//
// psync, the I/O engine that always works: transfers by preadv and pwritev on the calling thread.
// IoBatch collects pieces of memory and their places in one file, and moves them with as few calls
// as may be: pieces that follow one another in the file share one. It finishes what the kernel
// leaves short, repeats what a signal interrupted, and splits at IOV_MAX. Not synchronised: one
// batch per thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "io/file_system.h"

namespace ucmstore {

class IoBatch {
 public:
  static constexpr std::size_t kMaxPieces = 1024;  // IOV_MAX

  // Requires: !full(). Empty pieces are dropped. The memory must stay until the batch has moved.
  void Add(std::uint64_t offset, void* memory, std::size_t length) noexcept;
  [[nodiscard]] bool full() const noexcept { return count_ == kMaxPieces; }
  [[nodiscard]] std::size_t room() const noexcept { return kMaxPieces - count_; }
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  void Clear() noexcept;

  // Moves everything and clears the batch. 0, or the negative errno of the call that failed (then
  // some of it may have moved). -ENODATA: the file ended early.
  [[nodiscard]] int Read(FileSystem& fs, int fd) noexcept { return Move(fs, fd, Way::kRead); }
  [[nodiscard]] int Write(FileSystem& fs, int fd) noexcept { return Move(fs, fd, Way::kWrite); }

  // How often, in the last Read or Write, O_DIRECT was refused (EINVAL, EFAULT) and dropped, so
  // that the rest went through the page cache. 0 or 1: a descriptor stays without it.
  [[nodiscard]] std::uint32_t fallbacks() const noexcept { return fallbacks_; }

 private:
  enum class Way : std::uint8_t { kRead, kWrite };
  struct Run {  // pieces that lie one behind the other in the file
    std::uint64_t offset;
    std::uint32_t first;
    std::uint32_t count;
    std::uint64_t bytes;
  };

  [[nodiscard]] int Move(FileSystem& fs, int fd, Way way) noexcept;
  [[nodiscard]] int MoveRun(FileSystem& fs, int fd, Way way, const Run& run) noexcept;

  // Not initialised: 40 KiB that only `count_` and `run_count_` make meaningful.
  std::array<iovec, kMaxPieces> pieces_;
  std::array<Run, kMaxPieces> runs_;
  std::uint32_t count_ = 0;
  std::uint32_t run_count_ = 0;
  std::uint32_t fallbacks_ = 0;
};

}  // namespace ucmstore
