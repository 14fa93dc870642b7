// SPDX-License-Identifier: Apache-2.0
//
// ReadTransfer and WriteTransfer: shards of one block file on their way between the caller's
// segments and the disk, with their checksums. They choose the way for each shard:
//   straight  every segment lies as the file system asks (always so when buffered): no copy. The
//             last bytes that do not fill a unit go by way of a bounce page, zeros behind them.
//   bounced   through aligned memory of this thread, at most kBounceSize at a time.
// Shards that are neighbours in the file share a system call. An error sticks: later Adds do
// nothing, Finish returns it. One transfer at a time on each thread; not synchronised.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "io/psync.h"
#include "store/posix/counters.h"
#include "store/posix/footer.h"
#include "store/posix/layout.h"
#include "ucmstore/types.h"

namespace ucmstore {

inline constexpr std::size_t kBounceSize = std::size_t{1} << 20;

// A place in a list of segments that moves forward. Not synchronised.
class SegmentCursor {
 public:
  SegmentCursor() = default;
  explicit SegmentCursor(std::span<const Segment> segments) noexcept : segments_(segments) {}

  void Skip(std::size_t bytes) noexcept;
  void CopyIn(std::span<const std::byte> from) noexcept;  // null segments are passed over
  void CopyOut(std::span<std::byte> to) noexcept;         // requires: none is null

 private:
  template <typename Step>
  void Walk(std::size_t bytes, Step&& step) noexcept;

  std::span<const Segment> segments_;
  std::size_t segment_ = 0;
  std::size_t within_ = 0;
};

struct ShardRead;

// What a thread keeps from one transfer to the next.
struct TransferMemory {
  struct Piece {
    std::byte* memory;
    std::size_t bytes;  // without what pads them
    ShardRead* shard;
    bool bounced;
  };
  AlignedBuffer bounce;
  IoBatch batch;
  std::vector<Piece> pieces;

  [[nodiscard]] static TransferMemory& OfThisThread();
};

struct TransferFile {
  FileSystem& fs;
  int fd;
  DirectAlignment alignment;  // {1, 1}: buffered
  const BlockLayout& layout;

  [[nodiscard]] bool direct() const noexcept { return alignment.offset > 1; }
};

// The part that both directions share.
class Transfer {
 public:
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  // Direct I/O was refused on the way, and the rest went through the page cache.
  [[nodiscard]] bool fell_back() const noexcept { return fell_back_; }

 protected:
  Transfer(const TransferFile& file, PosixCounters& counters);
  ~Transfer() = default;

  // The number of leading bytes of `segments` that can go straight, given that `length` are to
  // move: all but less than a unit, or 0.
  [[nodiscard]] std::uint64_t StraightBytes(std::span<const Segment> segments,
                                            std::uint64_t length) const noexcept;
  // At least one page and at most `bytes` (whole pages) of bounce memory; empty if it is used up.
  [[nodiscard]] std::span<std::byte> TakeBounce(std::uint64_t bytes) noexcept;
  void CountMoved(std::uint64_t straight, std::uint64_t bounced) noexcept;

  const TransferFile file_;
  PosixCounters& counters_;
  TransferMemory& memory_;
  std::span<std::byte> bounce_;  // what is left of it
  std::span<std::byte> all_bounce_;
  bool fell_back_ = false;  // direct I/O was refused on the way; the rest is buffered
  int error_ = 0;
};

// One shard to be read. `length` bytes of it are delivered; `crc` is then theirs.
struct ShardRead {
  std::uint32_t index = 0;
  std::uint32_t length = 0;
  std::span<const Segment> segments;
  std::uint32_t crc = 0;
  SegmentCursor cursor;
};

class ReadTransfer : private Transfer {
 public:
  ReadTransfer(const TransferFile& file, PosixCounters& counters) : Transfer(file, counters) {}

  // `shard` must stay until Finish. Its segments have room for its length.
  void Add(ShardRead& shard);
  void AddFooter(bool full);
  // 0, or a negative errno; -ENODATA: the file is shorter than it was.
  [[nodiscard]] int Finish();
  using Transfer::fell_back;
  // After Finish, if there was an AddFooter and no error.
  [[nodiscard]] Result<Footer>& footer() noexcept { return *footer_; }

 private:
  void AddStraight(ShardRead& shard, std::uint64_t bytes);
  void AddBounced(ShardRead& shard, std::uint64_t from);
  void Flush();

  std::span<std::byte> footer_bytes_;
  std::optional<Result<Footer>> footer_;
};

class WriteTransfer : private Transfer {
 public:
  WriteTransfer(const TransferFile& file, PosixCounters& counters) : Transfer(file, counters) {}

  // Queues all bytes of the segments as shard `index`, and says what was stored.
  [[nodiscard]] StoredShard Add(std::uint32_t index, std::span<const Segment> segments,
                                std::uint32_t length);
  void AddFooter(const Footer& footer);
  [[nodiscard]] int Finish();
  using Transfer::fell_back;

 private:
  void AddStraight(std::uint64_t offset, std::span<const Segment> segments, std::uint64_t bytes,
                   std::uint32_t* crc);
  void AddBounced(std::uint64_t offset, SegmentCursor cursor, std::uint64_t bytes,
                  std::uint32_t* crc);
  void Queue(std::uint64_t offset, void* memory, std::size_t bytes);
  void Flush();

  std::uint64_t straight_ = 0;
  std::uint64_t bounced_ = 0;
};

}  // namespace ucmstore
