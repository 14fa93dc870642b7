// SPDX-License-Identifier: Apache-2.0
//
// Reading for the sake of checking.
#include "store/posix/verify.h"

#include <spdlog/fmt/fmt.h>

#include <cerrno>

#include "store/posix/block_reader.h"
#include "store/posix/transfer.h"

namespace ucmstore {
namespace {

// Bounce memory is what direct I/O of any kind accepts.
constexpr DirectAlignment kPages{.memory = kPageSize, .offset = kPageSize};

DirectAlignment AlignmentFor(bool direct) noexcept { return direct ? kPages : DirectAlignment{}; }

BlockVerdict Judge(FileSystem& fs, int folder, const char* name, const BlockId& id,
                   const RootFile& root) {
  BlockVerdict judged;
  const auto unreadable = [&judged](int error) {
    judged.verdict = AdminVerdict::kUnreadable;
    judged.text = ErrnoText(-error);
    return std::move(judged);
  };
  bool direct = true;
  const int fd = OpenForReading(fs, folder, name, &direct);
  if (fd < 0) return unreadable(fd);
  judged.file = File(fs, fd);
  const int known = fs.Stat(fd, &judged.stat);
  if (known < 0) return unreadable(known);
  if (!root.layout.IsBlockSize(judged.stat.size)) {
    judged.verdict = AdminVerdict::kTorn;
    judged.text = fmt::format("{} bytes are not a whole block of this geometry", judged.stat.size);
    return judged;
  }
  const bool full = judged.stat.size == root.layout.FileSize(/*full=*/true);
  PosixCounters counters;
  const TransferFile file{fs, fd, AlignmentFor(direct), root.layout};
  ReadTransfer transfer(file, counters);
  transfer.AddFooter(full);
  const int error = transfer.Finish();
  if (error < 0) return unreadable(error);
  const Result<Footer>& footer = transfer.footer();
  if (!footer) {
    const bool newer = footer.error().code == Code::kUnsupported;
    judged.verdict = newer ? AdminVerdict::kUnknown : AdminVerdict::kCorrupt;
    judged.text = footer.error().text();
    return judged;
  }
  judged.text = FooterMismatch(*footer, id, root, full);
  if (judged.text.empty()) {
    Result<std::string> wrong = CheckShards(fs, fd, direct, *footer);
    if (!wrong) return unreadable(-wrong.error().sys_errno);
    judged.text = std::move(*wrong);
  }
  if (!judged.text.empty()) judged.verdict = AdminVerdict::kCorrupt;
  return judged;
}

}  // namespace

int OpenForReading(FileSystem& fs, int folder, const char* name, bool* direct) {
  constexpr int kFlags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK;
  *direct = true;
  const int fd = fs.OpenAt(folder, name, kFlags | O_DIRECT, 0);
  if (fd != -EINVAL) return fd;
  *direct = false;
  return fs.OpenAt(folder, name, kFlags, 0);
}

Result<std::string> CheckShards(FileSystem& fs, int fd, bool direct, const Footer& footer) {
  PosixCounters counters;
  const TransferFile file{fs, fd, AlignmentFor(direct), footer.layout};
  std::string wrong;
  for (std::uint32_t i = 0; i < footer.layout.shards_per_block; ++i) {
    const StoredShard& stored = footer.shards[i];
    const Segment nowhere{.data = nullptr, .size = stored.length};
    ShardRead read{
        .index = i, .length = stored.length, .segments = {&nowhere, 1}, .crc = 0, .cursor = {}};
    ReadTransfer transfer(file, counters);
    transfer.Add(read);
    const int error = transfer.Finish();
    if (error < 0) return std::unexpected(ErrnoStatus(-error, fmt::format("reading shard {}", i)));
    if (read.crc != stored.crc && wrong.empty()) {
      wrong = fmt::format("the checksum of shard {} differs", i);
    }
  }
  return wrong;
}

Result<Footer> FindFooter(FileSystem& fs, int fd, std::uint64_t size) {
  constexpr std::uint64_t kMostPages =
      BlockLayout{1, BlockLayout::kMaxShards}.footer_size() / kPageSize;
  AlignedBuffer buffer;
  for (std::uint64_t pages = 1; pages <= kMostPages && pages * kPageSize <= size; ++pages) {
    const std::uint64_t bytes = pages * kPageSize;
    const std::span<std::byte> memory = buffer.Reserve(bytes);
    if (memory.empty()) return Failure(Code::kLimit, "out of memory");
    const auto read = [&](std::size_t length) {
      IoBatch batch;
      batch.Add(size - bytes, memory.data(), length);
      return batch.Read(fs, fd);
    };
    int error = read(kPageSize);
    if (error == 0 && PeekFooterSize(memory.first(kPageSize)) != bytes) continue;
    if (error == 0) error = read(bytes);
    if (error < 0) return std::unexpected(ErrnoStatus(-error, "reading the footer"));
    return ParseFooter(memory);
  }
  return Failure(Code::kCorruption, "there is no footer");
}

BlockVerdict VerifyBlock(FileSystem& fs, int folder, const char* name, const BlockId& id,
                         const RootFile& root) {
  BlockVerdict first = Judge(fs, folder, name, id, root);
  if (first.verdict != AdminVerdict::kCorrupt) return first;
  // One bad reading is not enough. The first descriptor stays open meanwhile, so the same inode
  // number is the same file. If it is another file now, that one has been judged once: say so
  // without a verdict that somebody would act on.
  BlockVerdict second = Judge(fs, folder, name, id, root);
  if (second.verdict == AdminVerdict::kCorrupt && !second.stat.SameFile(first.stat)) {
    second.verdict = AdminVerdict::kUnknown;
    second.text += "; it was replaced while it was judged";
  }
  return second;
}

}  // namespace ucmstore
