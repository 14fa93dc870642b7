// SPDX-License-Identifier: Apache-2.0
//
// The loops that make a transfer whole.
#include "io/psync.h"

#include <cassert>
#include <cerrno>

namespace ucmstore {
namespace {

// Workers block all signals, so one interruption is rare and this many in a row are a defect.
constexpr int kMaxInterruptions = 1000;

// Takes `moved` bytes off the front of the pieces [*first, end).
void Advance(iovec* pieces, std::uint32_t* first, std::uint32_t end, std::uint64_t moved) noexcept {
  while (moved > 0 && *first < end) {
    iovec& piece = pieces[*first];
    if (moved < piece.iov_len) {
      piece.iov_base = static_cast<std::byte*>(piece.iov_base) + moved;
      piece.iov_len -= moved;
      return;
    }
    moved -= piece.iov_len;
    ++*first;
  }
}

}  // namespace

void IoBatch::Add(std::uint64_t offset, void* memory, std::size_t length) noexcept {
  if (length == 0) return;
  assert(!full());
  pieces_[count_] = {.iov_base = memory, .iov_len = length};
  if (run_count_ > 0) {
    Run& last = runs_[run_count_ - 1];
    if (last.offset + last.bytes == offset) {
      ++last.count;
      last.bytes += length;
      ++count_;
      return;
    }
  }
  runs_[run_count_++] = {.offset = offset, .first = count_, .count = 1, .bytes = length};
  ++count_;
}

void IoBatch::Clear() noexcept {
  count_ = 0;
  run_count_ = 0;
}

int IoBatch::Move(FileSystem& fs, int fd, Way way) noexcept {
  fallbacks_ = 0;
  int result = 0;
  for (std::uint32_t i = 0; i < run_count_ && result == 0; ++i) {
    result = MoveRun(fs, fd, way, runs_[i]);
  }
  Clear();
  return result;
}

int IoBatch::MoveRun(FileSystem& fs, int fd, Way way, const Run& run) noexcept {
  std::uint32_t first = run.first;
  const std::uint32_t end = run.first + run.count;
  std::uint64_t offset = run.offset;
  std::uint64_t left = run.bytes;
  int interruptions = 0;
  // Ends: each round moves at least a byte, or spends one of a bounded number of second chances.
  while (left > 0) {
    const int count = static_cast<int>(end - first);
    const ssize_t moved = way == Way::kRead ? fs.ReadV(fd, &pieces_[first], count, offset)
                                            : fs.WriteV(fd, &pieces_[first], count, offset);
    if (moved == -EINTR && ++interruptions <= kMaxInterruptions) continue;
    // The probe at open passed, but this transfer is refused: a short transfer left it misaligned,
    // or this memory cannot be reached by the device. The page cache takes what direct I/O will
    // not.
    if ((moved == -EINVAL || moved == -EFAULT) && fallbacks_ == 0 && fs.DropDirect(fd) == 0) {
      ++fallbacks_;
      continue;
    }
    if (moved < 0) return static_cast<int>(moved);
    if (moved == 0) return way == Way::kRead ? -ENODATA : -EIO;
    const auto bytes = static_cast<std::uint64_t>(moved);
    if (bytes > left) return -EIO;  // no kernel does; a faulty layer below might
    Advance(pieces_.data(), &first, end, bytes);
    offset += bytes;
    left -= bytes;
  }
  return 0;
}

}  // namespace ucmstore
