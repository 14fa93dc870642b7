// SPDX-License-Identifier: Apache-2.0
//
// Which bytes go which way.
#include "store/posix/transfer.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "base/checksum.h"
#include "task/segments.h"

namespace ucmstore {

template <typename Step>
void SegmentCursor::Walk(std::size_t bytes, Step&& step) noexcept {
  while (bytes > 0 && segment_ < segments_.size()) {
    const Segment& segment = segments_[segment_];
    const std::size_t left = segment.size - within_;
    const std::size_t part = std::min(bytes, left);
    if (part > 0 && segment.data != nullptr) {
      step(static_cast<std::byte*>(segment.data) + within_, part);
    } else {
      step(nullptr, part);
    }
    bytes -= part;
    within_ += part;
    if (part == left) {
      ++segment_;
      within_ = 0;
    }
  }
}

void SegmentCursor::Skip(std::size_t bytes) noexcept {
  Walk(bytes, [](std::byte* /*at*/, std::size_t /*part*/) {});
}

void SegmentCursor::CopyIn(std::span<const std::byte> from) noexcept {
  Walk(from.size(), [&from](std::byte* at, std::size_t part) {
    if (at != nullptr) std::memcpy(at, from.data(), part);
    from = from.subspan(part);
  });
}

void SegmentCursor::CopyOut(std::span<std::byte> to) noexcept {
  Walk(to.size(), [&to](const std::byte* at, std::size_t part) {
    if (at != nullptr) std::memcpy(to.data(), at, part);
    to = to.subspan(part);
  });
}

TransferMemory& TransferMemory::OfThisThread() {
  thread_local TransferMemory memory;
  return memory;
}

Transfer::Transfer(const TransferFile& file, PosixCounters& counters)
    : file_(file), counters_(counters), memory_(TransferMemory::OfThisThread()) {
  memory_.batch.Clear();
  memory_.pieces.clear();
  const std::size_t size = std::max<std::size_t>(kBounceSize, file.layout.footer_size());
  all_bounce_ = memory_.bounce.Reserve(size);
  bounce_ = all_bounce_;
  if (all_bounce_.empty()) error_ = -ENOMEM;
}

std::uint64_t Transfer::StraightBytes(std::span<const Segment> segments,
                                      std::uint64_t length) const noexcept {
  const std::uint64_t unit = file_.alignment.offset;
  std::uint64_t straight = 0;
  for (const Segment& segment : segments) {
    if (segment.size == 0) continue;
    if (straight == length) break;
    const std::uint64_t part = std::min(segment.size, length - straight);
    const auto address = reinterpret_cast<std::uintptr_t>(segment.data);
    if (segment.data == nullptr || address % file_.alignment.memory != 0) return 0;
    straight += part;
    if (straight < length && part % unit != 0) return 0;
  }
  return straight - straight % unit;
}

std::span<std::byte> Transfer::TakeBounce(std::uint64_t bytes) noexcept {
  const std::size_t taken = std::min<std::uint64_t>(bytes, bounce_.size());
  const std::span<std::byte> memory = bounce_.first(taken);
  bounce_ = bounce_.subspan(taken);
  return memory;
}

void Transfer::CountMoved(std::uint64_t straight, std::uint64_t bounced) noexcept {
  if (memory_.batch.fallbacks() > 0) {
    fell_back_ = true;
    counters_.direct_fallbacks.Add();
  }
  if (fell_back_ || !file_.direct()) {
    counters_.buffered_bytes.Add(straight + bounced);
    return;
  }
  if (straight > 0) counters_.direct_bytes.Add(straight);
  if (bounced > 0) counters_.bounced_bytes.Add(bounced);
}

// ---- reading ---------------------------------------------------------------------------------

void ReadTransfer::Add(ShardRead& shard) {
  shard.crc = 0;
  shard.cursor = SegmentCursor(shard.segments);
  const std::uint64_t straight = StraightBytes(shard.segments, shard.length);
  AddStraight(shard, straight);
  AddBounced(shard, straight);
}

void ReadTransfer::AddStraight(ShardRead& shard, std::uint64_t bytes) {
  std::uint64_t offset = file_.layout.ShardOffset(shard.index);
  for (const Segment& segment : shard.segments) {
    if (bytes == 0) return;
    if (memory_.batch.full()) Flush();
    if (error_ != 0) return;
    const std::uint64_t part = std::min(segment.size, bytes);
    if (part == 0) continue;
    auto* const memory = static_cast<std::byte*>(segment.data);
    memory_.batch.Add(offset, memory, part);
    memory_.pieces.push_back({memory, part, &shard, /*bounced=*/false});
    offset += part;
    bytes -= part;
  }
}

// The rest of the shard's pages, from byte `from` on. What lies behind its length is only read so
// that the next shard follows in the same call.
void ReadTransfer::AddBounced(ShardRead& shard, std::uint64_t from) {
  const std::uint64_t end = WholePages(shard.length);
  while (from < end && error_ == 0) {
    // Rounded up, so that bounce memory stays cut in pages.
    const std::span<std::byte> taken = TakeBounce(WholePages(end - from));
    if (taken.empty() || memory_.batch.full()) {
      Flush();
      continue;
    }
    const std::uint64_t part = std::min<std::uint64_t>(taken.size(), end - from);
    const std::uint64_t data = from < shard.length ? std::min(part, shard.length - from) : 0;
    memory_.batch.Add(file_.layout.ShardOffset(shard.index) + from, taken.data(), part);
    memory_.pieces.push_back({taken.data(), data, &shard, /*bounced=*/true});
    from += part;
  }
}

void ReadTransfer::AddFooter(bool full) {
  const std::uint64_t size = file_.layout.footer_size();
  if (bounce_.size() < size || memory_.batch.full()) Flush();
  if (error_ != 0) return;
  footer_bytes_ = TakeBounce(size);
  memory_.batch.Add(file_.layout.FooterOffset(full), footer_bytes_.data(), size);
}

void ReadTransfer::Flush() {
  if (error_ == 0 && !memory_.batch.empty()) error_ = memory_.batch.Read(file_.fs, file_.fd);
  std::uint64_t straight = 0;
  std::uint64_t bounced = 0;
  for (const TransferMemory::Piece& piece : memory_.pieces) {
    if (error_ != 0) break;
    const std::span<const std::byte> bytes(piece.memory, piece.bytes);
    piece.shard->crc = Crc32c(bytes, piece.shard->crc);
    if (piece.bounced) {
      piece.shard->cursor.CopyIn(bytes);
    } else {
      piece.shard->cursor.Skip(piece.bytes);
    }
    (piece.bounced ? bounced : straight) += piece.bytes;
  }
  if (error_ == 0 && !footer_bytes_.empty()) {
    footer_.emplace(ParseFooter(footer_bytes_));
    footer_bytes_ = {};
  }
  if (error_ == 0) CountMoved(straight, bounced);
  memory_.pieces.clear();
  bounce_ = all_bounce_;
}

int ReadTransfer::Finish() {
  Flush();
  return error_;
}

// ---- writing ---------------------------------------------------------------------------------

StoredShard WriteTransfer::Add(std::uint32_t index, std::span<const Segment> segments,
                               std::uint32_t length) {
  StoredShard stored{.length = length, .crc = 0};
  const std::uint64_t offset = file_.layout.ShardOffset(index);
  const std::uint64_t straight = StraightBytes(segments, length);
  AddStraight(offset, segments, straight, &stored.crc);
  SegmentCursor rest(segments);
  rest.Skip(straight);
  AddBounced(offset + straight, rest, length - straight, &stored.crc);
  return stored;
}

void WriteTransfer::AddStraight(std::uint64_t offset, std::span<const Segment> segments,
                                std::uint64_t bytes, std::uint32_t* crc) {
  for (const Segment& segment : segments) {
    const std::uint64_t part = std::min(segment.size, bytes);
    if (part == 0) continue;
    auto* const memory = static_cast<std::byte*>(segment.data);
    *crc = Crc32c({memory, part}, *crc);
    Queue(offset, memory, part);
    straight_ += part;
    offset += part;
    bytes -= part;
  }
}

// The rest of a shard, and zeros to the end of its last page.
void WriteTransfer::AddBounced(std::uint64_t offset, SegmentCursor cursor, std::uint64_t bytes,
                               std::uint32_t* crc) {
  std::uint64_t left = WholePages(offset + bytes) - offset;
  while (left > 0 && error_ == 0) {
    const std::span<std::byte> taken = TakeBounce(WholePages(left));
    if (taken.empty()) {
      Flush();
      continue;
    }
    const std::span<std::byte> page = taken.first(std::min<std::uint64_t>(taken.size(), left));
    const std::span<std::byte> data = page.first(std::min<std::uint64_t>(page.size(), bytes));
    cursor.CopyOut(data);
    *crc = Crc32c(data, *crc);
    std::ranges::fill(page.subspan(data.size()), std::byte{0});
    Queue(offset, page.data(), page.size());
    bounced_ += data.size();
    bytes -= data.size();
    offset += page.size();
    left -= page.size();
  }
}

void WriteTransfer::Queue(std::uint64_t offset, void* memory, std::size_t bytes) {
  if (error_ != 0) return;
  memory_.batch.Add(offset, memory, bytes);
  // At once, not before the next Add: what was taken of the bounce memory must not be given again.
  if (memory_.batch.full()) Flush();
}

void WriteTransfer::AddFooter(const Footer& footer) {
  const std::uint64_t size = file_.layout.footer_size();
  if (bounce_.size() < size) Flush();
  if (error_ != 0) return;
  const std::span<std::byte> bytes = TakeBounce(size);
  PrintFooter(footer, bytes);
  Queue(file_.layout.FooterOffset(footer.full()), bytes.data(), size);
}

void WriteTransfer::Flush() {
  if (error_ == 0 && !memory_.batch.empty()) {
    error_ = memory_.batch.Write(file_.fs, file_.fd);
    if (error_ == 0) CountMoved(straight_, bounced_);
  }
  straight_ = 0;
  bounced_ = 0;
  bounce_ = all_bounce_;
}

int WriteTransfer::Finish() {
  Flush();
  return error_;
}

}  // namespace ucmstore
